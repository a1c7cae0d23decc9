//! The status of an MCMMachinePool, from the verdicts and the native objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use super::{Action, Snapshot, parts::PoolConditionVerdicts};
use crate::{
    object::{
        conditions::{self, ConditionVerdict},
        gate::{GateInput, GatedSnapshot, with_conditions},
    },
    provider::class,
};
use mcm_api::reasons::{DeletableReason, ProviderCondition, ProviderReason as Reason};
use mcm_conversion::types::{MCMMachinePoolStatus, names};

impl GatedSnapshot for Snapshot {
    type Status = MCMMachinePoolStatus;
    type Action = Action;

    fn facts(&self) -> GateInput<'_> {
        GateInput {
            meta: &self.object.metadata,
            watch_filter: self.watch_filter.as_deref(),
            owner_kind: "MachinePool",
            owner: self.owner.ownership(),
            cluster: &self.cluster,
            are_natives_read: self.is_resumed,
            // A deployment that is only shown may belong to a native manager.
            obstacle: self.obstacle.as_ref().filter(|_| self.shown().is_empty()),
            finalizer: (names::POOL_FINALIZER, "an object that may have VMs carries the finalizer"),
            now: self.now,
        }
    }

    fn stored(&self) -> MCMMachinePoolStatus {
        self.object.status.clone().unwrap_or_default()
    }

    fn conditions(status: &mut MCMMachinePoolStatus) -> &mut Vec<Condition> {
        &mut status.conditions
    }

    fn complete(&self, status: &mut MCMMachinePoolStatus) {
        set_deletable(self, status);
    }

    fn patch_self(patch: Value) -> Action {
        Action::PatchSelf(patch)
    }

    fn write_status(status: MCMMachinePoolStatus) -> Action {
        Action::WriteStatus(Box::new(status))
    }
}

/// The status of an object that is not being deleted.
pub(super) fn current(snapshot: &Snapshot, parts: &PoolConditionVerdicts) -> MCMMachinePoolStatus {
    let mut next = shown(snapshot);
    // Once usable, a pool stays usable: otherwise core would stop following it in the middle of a rollout.
    if parts.native.is_true() {
        next.ready = true;
        next.initialization.provisioned = Some(true);
    }
    let all = [
        (ProviderCondition::Ready, parts.summary()),
        (ProviderCondition::ClassResolved, parts.class.clone()),
        (ProviderCondition::BootstrapDataAvailable, parts.bootstrap.clone()),
        (ProviderCondition::WorkloadClusterConnected, parts.workload.clone()),
        (ProviderCondition::DeploymentSynced, parts.native.clone()),
        (ProviderCondition::MachinesAvailable, parts.machines.clone()),
    ];
    with_conditions(snapshot, next, all)
}

/// The status of an object that is being deleted.
pub(super) fn deleting(snapshot: &Snapshot) -> MCMMachinePoolStatus {
    let text = match snapshot.machines.len() {
        0 => "the MCM MachineDeployments are being deleted".to_owned(),
        count => format!("{count} machines are being deleted"),
    };
    with_conditions(
        snapshot,
        shown(snapshot),
        [(ProviderCondition::Ready, ConditionVerdict::no(Reason::Deleting, text))],
    )
}

fn set_deletable(snapshot: &Snapshot, next: &mut MCMMachinePoolStatus) {
    let is_in_use = snapshot.owner.known().is_some() && !snapshot.is_abandoned();
    let desired = match is_in_use {
        true => ConditionVerdict::no(
            DeletableReason::PoolInUse,
            "delete the MachinePool, whose deletion deletes this object",
        ),
        false => ConditionVerdict::yes(DeletableReason::PoolDeleting),
    };
    let generation = snapshot.object.metadata.generation;
    conditions::set(&mut next.conditions, ProviderCondition::Deletable, desired, generation, snapshot.now);
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
