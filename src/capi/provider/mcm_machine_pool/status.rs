//! The status of an MCMMachinePool, from the verdicts and the native objects.

use super::{Snapshot, parts::Parts};
use crate::capi::{
    provider::{
        class,
        conditions::{self, Desired},
        reasons,
    },
    types::MCMMachinePoolStatus,
};

/// The status during a hold: only the condition `Paused` changes.
pub(super) fn paused(snapshot: &Snapshot, on: &str) -> MCMMachinePoolStatus {
    let mut next = snapshot.stored();
    conditions::set_paused(&mut next.conditions, Some(on), snapshot.object.metadata.generation, snapshot.now);
    next
}

/// The status of an object that is not being deleted.
pub(super) fn current(snapshot: &Snapshot, parts: &Parts) -> MCMMachinePoolStatus {
    let mut next = shown(snapshot);
    // Once usable, a pool stays usable: otherwise core would stop following it in the middle of a rollout.
    if parts.native.is_true {
        next.ready = true;
        next.initialization.provisioned = Some(true);
    }
    let all = [
        (reasons::READY, parts.summary()),
        (reasons::CLASS_RESOLVED, parts.class.clone()),
        (reasons::BOOTSTRAP_DATA_AVAILABLE, parts.bootstrap.clone()),
        (reasons::WORKLOAD_CLUSTER_CONNECTED, parts.workload.clone()),
        (reasons::NATIVE_DEPLOYMENT_SYNCED, parts.native.clone()),
        (reasons::MACHINES_AVAILABLE, parts.machines.clone()),
    ];
    finish(snapshot, next, all)
}

/// The status of an object that is being deleted.
pub(super) fn deleting(snapshot: &Snapshot) -> MCMMachinePoolStatus {
    let text = match snapshot.machines.len() {
        0 => "the MCM MachineDeployments are being deleted".to_owned(),
        count => format!("{count} machines are being deleted"),
    };
    finish(snapshot, shown(snapshot), [(reasons::READY, Desired::no(reasons::DELETING, text))])
}

/// The status beside a native manager, which has to be removed first.
pub(super) fn beside_another(snapshot: &Snapshot, on: &str) -> MCMMachinePoolStatus {
    let text = format!("Waiting for {on}");
    finish(snapshot, snapshot.stored(), [(reasons::READY, Desired::no(reasons::NATIVE_MANAGER, text))])
}

/// The status of an object whose MachinePool is deleted.
pub(super) fn deserted(snapshot: &Snapshot) -> MCMMachinePoolStatus {
    let mut next = snapshot.stored();
    set_deletable(snapshot, &mut next);
    next
}

fn set_deletable(snapshot: &Snapshot, next: &mut MCMMachinePoolStatus) {
    let is_in_use = snapshot.owner.known().is_some() && !snapshot.is_abandoned();
    let desired = match is_in_use {
        true => Desired::no(reasons::POOL_IN_USE, "delete the MachinePool, whose deletion deletes this object"),
        false => Desired::yes(reasons::POOL_DELETING),
    };
    let generation = snapshot.object.metadata.generation;
    conditions::set(&mut next.conditions, reasons::DELETABLE, desired, generation, snapshot.now);
}

/// The state of the native Machines.
fn shown(snapshot: &Snapshot) -> MCMMachinePoolStatus {
    let mut next = snapshot.stored();
    let lasting = snapshot.machines.values().filter(|machine| !machine.is_terminating()).count();
    next.replicas = i32::try_from(lasting.saturating_add(snapshot.unreadable_machines.len())).ok();
    next.instances = snapshot.instances();
    if let Some(template) = snapshot.node_template() {
        (next.capacity, next.node_info) = class::resources_of(template);
    }
    next.infrastructure_machine_kind = if snapshot.has_members() { "MCMMachine".to_owned() } else { String::new() };
    next
}

fn finish(
    snapshot: &Snapshot,
    mut next: MCMMachinePoolStatus,
    all: impl IntoIterator<Item = (&'static str, Desired)>,
) -> MCMMachinePoolStatus {
    let generation = snapshot.object.metadata.generation;
    for (type_, desired) in all {
        conditions::set(&mut next.conditions, type_, desired, generation, snapshot.now);
    }
    conditions::set_paused(&mut next.conditions, None, generation, snapshot.now);
    set_deletable(snapshot, &mut next);
    next
}
