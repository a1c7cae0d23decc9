//! Adoption and release: which Machines belong to the set.

use std::sync::Arc;

use super::{Snapshot, construct};
use crate::object::{draft::DraftsByName, owner};
use mcm_api::{
    machine::{Machine, MachineSet},
    selector::Selector,
};

/// The Machines of a set that is not being deleted, by name. Drafts adoptions and releases; adopted Machines count
/// immediately.
pub(super) fn claim<'a>(
    snapshot: &'a Snapshot,
    selector: &Selector,
    drafts: &mut DraftsByName<Machine>,
) -> Vec<&'a Arc<Machine>> {
    let mut mine = Vec::new();
    let reference = owner::reference_to(snapshot.set.as_ref());
    for machine in by_name(&snapshot.machines) {
        let meta = &machine.metadata;
        let matches = selector.matches(meta.labels.as_ref());
        if is_controlled(snapshot, machine) {
            if matches {
                mine.push(machine);
            } else if snapshot.strays.has(machine) {
                // It is deleted, and not released.
            } else if let Some(owners) = owner::released(meta, uid(snapshot)) {
                drafts.edit(machine, "release it: its labels no longer match the selector of the set", |machine| {
                    machine.metadata.owner_references = Some(owners);
                });
            }
        } else if matches
            && meta.deletion_timestamp.is_none()
            && is_heir(snapshot, machine)
            && let Some(owners) = reference.as_ref().and_then(|reference| owner::adopted(meta, reference))
        {
            drafts.edit(machine, "adopt it: it matches the selector of the set and has no controller", |machine| {
                machine.metadata.owner_references = Some(owners);
            });
            mine.push(machine);
        }
    }
    mine
}

/// True if a set selects a Machine. A set without a valid selector selects none.
pub(super) fn selects(set: &MachineSet, machine: &Machine) -> bool {
    Selector::parse(set.spec.selector.as_ref())
        .is_ok_and(|selector| !selector.selects_all() && selector.matches(machine.metadata.labels.as_ref()))
}

/// True if the set adopts a Machine without a controller that it selects: no other set does, or the Machine has its name.
/// A set that has enough Machines deletes one that it adopts.
fn is_heir(snapshot: &Snapshot, machine: &Machine) -> bool {
    let mut rivals = snapshot.rivals.iter().filter(|rival| selects(rival, machine));
    rivals.next().is_none() || construct::is_named_after(machine, &snapshot.set)
}

/// The Machines that the set controls and selects, by name.
pub(super) fn selected<'a>(snapshot: &'a Snapshot, selector: &Selector) -> Vec<&'a Arc<Machine>> {
    let mut machines = controlled(snapshot);
    machines.retain(|machine| selector.matches(machine.metadata.labels.as_ref()));
    machines
}

/// The Machines that the set controls, by name. For a set whose selector may be invalid.
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
