//! At most so many Machines of one MachineDeployment are given up for bad health at the same time.
//!
//! If a whole zone or the API server's view of it fails, every Machine looks unhealthy at once. Replacing them all would
//! turn a disturbance into an outage, so the next one has to wait until the last replacement runs.
//! Timeouts of creation are not guarded: such a Machine never served.

use crate::api::{
    labels,
    machine::{Machine, MachinePhase},
};

/// How many Machines may be out of service before a further one is given up; the reference's fixed number.
pub const DEFAULT_LIMIT: u32 = 1;

/// How many names a census keeps for its explanation.
const NAMES: usize = 3;

/// What the guard knows of the Machines that carry the same [`labels::DEPLOYMENT_NAME`], the Machine itself included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    weight: u32,
    blockers: Vec<String>,
}

/// Who may decide for a MachineDeployment. One Machine at a time holds the permit of its key while it counts and writes;
/// the shell keeps the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Permit {
    /// Nobody asked for it in this pass.
    #[default]
    NotAsked,
    /// This Machine holds it, and the census was taken after it got it.
    Held(Census),
    /// Another Machine holds it.
    Refused {
        /// Name of that Machine.
        by: String,
    },
}

/// The key under which a Machine is guarded; without one there is no guard.
pub fn key_of(machine: &Machine) -> Option<&str> {
    machine.metadata.labels.as_ref()?.get(labels::DEPLOYMENT_NAME).map(String::as_str)
}

impl Census {
    /// Counts the Machines of one key.
    pub fn of<'a>(machines: impl IntoIterator<Item = &'a Machine>) -> Self {
        let mut census = Self::default();
        for machine in machines {
            census.add(machine);
        }
        census.blockers.sort();
        census.blockers.truncate(NAMES);
        census
    }

    fn add(&mut self, machine: &Machine) {
        let weight = weight_of(machine);
        self.weight = self.weight.saturating_add(weight);
        if weight > 0 {
            let name = machine.metadata.name.as_deref().unwrap_or_default();
            let phase = match machine.phase() {
                MachinePhase::New => "not created yet",
                phase => phase.as_str(),
            };
            self.blockers.push(format!("{name} ({phase})"));
        }
    }

    /// Why no further Machine may be given up; `None` if one may.
    pub fn blocked_by(&self, limit: u32) -> Option<String> {
        (self.weight >= limit).then(|| {
            let more = if self.blockers.len() == NAMES { ", …" } else { "" };
            format!("{}{more}", self.blockers.join(", "))
        })
    }
}

/// Running and Unknown Machines are in service, and so is a preserved one; one that terminates counts twice, because
/// its replacement is still to come.
fn weight_of(machine: &Machine) -> u32 {
    let preserved = machine.status.as_ref().is_some_and(|status| status.current_status.preserve_expiry_time.is_some());
    let phase = machine.phase();
    let out_of_service = !matches!(phase, MachinePhase::Running | MachinePhase::Unknown) && !preserved;
    u32::from(out_of_service) + u32::from(phase == MachinePhase::Terminating)
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
            "metadata": { "name": name, "labels": { "name": "pool" } },
            "spec": {}, "status": { "currentStatus": { "phase": phase, "preserveExpiryTime": expiry } },
        }))
        .unwrap()
    }

    #[rstest]
    #[case::all_in_service(&[("Running", false), ("Unknown", false)], 0)]
    #[case::being_created(&[("Running", false), ("", false)], 1)]
    #[case::joining(&[("Pending", false)], 1)]
    #[case::given_up_already(&[("Failed", false)], 1)]
    #[case::preserved_ones_are_not_replaced(&[("Failed", true)], 0)]
    #[case::terminating_counts_twice(&[("Terminating", false)], 2)]
    #[case::terminating_and_preserved_counts_once(&[("Terminating", true)], 1)]
    #[case::other_phases_block(&[("CrashLoopBackOff", false), ("InPlaceUpdating", false), ("Available", false)], 3)]
    fn counts_what_is_out_of_service(#[case] phases: &[(&str, bool)], #[case] weight: u32) {
        let machines: Vec<Machine> = phases.iter().map(|(phase, preserved)| machine("m", phase, *preserved)).collect();
        assert_eq!(Census::of(&machines).weight, weight);
    }

    #[test]
    fn one_machine_may_be_given_up_only_while_none_is_out_of_service() {
        let healthy = [machine("a", "Running", false), machine("b", "Unknown", false)];
        assert_eq!(Census::of(&healthy).blocked_by(DEFAULT_LIMIT), None);
        let joining = [machine("a", "Unknown", false), machine("b", "Pending", false)];
        assert_eq!(Census::of(&joining).blocked_by(DEFAULT_LIMIT).as_deref(), Some("b (Pending)"));
        assert_eq!(Census::of(&joining).blocked_by(2), None);
    }

    #[test]
    fn the_explanation_names_a_few_machines_in_order() {
        let machines: Vec<Machine> = ["e", "d", "c", "b"].iter().map(|name| machine(name, "", false)).collect();
        let text = Census::of(&machines).blocked_by(1).unwrap();
        assert_eq!(text, "b (not created yet), c (not created yet), d (not created yet), …");
    }
}
