//! The status of an MCMMachine, from the verdicts and the native Machine.

use super::{
    Snapshot,
    parts::{Parts, reference, vm_zone},
};
use crate::{
    api::machine::OperationState,
    capi::{
        conversion,
        provider::{
            class::Class,
            conditions::{self, Desired},
            reasons,
        },
        types::MCMMachineStatus,
    },
};

/// The status during a hold: only the condition `Paused` changes.
pub(super) fn paused(snapshot: &Snapshot, on: &str) -> MCMMachineStatus {
    let mut next = snapshot.stored();
    conditions::set_paused(&mut next.conditions, Some(on), snapshot.object.metadata.generation, snapshot.now);
    next
}

/// The status of an object that is not being deleted.
pub(super) fn current(snapshot: &Snapshot, class: &Class, parts: &Parts) -> MCMMachineStatus {
    let mut next = shown(snapshot, class);
    if parts.vm.is_true {
        next.initialization.provisioned = Some(true);
    }
    let all = [
        (reasons::READY, parts.summary()),
        (reasons::CLASS_RESOLVED, parts.class.clone()),
        (reasons::BOOTSTRAP_DATA_AVAILABLE, parts.bootstrap.clone()),
        (reasons::NATIVE_MACHINE_SYNCED, parts.native.clone()),
        (reasons::VM_PROVISIONED, parts.vm.clone()),
    ];
    finish(snapshot, next, all)
}

/// The status of an object that is being deleted.
pub(super) fn deleting(snapshot: &Snapshot, class: &Class, text: &str) -> MCMMachineStatus {
    let operation = snapshot.own_native().and_then(|machine| Some(machine.status.as_ref()?.last_operation.clone()));
    let failed = operation.filter(|operation| operation.state == Some(OperationState::Failed));
    let text = failed.map_or_else(|| text.to_owned(), |operation| operation.description);
    finish(snapshot, shown(snapshot, class), [(reasons::READY, Desired::no(reasons::DELETING, text))])
}

/// The status beside a native manager, which has to be removed first.
pub(super) fn beside_another(snapshot: &Snapshot, on: &str) -> MCMMachineStatus {
    let text = format!("Waiting for {on}");
    finish(snapshot, snapshot.stored(), [(reasons::READY, Desired::no(reasons::NATIVE_MANAGER, text))])
}

/// The status of an object whose Machine is deleted.
pub(super) fn deserted(snapshot: &Snapshot) -> MCMMachineStatus {
    let mut next = snapshot.stored();
    set_deletable(snapshot, &mut next);
    next
}

fn set_deletable(snapshot: &Snapshot, next: &mut MCMMachineStatus) {
    let machine = snapshot.owner.known();
    let is_in_use = machine.is_some_and(|machine| machine.metadata.deletion_timestamp.is_none());
    let desired = match is_in_use {
        true => Desired::no(reasons::MACHINE_IN_USE, "delete the Machine, so that its Node is drained first"),
        false => Desired::yes(reasons::MACHINE_DELETING),
    };
    let generation = snapshot.object.metadata.generation;
    conditions::set(&mut next.conditions, reasons::DELETABLE, desired, generation, snapshot.now);
}

/// The state of the native Machine and its class.
fn shown(snapshot: &Snapshot, class: &Class) -> MCMMachineStatus {
    let mut next = snapshot.stored();
    let Some(machine) = snapshot.own_native() else { return next };
    next.machine_ref = Some(reference(machine));
    machine.phase().as_str().clone_into(&mut next.phase);
    if let Some(status) = machine.status.as_ref().filter(|status| !status.addresses.is_empty()) {
        next.addresses.clone_from(&status.addresses);
    }
    if let Some(zone) = vm_zone(machine, class) {
        next.failure_domain = zone;
    }
    if let Class::Usable { content, .. } = class {
        next.interruptible = conversion::is_interruptible(&content.provider_spec);
    }
    next
}

fn finish(
    snapshot: &Snapshot,
    mut next: MCMMachineStatus,
    all: impl IntoIterator<Item = (&'static str, Desired)>,
) -> MCMMachineStatus {
    let generation = snapshot.object.metadata.generation;
    for (type_, desired) in all {
        conditions::set(&mut next.conditions, type_, desired, generation, snapshot.now);
    }
    conditions::set_paused(&mut next.conditions, None, generation, snapshot.now);
    set_deletable(snapshot, &mut next);
    next
}
