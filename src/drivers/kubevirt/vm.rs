//! VirtualMachines of KubeVirt, as far as the driver reads them.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeAddress;
use mcm_driver::{
    Code, DriverError, SecretData, Vm,
    cloud::{CloudVm, VmOwnership, safe_text},
};
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    markers::Scope,
    names::{NO_PLACE, OWNER_LABEL, UID_LABEL, VM_LABEL, provider_id},
};

/// A VM. Fields that the API server always sends must be there: an answer without them is unreadable.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct VirtualMachine {
    pub metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

/// The settings by which KubeVirt keeps a VM running. Gardener's driver sets `running`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    run_strategy: String,
    running: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub name: String,
    pub uid: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    creation_timestamp: Timestamp,
    deletion_timestamp: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    printable_status: String,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    message: String,
}

/// States of a VM that has not run yet and may still fail. KubeVirt sets none at first.
const STARTING: [&str; 5] = ["", "Provisioning", "WaitingForVolumeBinding", "WaitingForReceiver", "Starting"];
/// States of a VM that exists and does not run.
const HALTED: [&str; 5] = ["Stopped", "Stopping", "Paused", "Terminating", "CrashLoopBackOff"];
/// No Node has room.
const UNSCHEDULABLE: &str = "ErrorUnschedulable";
/// A volume or the image of KubeVirt's pod cannot be used.
const FAILED: [&str; 4] = ["ErrorPvcNotFound", "DataVolumeError", "ErrImagePull", "ImagePullBackOff"];
/// Part of the message of a ResourceQuota that is used up.
pub(crate) const QUOTA: &str = "exceeded quota";

impl VirtualMachine {
    /// It is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Its labels are those of a VM of which it is a copy. KubeVirt copies labels with a clone or a snapshot.
    pub fn is_copy(&self) -> bool {
        self.metadata.labels.get(VM_LABEL).is_some_and(|name| *name != self.metadata.name)
    }

    /// It has started, as far as this is known. No value of `secret` gets into the text of an error.
    ///
    /// # Errors
    /// The reason why it cannot start now.
    pub fn has_started(&self, secret: &SecretData) -> Result<bool, DriverError> {
        let state = self.status.printable_status.as_str();
        let refuse = |code: Code, kinds: &[&str]| {
            let name = &self.metadata.name;
            let reason =
                self.message(kinds).map_or_else(String::new, |message| format!(": {}", safe_text(message, secret)));
            Err(DriverError::new(code, format!("VM {name} cannot start: {state}{reason}")))
        };
        if self.is_terminating() {
            return Ok(true);
        }
        match state {
            UNSCHEDULABLE => refuse(Code::ResourceExhausted, &["PodScheduled"]),
            state if FAILED.contains(&state) => {
                refuse(Code::FailedPrecondition, &["Synchronized", "DataVolumesReady", "Failure"])
            }
            state if STARTING.contains(&state) && self.exceeds_quota() => {
                refuse(Code::ResourceExhausted, &["Synchronized", "Failure"])
            }
            // The state before KubeVirt creates volume and pod.
            "Stopped" => Ok(!self.is_kept_running()),
            state => Ok(!STARTING.contains(&state)),
        }
    }

    fn is_kept_running(&self) -> bool {
        self.spec.run_strategy == "Always" || self.spec.running == Some(true)
    }

    fn exceeds_quota(&self) -> bool {
        self.status.conditions.iter().any(|condition| condition.message.contains(QUOTA))
    }

    /// The message of the first of some conditions.
    fn message(&self, kinds: &[&str]) -> Option<&str> {
        let of_kind = |kind: &&str| {
            let condition = self.status.conditions.iter().find(|one| one.kind == **kind && !one.message.is_empty());
            condition.map(|condition| condition.message.as_str())
        };
        kinds.iter().find_map(of_kind)
    }

    /// When it was created, as an instant of this process.
    pub fn created(&self, now: Timestamp) -> Instant {
        before(Instant::now(), self.metadata.creation_timestamp, now)
    }

