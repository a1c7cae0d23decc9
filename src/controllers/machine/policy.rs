use jiff::{SignedDuration, Timestamp};

use mcm_api::{GoDuration, labels, machine::Machine};
use mcm_rules::{drain::VolumeTimeouts, safety::meltdown};

/// Settings for all Machines, from the flags. A Machine can override most of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachinePolicy {
    /// How long creating and joining may take (`--machine-creation-timeout`).
    pub creation_timeout: GoDuration,
    /// How long a Machine may be Unknown (`--machine-health-timeout`).
    pub health_timeout: GoDuration,
    /// How long a drain may take before it is forced (`--machine-drain-timeout`).
    pub drain_timeout: GoDuration,
    /// How long an in-place update may take (`--machine-inplace-update-timeout`).
    pub in_place_update_timeout: GoDuration,
    /// How long a Machine is preserved (`--machine-preserve-timeout`).
    pub preserve_timeout: GoDuration,
    /// How many eviction periods of 20 s pass before pods are deleted (`--machine-max-evict-retries`).
    pub max_evict_retries: i32,
    /// How long the volumes of drained pods are awaited (`--machine-pv-detach-timeout`,
    /// `--machine-pv-reattach-timeout`).
    pub volumes: VolumeTimeouts,
    /// Conditions that must be False on a healthy Node (`--node-conditions`).
    pub node_conditions: Vec<String>,
    /// Longest pause after a stock-out or exhausted quota (`--resource-exhausted-retry`); zero means 10 min.
    pub resource_exhausted_retry: GoDuration,
    /// Value of `auth-extra-groups` (`--bootstrap-token-auth-extra-groups`).
    pub bootstrap_token_groups: String,
    /// How many Machines may be out of service before no further unhealthy Machine is marked Failed
    /// (`--machine-safety-max-unhealthy-replacements`, `--machine-safety-max-unhealthy-replacements-per-zone`).
    pub unhealthy_replacements: meltdown::MeltdownLimits,
    /// How often the VM of a Machine without a target cluster is checked (`--vm-check-period`).
    pub vm_check_period: GoDuration,
}

impl Default for MachinePolicy {
    fn default() -> Self {
        let conditions = ["KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable"];
        Self {
            creation_timeout: GoDuration::from_secs(20 * 60),
            health_timeout: GoDuration::from_secs(10 * 60),
            drain_timeout: GoDuration::from_secs(2 * 60 * 60),
            in_place_update_timeout: GoDuration::from_secs(20 * 60),
            preserve_timeout: GoDuration::from_secs(96 * 60 * 60),
            max_evict_retries: 360,
            volumes: VolumeTimeouts { detach: SignedDuration::from_mins(2), reattach: SignedDuration::from_secs(90) },
            node_conditions: conditions.map(str::to_owned).to_vec(),
            resource_exhausted_retry: GoDuration::from_secs(10 * 60),
            bootstrap_token_groups: String::new(),
            unhealthy_replacements: meltdown::MeltdownLimits::default(),
            vm_check_period: GoDuration::from_secs(5 * 60),
        }
    }
}

impl MachinePolicy {
    /// The creation timeout of a Machine: its annotation, its specification, the policy.
    pub fn creation_timeout_of(&self, machine: &Machine) -> GoDuration {
        machine
            .metadata
            .annotations
            .as_ref()
            .and_then(|map| map.get(labels::EFFECTIVE_CREATION_TIMEOUT))
            .and_then(|text| text.parse().ok())
            .and_then(GoDuration::positive)
            .or_else(|| machine.spec.configuration.creation_timeout?.positive())
            .unwrap_or(self.creation_timeout)
    }

    /// When a Machine that has not joined is marked Failed. Counts from its creation and is never reset.
    pub fn creation_deadline_of(&self, machine: &Machine) -> Timestamp {
        after(created_at(machine), self.creation_timeout_of(machine).as_signed())
    }

    /// How long a Machine may be Unknown; `None` without a limit.
    pub fn health_timeout_of(&self, machine: &Machine) -> Option<GoDuration> {
        let own = &machine.spec.configuration;
        (own.disable_health_timeout != Some(true))
            .then(|| not_negative(own.health_timeout).unwrap_or(self.health_timeout))
    }

    /// Conditions that must be False on the Node of a Machine.
    pub fn node_conditions_of(&self, machine: &Machine) -> Vec<String> {
        match &machine.spec.configuration.node_conditions {
            Some(list) => list.split(',').map(str::to_owned).collect(),
            None => self.node_conditions.clone(),
        }
    }

    /// How long a drain may take before it is forced.
    pub fn drain_timeout_of(&self, machine: &Machine) -> GoDuration {
        not_negative(machine.spec.configuration.drain_timeout).unwrap_or(self.drain_timeout)
    }

