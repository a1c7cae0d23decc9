//! The order in which the Machines of a set are deleted. The autoscaler relies on it when it marks Machines for
//! deletion.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use mcm_api::{
    labels::{
        DEFAULT_PRIORITY, DESIRED_REPLICAS, FIRST_PRIORITY, LAST_SCALER_CHANGE, MARKED_FOR_DELETION_TIME, PRIORITY,
    },
    machine::{Machine, MachinePhase},
};

/// Sort key of a Machine in the deletion order of its set; the smallest is deleted first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeletionOrder<'a> {
    preserved: Option<PreservationRank>,
    priority: i64,
    unmarked: bool,
    marked_at: Option<Timestamp>,
    phase: u8,
    created_at: Option<Timestamp>,
    name: &'a str,
}

/// Of preserved Machines, those preserved by a user are kept longest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PreservationRank {
    by_user: bool,
    until: Timestamp,
}

impl<'a> DeletionOrder<'a> {
    pub fn for_machine(machine: &'a Machine, now: Timestamp) -> Self {
        let marked_at = marked_at(machine);
        let preserved = machine.preserved_until(now);
        Self {
            preserved: preserved.map(|until| PreservationRank { by_user: !machine.is_auto_preserved(), until }),
            priority: priority(machine),
            unmarked: marked_at.is_none(),
            marked_at,
            phase: rank(machine),
            created_at: machine.creation_timestamp().map(|time| time.0),
            name: machine.metadata.name.as_deref().unwrap_or_default(),
        }
    }
}

/// Machines that are available, or will be again on the same VM, are deleted last; those without a VM first.
fn rank(machine: &Machine) -> u8 {
    match machine.phase() {
        MachinePhase::New | MachinePhase::Terminating => 0,
        MachinePhase::Failed => 1,
        MachinePhase::CrashLoopBackOff => 2,
        MachinePhase::Unknown => 3,
        MachinePhase::Pending => 4,
        MachinePhase::Available => 5,
        _ => 6,
    }
}

/// The annotated priority, parsed like Go's `strconv.Atoi`; the default if it is absent or not a number.
pub fn priority(machine: &Machine) -> i64 {
    let written = machine.annotations().get(PRIORITY).and_then(|text| text.parse().ok());
    written.unwrap_or(DEFAULT_PRIORITY)
}

/// When the autoscaler chose the Machine for deletion.
pub(crate) fn marked_at(machine: &Machine) -> Option<Timestamp> {
    machine.annotations().get(MARKED_FOR_DELETION_TIME)?.parse().ok()
}

/// The autoscaler gave the Machine the priority with which it is deleted before others.
pub(crate) fn goes_first(machine: &Machine) -> bool {
    machine.annotations().get(PRIORITY).is_some_and(|value| value == FIRST_PRIORITY)
}

/// The autoscaler chose the Machine before it last changed the replicas: its set deletes it even if the number is
/// right, and creates another, once it has the replicas of its deployment.
pub fn is_chosen(machine: &Machine, scaled_at: Option<Timestamp>) -> bool {
    goes_first(machine) && marked_at(machine).zip(scaled_at).is_some_and(|(marked, scaled)| marked <= scaled)
}

/// When the autoscaler last changed the replicas of a deployment or set.
pub fn scaled_at(metadata: &ObjectMeta) -> Option<Timestamp> {
    metadata.annotations.as_ref()?.get(LAST_SCALER_CHANGE)?.parse().ok()
}

/// The replicas of its deployment for which a set was last scaled.
pub(crate) fn scaled_for(metadata: &ObjectMeta) -> Option<i32> {
    metadata.annotations.as_ref()?.get(DESIRED_REPLICAS)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn machine(change: &Value) -> Machine {
        let mut machine = json!({
            "metadata": {"name": "m", "creationTimestamp": "2023-11-14T20:00:00Z", "annotations": {}},
            "spec": {}, "status": {"currentStatus": {"phase": "Running"}},
        });
        mcm_api::patch::apply(&mut machine, change);
        serde_json::from_value(machine).unwrap()
    }

    fn annotated(key: &str, value: &str) -> Value {
        json!({"metadata": {"annotations": {key: value}}})
    }

    fn preserved_until(time: &str) -> Value {
        json!({"status": {"currentStatus": {"preserveExpiryTime": time}}})
    }

    #[rstest]
    #[case::preservation_before_priority(annotated(PRIORITY, "5"), { let mut it = preserved_until("2023-11-15T00:00:00Z"); it["metadata"] = annotated(PRIORITY, "1")["metadata"].clone(); it })]
    #[case::an_expired_preservation_is_none(
        preserved_until("2023-11-14T00:00:00Z"),
        preserved_until("2023-11-15T00:00:00Z")
    )]
    #[case::a_number_beyond_32_bits_is_a_priority(json!({}), annotated(PRIORITY, "99999999999"))]
    #[case::and_so_is_one_far_below(annotated(PRIORITY, "-99999999999"), annotated(PRIORITY, "-1"))]
    #[case::a_sign_is_read_as_go_reads_it(annotated(PRIORITY, "+2"), json!({}))]
    #[case::a_space_is_no_number(annotated(PRIORITY, " 9"), annotated(PRIORITY, "4"))]
    fn who_goes_first(#[case] first: Value, #[case] second: Value) {
        let (first, second, now) = (machine(&first), machine(&second), Timestamp::from_second(NOW).unwrap());
        assert!(DeletionOrder::for_machine(&first, now) < DeletionOrder::for_machine(&second, now));
    }
}
