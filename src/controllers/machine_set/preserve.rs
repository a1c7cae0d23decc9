//! Preservation: which failed Machines are kept for inspection instead of being replaced.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kube::ResourceExt;

use super::Snapshot;
use crate::object::draft::DraftsByName;
use mcm_api::{
    labels::PRESERVE,
    machine::{AUTO_PRESERVED, Machine, MachinePhase, PreserveMode},
};

/// The modes that a plan changes, by name of the Machine.
#[derive(Clone, Debug, Default)]
pub(super) struct PreserveModeChanges(pub BTreeMap<String, Option<PreserveMode>>);

impl PreserveModeChanges {
    /// A failed Machine is kept for now.
    pub(super) fn keeps(&self, machine: &Machine, now: Timestamp) -> bool {
        match machine.preserve_expiry() {
            Some(expiry) => expiry > now,
            None => {
                let mode = self.mode_of(machine);
                matches!(mode, Some(PreserveMode::Now | PreserveMode::WhenFailed | PreserveMode::Auto))
            }
        }
    }

    fn mode_of(&self, machine: &Machine) -> Option<PreserveMode> {
        self.0.get(&machine.name_any()).copied().unwrap_or_else(|| mode_of(machine))
    }
}

/// Preserves at most `autoPreserveFailedMachineMax` failed Machines, the youngest first; undecodable ones count. If
/// that number is lowered, the oldest lose their preservation first.
pub(super) fn assign(
    snapshot: &Snapshot,
    machines: &[&Arc<Machine>],
    drafts: &mut DraftsByName<Machine>,
) -> PreserveModeChanges {
    let set = &snapshot.set;
    let active = machines.iter().copied().filter(|machine| !machine.is_terminating());
    let (mut kept, rest): (Vec<_>, Vec<_>) = active.partition(|machine| machine.is_auto_preserved());
    let allowed = usize::try_from(set.spec.auto_preserve_failed_machine_max).unwrap_or_default();
    let mut assignment = PreserveModeChanges::default();

    kept.sort_by_key(|machine| (machine.creation_timestamp(), machine.name_any()));
    let surplus = kept.len().saturating_sub(allowed);
    for machine in kept.iter().take(surplus) {
        let reason = format!("{} preserved automatically > {allowed} autoPreserveFailedMachineMax", kept.len());
        drafts.edit(machine, reason, |machine| {
            machine.annotations_mut().remove(PRESERVE);
        });
        assignment.0.insert(machine.name_any(), None);
    }

    let mut eligible: Vec<_> = rest.into_iter().filter(|machine| may_be_auto_preserved(machine)).collect();
    eligible.sort_by_key(|machine| (std::cmp::Reverse(machine.creation_timestamp()), machine.name_any()));
    let preserved = kept.len().saturating_add(snapshot.unreadable_preserved);
    for machine in eligible.into_iter().take(allowed.saturating_sub(preserved)) {
        let reason = format!("it failed: {preserved} preserved automatically < {allowed} autoPreserveFailedMachineMax");
        drafts.edit(machine, reason, |machine| {
            machine.annotations_mut().insert(PRESERVE.to_owned(), AUTO_PRESERVED.to_owned());
        });
        assignment.0.insert(machine.name_any(), Some(PreserveMode::Auto));
    }
    assignment
}

/// The Node's annotation takes precedence. The machine controller copies it to the Machine before it can fail, and
/// removes the copy when the Node is deleted, so this needs no Node.
fn mode_of(machine: &Machine) -> Option<PreserveMode> {
    machine.copied_preserve_mode().or_else(|| machine.preserve_mode())
}

fn may_be_auto_preserved(machine: &Machine) -> bool {
    machine.phase() == MachinePhase::Failed && mode_of(machine).is_none()
}
