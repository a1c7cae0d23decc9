//! The status of an MCMMachine, from the verdicts and the native Machine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use super::{
    Action, Snapshot,
    membership::LoadBalancerMembership,
    parts::{MachineConditionVerdicts, reference, vm_zone},
};
use crate::{
    object::{
        conditions::{self, ConditionVerdict},
        gate::{GateInput, GatedSnapshot, with_conditions},
    },
    provider::class::ClassResolution,
};
use mcm_api::{
    machine::OperationState,
    reasons::{DeletableReason, ProviderCondition, ProviderReason as Reason},
};
use {
    mcm_conversion as conversion,
    mcm_conversion::types::{MCMMachineStatus, names},
};

impl GatedSnapshot for Snapshot {
    type Status = MCMMachineStatus;
    type Action = Action;

    fn facts(&self) -> GateInput<'_> {
        GateInput {
            meta: &self.object.metadata,
            watch_filter: self.watch_filter.as_deref(),
            owner_kind: "Machine",
            owner: self.owner.ownership(),
            cluster: &self.cluster,
            are_natives_read: true,
            obstacle: self.obstacle.as_ref(),
            finalizer: (names::MACHINE_FINALIZER, "an object that may have a VM carries the finalizer"),
            now: self.now,
        }
    }

    fn stored(&self) -> MCMMachineStatus {
        self.object.status.clone().unwrap_or_default()
    }

    fn conditions(status: &mut MCMMachineStatus) -> &mut Vec<Condition> {
        &mut status.conditions
    }

    fn complete(&self, status: &mut MCMMachineStatus) {
        set_deletable(self, status);
    }

    fn patch_self(patch: Value) -> Action {
        Action::PatchSelf(patch)
    }

    fn write_status(status: MCMMachineStatus) -> Action {
        Action::WriteStatus(Box::new(status))
    }
}

/// The status of an object that is not being deleted.
pub(super) fn current(
    snapshot: &Snapshot,
    class: &ClassResolution,
    parts: &MachineConditionVerdicts,
) -> MCMMachineStatus {
    let mut next = shown(snapshot, class);
    next.load_balancers.clone_from(&parts.membership.recorded);
    if parts.is_provisioned() {
        next.initialization.provisioned = Some(true);
    }
    let all = [
        (ProviderCondition::Ready, parts.summary()),
        (ProviderCondition::ClassResolved, parts.class.clone()),
        (ProviderCondition::BootstrapDataAvailable, parts.bootstrap.clone()),
        (ProviderCondition::MachineSynced, parts.native.clone()),
        (ProviderCondition::VmProvisioned, parts.vm.clone()),
    ];
    with_conditions(snapshot, next, all.into_iter().chain(of_membership(&parts.membership)))
}

/// The status of an object that is being deleted.
pub(super) fn deleting(
    snapshot: &Snapshot,
    class: &ClassResolution,
    text: &str,
    membership: &LoadBalancerMembership,
) -> MCMMachineStatus {
    let operation = snapshot.own_native().and_then(|machine| Some(machine.status.as_ref()?.last_operation.clone()));
    let failed = operation.filter(|operation| operation.state == Some(OperationState::Failed));
    let text = failed.map_or_else(|| text.to_owned(), |operation| operation.description);
    let mut next = shown(snapshot, class);
    next.load_balancers.clone_from(&membership.recorded);
    let ready = [(ProviderCondition::Ready, ConditionVerdict::no(Reason::Deleting, text))];
    with_conditions(snapshot, next, ready.into_iter().chain(of_membership(membership)))
}

fn of_membership(membership: &LoadBalancerMembership) -> Option<(ProviderCondition, ConditionVerdict)> {
    membership.verdict.clone().map(|verdict| (ProviderCondition::LoadBalancerRegistered, verdict))
}

fn set_deletable(snapshot: &Snapshot, next: &mut MCMMachineStatus) {
    let machine = snapshot.owner.known();
    let is_in_use = machine.is_some_and(|machine| machine.metadata.deletion_timestamp.is_none());
    let desired = match is_in_use {
        true => {
            ConditionVerdict::no(DeletableReason::MachineInUse, "delete the Machine, so that its Node is drained first")
        }
        false => ConditionVerdict::yes(DeletableReason::MachineDeleting),
    };
    let generation = snapshot.object.metadata.generation;
    conditions::set(&mut next.conditions, ProviderCondition::Deletable, desired, generation, snapshot.now);
}

/// The state of the native Machine and its class.
fn shown(snapshot: &Snapshot, class: &ClassResolution) -> MCMMachineStatus {
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
    if let ClassResolution::Usable { content, .. } = class {
        next.interruptible = conversion::is_interruptible(&content.provider_spec);
    }
    next
}
