//! Which Machines belong to the set.

use std::sync::Arc;

use super::{Snapshot, edit::Edits};
use crate::{
    api::machine::Machine,
    controllers::{owner, selector::Selector},
};

/// The Machines of a living set, those adopted right now included, by name; and the patches that adopt and release.
pub(super) fn settle<'a>(snapshot: &'a Snapshot, selector: &Selector) -> (Vec<&'a Arc<Machine>>, Edits) {
    let mut edits = Edits::default();
    let mut mine = Vec::new();
    let reference = owner::reference_to(snapshot.set.as_ref());
    for machine in by_name(&snapshot.machines) {
        let meta = &machine.metadata;
        let matches = selector.matches(meta.labels.as_ref());
        if is_controlled(snapshot, machine) {
            if matches {
                mine.push(machine);
            } else if let Some(patch) = owner::release(meta, uid(snapshot)) {
                edits.add(machine, patch, "its labels no longer match the selector of the set: release it");
            }
        } else if matches
            && meta.deletion_timestamp.is_none()
            && let Some(patch) = reference.as_ref().and_then(|reference| owner::adopt(meta, reference))
        {
            edits.add(machine, patch, "it matches the selector of the set and nobody controls it: adopt it");
            mine.push(machine);
        }
    }
    (mine, edits)
}

/// The Machines that the set controls and selects, by name.
pub(super) fn selected<'a>(snapshot: &'a Snapshot, selector: &Selector) -> Vec<&'a Arc<Machine>> {
    let mut machines = controlled(snapshot);
    machines.retain(|machine| selector.matches(machine.metadata.labels.as_ref()));
    machines
}

/// The Machines that the set controls, by name; for a set whose selector cannot be relied on.
pub(super) fn controlled(snapshot: &Snapshot) -> Vec<&Arc<Machine>> {
    by_name(&snapshot.machines).filter(|machine| is_controlled(snapshot, machine)).collect()
}

fn is_controlled(snapshot: &Snapshot, machine: &Machine) -> bool {
    owner::is_controlled_by(&machine.metadata, uid(snapshot))
}

fn uid(snapshot: &Snapshot) -> &str {
    snapshot.set.metadata.uid.as_deref().unwrap_or_default()
}

fn by_name(machines: &[Arc<Machine>]) -> impl Iterator<Item = &Arc<Machine>> {
    let mut machines: Vec<&Arc<Machine>> = machines.iter().collect();
    machines.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    machines.into_iter()
}
