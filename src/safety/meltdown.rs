//! The meltdown guard: limits how many unhealthy Machines of one MachineDeployment are replaced at the same time.
//!
//! If a zone fails, or the connection to it, all its Machines look unhealthy at the same time. Replacing them all would
//! turn a disturbance into an outage, so the next replacement waits until the previous one is Running. The [`Limit`] is
//! `max_unhealthy_replacements` of the machine policy. Creation timeouts are not guarded, because such a Machine was never
//! available.

use std::{fmt, str::FromStr};

use crate::api::{
    labels,
    machine::{Machine, MachinePhase},
};

/// How many Machines of a deployment may be out of service before no further one is replaced, at least one. The default is
/// the reference's fixed number, 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// That many.
    Machines(u32),
    /// That many of a hundred, rounded down.
    Percent(u32),
}

/// What is no [`Limit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a number of machines (1 or more) or a percentage (1% to 100%)")]
pub struct InvalidLimit;

impl Limit {
    fn of(self, machines: u32) -> u32 {
        match self {
            Self::Machines(count) => count,
            Self::Percent(percent) => (u64::from(machines) * u64::from(percent) / 100).try_into().unwrap_or(u32::MAX),
        }
        .max(1)
    }
}

impl Default for Limit {
    fn default() -> Self {
        Self::Machines(1)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machines(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for Limit {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let (number, limit, range): (_, fn(u32) -> Self, _) = match text.strip_suffix('%') {
            Some(percent) => (percent, Self::Percent, 1..=100),
            None => (text, Self::Machines, 1..=u32::MAX),
        };
        let number = number.parse().ok().filter(|number| range.contains(number));
        number.map(limit).ok_or(InvalidLimit)
    }
}

/// How many names an explanation lists.
const NAMES: usize = 3;

/// The scope of a permit: Machines with the same value of the label [`labels::DEPLOYMENT_NAME`] in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitKey {
    pub namespace: String,
    pub deployment: String,
}

/// How many Machines with the same [`PermitKey`] are out of service, and which, including the Machine itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutOfService {
    /// All Machines, in service or not.
    machines: u32,
    weight: u32,
    blockers: Vec<String>,
}

/// The permit to replace a Machine of a MachineDeployment. One Machine at a time holds it, while the others are counted
/// and its status is written. The executor keeps the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Permit {
    /// Not requested in this reconcile.
    #[default]
    NotAsked,
    /// This Machine holds it; the others were counted after it was taken.
    Held(OutOfService),
    /// Another Machine holds it.
    Refused {
        /// Name of that Machine.
        by: String,
    },
}

impl PermitKey {
    /// The key of a Machine. A Machine without one is not guarded.
    pub fn of(machine: &Machine) -> Option<Self> {
        let deployment = machine.metadata.labels.as_ref()?.get(labels::DEPLOYMENT_NAME)?.clone();
        Some(Self { namespace: machine.metadata.namespace.clone().unwrap_or_default(), deployment })
    }

    /// Whether a Machine has this key.
    pub fn is_of(&self, machine: &Machine) -> bool {
        Self::of(machine).as_ref() == Some(self)
    }
}

impl fmt::Display for PermitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.deployment)
    }
}

impl OutOfService {
    /// Counts the Machines of one key and ignores others.
    pub fn of<'a>(key: &PermitKey, machines: impl IntoIterator<Item = &'a Machine>) -> Self {
        let mut count = Self::default();
        machines.into_iter().filter(|machine| key.is_of(machine)).for_each(|machine| count.add(machine));
        count.blockers.sort();
        count.blockers.truncate(NAMES);
        count
    }

    fn add(&mut self, machine: &Machine) {
        let weight = weight_of(machine);
        self.machines = self.machines.saturating_add(1);
        self.weight = self.weight.saturating_add(weight);
        if weight > 0 {
            let name = machine.metadata.name.as_deref().unwrap_or_default();
            let phase = machine.phase();
            let phase = match &phase {
                _ if machine.is_terminating() => "Terminating",
                MachinePhase::New => "not created yet",
                phase => phase.as_str(),
            };
            self.blockers.push(format!("{name} ({phase})"));
        }
    }

    /// The Machines because of which no further one may be replaced; `None` if one may.
    pub fn blocked_by(&self, limit: Limit) -> Option<String> {
        (self.weight >= limit.of(self.machines)).then(|| {
            let more = if self.blockers.len() == NAMES { ", …" } else { "" };
            format!("{}{more}", self.blockers.join(", "))
        })
    }
}