    /// When its deletion began, as an instant of this process.
    pub fn deleted(&self, now: Timestamp) -> Instant {
        before(Instant::now(), self.metadata.deletion_timestamp.unwrap_or(now), now)
    }

    /// Its Node registers under its name. `zone` is that of the class.
    pub fn vm(&self, zone: &str) -> Vm {
        let name = &self.metadata.name;
        let state = if self.is_terminating() { "Terminating" } else { self.status.printable_status.as_str() };
        Vm {
            provider_id: provider_id(name),
            node_provider_id: None,
            node_name: name.clone(),
            zone: Some(zone.to_owned()).filter(|zone| zone != NO_PLACE && !zone.is_empty()),
            addresses: vec![NodeAddress { type_: "Hostname".to_owned(), address: name.clone() }],
            last_known_state: None,
            halted: HALTED.contains(&state).then(|| state.to_lowercase()),
        }
    }
}

impl CloudVm for VirtualMachine {
    type Scope = Scope;

    /// The name of a VM that was deleted is free for another.
    const REUSES_IDS: bool = true;

    fn id(&self) -> &str {
        &self.metadata.name
    }

    fn machine_name(&self) -> &str {
        &self.metadata.name
    }

    fn machine_uid(&self) -> Option<&str> {
        self.metadata.labels.get(UID_LABEL).map(String::as_str)
    }

    fn owner(&self) -> Option<&str> {
        self.metadata.labels.get(OWNER_LABEL).map(String::as_str)
    }

    /// A VM that another infrastructure provider has taken over has lost the label with its role.
    fn is_listed(&self, scope: &Scope) -> bool {
        scope.is_of_role(&self.metadata.labels) && !self.is_copy()
    }

    fn belonging(&self, scope: &Scope) -> VmOwnership {
        let labels = &self.metadata.labels;
        if scope.is_foreign(labels) {
            VmOwnership::Foreign
        } else if scope.is_of_cluster(labels) {
            VmOwnership::Ours
        } else {
            VmOwnership::Unmarked
        }
    }
}