    /// How long an in-place update may take before it counts as failed.
    pub fn in_place_update_timeout_of(&self, machine: &Machine) -> GoDuration {
        not_negative(machine.spec.configuration.in_place_update_timeout).unwrap_or(self.in_place_update_timeout)
    }

    /// How long the Machine is preserved.
    pub fn preserve_timeout_of(&self, machine: &Machine) -> GoDuration {
        not_negative(machine.spec.configuration.machine_preserve_timeout).unwrap_or(self.preserve_timeout)
    }

    /// How often the VM of a Machine without a target cluster is checked; at least a second.
    pub fn vm_check_period(&self) -> SignedDuration {
        self.vm_check_period.as_signed().max(SignedDuration::from_secs(1))
    }

    /// How often a pod is evicted, 20 s apart, before it is deleted.
    pub fn max_evict_retries_of(&self, machine: &Machine) -> i32 {
        machine.spec.configuration.max_evict_retries.unwrap_or(self.max_evict_retries)
    }
}

/// A negative duration counts as absent.
fn not_negative(duration: Option<GoDuration>) -> Option<GoDuration> {
    duration.and_then(GoDuration::not_negative)
}

/// When a Machine was created; the earliest time if that is unknown.
pub(super) fn created_at(machine: &Machine) -> Timestamp {
    machine.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0)
}

/// `time + duration`, at most the end of time.
pub(super) fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn machine(metadata: Value, spec: Value) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": metadata, "spec": spec,
        }))
        .unwrap()
    }

    #[rstest]
    #[case::flag(json!({}), json!({}), "20m0s")]
    #[case::own(json!({}), json!({ "creationTimeout": "5m" }), "5m0s")]
    #[case::annotation_wins(json!({ "annotations": { "node.machine.sapcloud.io/effective-creation-timeout": "7m" } }), json!({ "creationTimeout": "5m" }), "7m0s")]
    #[case::annotation_not_understood(json!({ "annotations": { "node.machine.sapcloud.io/effective-creation-timeout": "soon" } }), json!({ "creationTimeout": "5m" }), "5m0s")]
    #[case::negative(json!({}), json!({ "creationTimeout": "-1h" }), "20m0s")]
    #[case::zero(json!({}), json!({ "creationTimeout": "0s" }), "20m0s")]
    #[case::negative_annotation(json!({ "annotations": { "node.machine.sapcloud.io/effective-creation-timeout": "-7m" } }), json!({ "creationTimeout": "5m" }), "5m0s")]
    fn creation_timeout_falls_back(#[case] metadata: Value, #[case] spec: Value, #[case] expected: &str) {
        assert_eq!(MachinePolicy::default().creation_timeout_of(&machine(metadata, spec)).to_string(), expected);
    }

    #[test]
    fn a_machine_overrides_the_policy() {
        let policy = MachinePolicy::default();
        let own = machine(
            json!({}),
            json!({
                "healthTimeout": "1m", "drainTimeout": "2m", "inPlaceUpdateTimeout": "3m", "maxEvictRetries": 3,
                "nodeConditions": "A, B",
            }),
        );
        assert_eq!(policy.health_timeout_of(&own), Some(GoDuration::from_secs(60)));
        assert_eq!(policy.drain_timeout_of(&own), GoDuration::from_secs(120));
        assert_eq!(policy.in_place_update_timeout_of(&own), GoDuration::from_secs(180));
        assert_eq!(policy.max_evict_retries_of(&own), 3);
        assert_eq!(policy.node_conditions_of(&own), ["A", " B"], "split on commas exactly, replacing the default");
        let negative = machine(
            json!({}),
            json!({
                "healthTimeout": "-1m", "drainTimeout": "-2m", "inPlaceUpdateTimeout": "-3m",
                "machinePreserveTimeout": "-4m",
            }),
        );
        assert_eq!(policy.health_timeout_of(&negative), Some(policy.health_timeout));
        assert_eq!(policy.drain_timeout_of(&negative), policy.drain_timeout);
        assert_eq!(policy.in_place_update_timeout_of(&negative), policy.in_place_update_timeout);
        assert_eq!(policy.preserve_timeout_of(&negative), policy.preserve_timeout);
        let at_once = machine(json!({}), json!({ "drainTimeout": "0s", "healthTimeout": "0" }));
        assert_eq!(policy.drain_timeout_of(&at_once), GoDuration::default());
        assert_eq!(policy.health_timeout_of(&at_once), Some(GoDuration::default()));
        let patient = machine(json!({}), json!({ "disableHealthTimeout": true }));
        assert_eq!(policy.health_timeout_of(&patient), None);
    }
}