/// Running, Unknown and preserved Machines are in service. So is one whose in-place update failed, until it is given up: two
/// of them would wait for each other for ever. A terminating one, by phase or deletion timestamp, counts twice, because its
/// replacement does not exist yet.
fn weight_of(machine: &Machine) -> u32 {
    let preserved = machine.status.as_ref().is_some_and(|status| status.current_status.preserve_expiry_time.is_some());
    let is_terminating = machine.is_terminating();
    let waits_or_serves =
        matches!(machine.phase(), MachinePhase::Running | MachinePhase::Unknown | MachinePhase::InPlaceUpdateFailed);
    let serves = waits_or_serves && !is_terminating;
    u32::from(!serves && !preserved) + u32::from(is_terminating)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn machine(name: &str, phase: &str, preserved: bool) -> Machine {
        let expiry = preserved.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": name, "namespace": "ns", "labels": { "name": "pool" } },
            "spec": {}, "status": { "currentStatus": { "phase": phase, "preserveExpiryTime": expiry } },
        }))
        .unwrap()
    }

    fn count(machines: &[Machine]) -> OutOfService {
        OutOfService::of(&PermitKey { namespace: "ns".to_owned(), deployment: "pool".to_owned() }, machines)
    }

    #[rstest]
    #[case::all_in_service(&[("Running", false), ("Unknown", false)], 0)]
    #[case::waiting_to_be_given_up(&[("InPlaceUpdateFailed", false), ("InPlaceUpdateFailed", false)], 0)]
    #[case::being_created(&[("Running", false), ("", false)], 1)]
    #[case::joining(&[("Pending", false)], 1)]
    #[case::given_up_already(&[("Failed", false)], 1)]
    #[case::preserved_ones_are_not_replaced(&[("Failed", true)], 0)]
    #[case::terminating_counts_twice(&[("Terminating", false)], 2)]
    #[case::terminating_and_preserved_counts_once(&[("Terminating", true)], 1)]
    #[case::other_phases_block(&[("CrashLoopBackOff", false), ("InPlaceUpdating", false), ("Available", false)], 3)]
    fn counts_what_is_out_of_service(#[case] phases: &[(&str, bool)], #[case] weight: u32) {
        let machines: Vec<Machine> = phases.iter().map(|(phase, preserved)| machine("m", phase, *preserved)).collect();
        assert_eq!(count(&machines).weight, weight);
    }

    #[test]
    fn one_machine_may_be_given_up_only_while_none_is_out_of_service() {
        let healthy = [machine("a", "Running", false), machine("b", "Unknown", false)];
        assert_eq!(count(&healthy).blocked_by(Limit::default()), None);
        let joining = [machine("a", "Unknown", false), machine("b", "Pending", false)];
        assert_eq!(count(&joining).blocked_by(Limit::default()).as_deref(), Some("b (Pending)"));
    }

    #[rstest]
    #[case::a_number("2", 1, 2)]
    #[case::and_another("3", 2, 4)]
    #[case::a_percentage("25%", 2, 12)]
    #[case::is_rounded_down("25%", 0, 7)]
    #[case::and_one_is_always_allowed("1%", 0, 7)]
    fn a_limit_is_a_number_or_a_percentage(#[case] limit: &str, #[case] allowed: usize, #[case] machines: usize) {
        let limit: Limit = limit.parse().unwrap();
        let out_of_service = |count_of: usize| {
            let phase = |index: usize| if index < count_of { "Pending" } else { "Running" };
            let all: Vec<Machine> = (0..machines).map(|index| machine("m", phase(index), false)).collect();
            count(&all).blocked_by(limit)
        };
        assert_eq!(out_of_service(allowed), None, "one more may be replaced");
        assert!(out_of_service(allowed + 1).is_some());
    }

    #[rstest]
    fn nothing_else_is_a_limit(#[values("", "0", "0%", "101%", "-1", "1.5", "%", "ten")] text: &str) {
        assert_eq!(text.parse::<Limit>(), Err(InvalidLimit));
    }

    #[test]
    fn the_explanation_names_a_few_machines_in_order() {
        let machines: Vec<Machine> = ["e", "d", "c", "b"].iter().map(|name| machine(name, "", false)).collect();
        let text = count(&machines).blocked_by(Limit::default()).unwrap();
        assert_eq!(text, "b (not created yet), c (not created yet), d (not created yet), …");
    }

    #[rstest]
    #[case::running("Running", false, 2)]
    #[case::unknown("Unknown", false, 2)]
    #[case::preserved("Failed", true, 1)]
    #[case::phase_says_so_too("Terminating", false, 2)]
    fn a_machine_with_a_deletion_timestamp_terminates_whatever_its_phase(
        #[case] phase: &str,
        #[case] preserved: bool,
        #[case] weight: u32,
    ) {
        let mut machine = machine("m", phase, preserved);
        machine.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH.into());
        let count = count(&[machine]);
        assert_eq!((count.weight, count.blocked_by(Limit::default()).as_deref()), (weight, Some("m (Terminating)")));
    }

    #[test]
    fn machines_of_other_namespaces_and_deployments_do_not_count() {
        let (mut elsewhere, mut other) = (machine("m", "Failed", false), machine("m", "Failed", false));
        elsewhere.metadata.namespace = Some("elsewhere".to_owned());
        other.metadata.labels.as_mut().unwrap().insert("name".to_owned(), "other".to_owned());
        assert_eq!(count(&[elsewhere, other]).weight, 0);
    }
}