/// The instant of a time in the past. One in the future is of a clock that is ahead.
fn before(instant: Instant, time: Timestamp, now: Timestamp) -> Instant {
    let age = Duration::try_from(now.duration_since(time)).unwrap_or_default();
    instant.checked_sub(age).unwrap_or(instant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn vm(labels: Value, status: Value) -> VirtualMachine {
        let metadata = json!({"name": "a", "uid": "1", "labels": labels, "creationTimestamp": "2026-11-26T20:00:00Z"});
        serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": status})).unwrap()
    }

    #[rstest]
    #[case("Running", Ok(true))]
    #[case("Migrating", Ok(true))]
    #[case("Stopped", Ok(true))]
    #[case("of a later version", Ok(true))]
    #[case("", Ok(false))]
    #[case("Provisioning", Ok(false))]
    #[case("WaitingForVolumeBinding", Ok(false))]
    #[case("Starting", Ok(false))]
    #[case("ErrorUnschedulable", Err(Code::ResourceExhausted))]
    #[case("ErrorPvcNotFound", Err(Code::FailedPrecondition))]
    #[case("DataVolumeError", Err(Code::FailedPrecondition))]
    #[case("ErrImagePull", Err(Code::FailedPrecondition))]
    #[case("ImagePullBackOff", Err(Code::FailedPrecondition))]
    fn a_state_is_a_start_a_failure_or_neither(#[case] state: &str, #[case] expected: Result<bool, Code>) {
        let found = vm(json!({}), json!({"printableStatus": state})).has_started(&SecretData::default());
        assert_eq!(found.map_err(|error| error.code), expected);
    }

    #[rstest]
    #[case(json!({"runStrategy": "Always"}), false)]
    #[case(json!({"running": true}), false)]
    #[case(json!({"runStrategy": "Halted"}), true)]
    #[case(json!({"running": false}), true)]
    fn a_stopped_vm_that_kubevirt_keeps_running_has_not_started(#[case] spec: Value, #[case] has_started: bool) {
        let metadata = json!({"name": "a", "uid": "1", "creationTimestamp": "2026-11-26T20:00:00Z"});
        let vm = json!({"metadata": metadata, "spec": spec, "status": {"printableStatus": "Stopped"}});
        let vm: VirtualMachine = serde_json::from_value(vm).unwrap();
        assert_eq!(vm.has_started(&SecretData::default()).unwrap(), has_started);
    }

    #[rstest]
    #[case(
        "PodScheduled",
        "ErrorUnschedulable",
        "0/3 nodes are available: 3 Insufficient cpu.",
        Code::ResourceExhausted
    )]
    #[case("Synchronized", "ErrorPvcNotFound", "PVC ns/a does not exist [x", Code::FailedPrecondition)]
    #[case(
        "Synchronized",
        "Starting",
        "failed to create virtual machine pod: exceeded quota: q",
        Code::ResourceExhausted
    )]
    #[case("Failure", "Starting", "VMI conflicts with exceeded quota", Code::ResourceExhausted)]
    fn a_failure_says_why(#[case] kind: &str, #[case] state: &str, #[case] message: &str, #[case] expected: Code) {
        let condition = json!({"type": kind, "status": "False", "message": message});
        let error = vm(json!({}), json!({"printableStatus": state, "conditions": [condition]}))
            .has_started(&SecretData::default())
            .unwrap_err();
        assert_eq!(
            (error.code, error.message),
            (expected, format!("VM a cannot start: {state}: {}", message.replace('[', "(")))
        );
    }

    #[rstest]
    #[case::ours(json!({"mcm.gardener.cloud/cluster": "shoot", "mcm.gardener.cloud/role": "node"}), VmOwnership::Ours, false)]
    #[case::handed_over(json!({"mcm.gardener.cloud/cluster": "shoot"}), VmOwnership::Ours, true)]
    #[case::of_another_role(json!({"mcm.gardener.cloud/cluster": "shoot", "mcm.gardener.cloud/role": "x"}), VmOwnership::Foreign, true)]
    #[case::of_another_cluster(json!({"mcm.gardener.cloud/cluster": "x", "mcm.gardener.cloud/role": "node"}), VmOwnership::Foreign, false)]
    #[case::unmarked(json!({}), VmOwnership::Unmarked, true)]
    fn labels_say_whose_a_vm_is(#[case] labels: Value, #[case] expected: VmOwnership, #[case] is_unlisted: bool) {
        let tags = [("mcm.gardener.cloud/cluster", "shoot"), ("mcm.gardener.cloud/role", "node")];
        let scope = Scope::from_tags(&tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into()).unwrap();
        let vm = vm(labels, json!({}));
        assert_eq!((vm.belonging(&scope), vm.is_listed(&scope)), (expected, !is_unlisted));
    }

    #[rstest]
    #[case("Running", "z1", None, Some("z1"))]
    #[case("Stopped", "default", Some("stopped"), None)]
    #[case("Paused", "z1", Some("paused"), Some("z1"))]
    fn a_vm_has_its_zone_and_says_whether_it_runs(
        #[case] state: &str,
        #[case] zone: &str,
        #[case] halted: Option<&str>,
        #[case] expected: Option<&str>,
    ) {
        let found = vm(json!({}), json!({"printableStatus": state})).vm(zone);
        assert_eq!((found.halted.as_deref(), found.zone.as_deref()), (halted, expected));
        assert_eq!((found.provider_id.as_str(), found.node_name.as_str()), ("kubevirt://a", "a"));
    }

    #[test]
    fn the_age_of_a_vm_is_that_of_its_clock() {
        let (now, earlier) = ("2026-11-26T20:01:00Z".parse().unwrap(), "2026-11-26T19:00:00Z".parse().unwrap());
        let vm = vm(json!({}), json!({}));
        assert!(vm.created(now).elapsed() >= Duration::from_secs(60));
        assert!(vm.created(earlier).elapsed() < Duration::from_secs(60), "a clock that is ahead");
    }
}
