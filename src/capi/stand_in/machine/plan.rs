use std::sync::Arc;

use super::{Action, Snapshot, shown};
use crate::{
    object::{
        conditions::{self, ConditionVerdict},
        view::ObjectView,
    },
    stand_in::mirror,
};
use mcm_api::{
    labels,
    machine::Machine as Native,
    reasons::{StandInCondition, StandInReason},
};
use mcm_controllers::object::finalizer;
use mcm_conversion::types::{Machine, names};
use mcm_rules::plan::{Plan, PlanInput, SentPatch, WaitKind};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self)
    }

    fn sent_patch<'a>(&'a self, action: &'a Action) -> Option<SentPatch<'a>> {
        match action {
            Action::Patch { mirror, patch } => Some(SentPatch::new(&**mirror, patch)),
            Action::PatchNative { native, patch } => Some(SentPatch::new(&**native, patch)),
            _ => None,
        }
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus { .. })
    }
}

/// Plans the next steps of a Machine.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    if let Some(on) = snapshot.standing.wait().or_else(|| snapshot.above.paused.clone()) {
        plan.wait(WaitKind::Hold, on, None);
        return plan;
    }
    match (&snapshot.mirror, &snapshot.native) {
        (ObjectView::Unknown, _) | (_, ObjectView::Unknown) => {
            plan.wait(WaitKind::Unreadable, "the machine to become readable on both sides", None);
        }
        (ObjectView::Missing, ObjectView::Missing) => {}
        (ObjectView::Present(mirror), _) if !mirror::is_mirror(&mirror.metadata) => refuse(&mut plan, snapshot, mirror),
        (ObjectView::Present(_), ObjectView::Missing) if !snapshot.session.is_gone => {
            plan.then(Action::ReadNative, "the cache may not have it yet");
        }
        (ObjectView::Present(mirror), ObjectView::Missing) => release(&mut plan, mirror, "its MCM Machine was deleted"),
        (ObjectView::Missing, ObjectView::Present(native)) => create(&mut plan, snapshot, native),
        (ObjectView::Present(mirror), ObjectView::Present(_)) if snapshot.above.deployment.is_none() => {
            release(&mut plan, mirror, "its deployment is no longer served, and the MCM Machine is kept");
        }
        (ObjectView::Present(mirror), ObjectView::Present(native)) => show(&mut plan, snapshot, mirror, native),
    }
    plan
}

/// The finalizer is removed first: without it, a deletion is not a request of a user.
fn release(plan: &mut Plan<Action>, mirror: &Arc<Machine>, reason: &str) {
    if let Some(patch) = finalizer::remove(&mirror.metadata, labels::STAND_IN_FINALIZER) {
        plan.then(Action::Patch { mirror: Arc::clone(mirror), patch }, reason);
    }
    if mirror.metadata.deletion_timestamp.is_none() {
        plan.then(Action::Delete(Arc::clone(mirror)), reason);
    }
}

fn create(plan: &mut Plan<Action>, snapshot: &Snapshot, native: &Arc<Native>) {
    let Some(deployment) = &snapshot.above.deployment else { return };
    if native.is_terminating() {
        return;
    }
    match &snapshot.set {
        Some(set) => {
            let made = shown::made(snapshot, native, set, deployment);
            plan.then(Action::Create(Box::new(made)), "it shows the MCM Machine");
        }
        None => {
            plan.wait(WaitKind::Owner, "its MachineSet", None);
        }
    }
}

fn show(plan: &mut Plan<Action>, snapshot: &Snapshot, mirror: &Arc<Machine>, native: &Arc<Native>) {
    let meta = &mirror.metadata;
    let is_asked_to_go = meta.deletion_timestamp.is_some() && finalizer::has(meta, labels::STAND_IN_FINALIZER);
    let is_to_be_replaced = mirror::has_annotation(meta, names::REMEDIATE_MACHINE);
    if (is_asked_to_go || is_to_be_replaced) && !native.is_terminating() {
        let action = match snapshot.session.is_confirmed {
            true => Action::DeleteNative(Arc::clone(native)),
            false => Action::Confirm,
        };
        plan.then(action, "its Machine was marked for deletion");
        return;
    }
    // Before any change that could make the native set choose a machine.
    if let Some(patch) = mirror::priority(mirror, native) {
        let action = Action::PatchNative { native: Arc::clone(native), patch };
        plan.then(action, "its Machine shows whether it is deleted first");
        return;
    }
    if meta.deletion_timestamp.is_none()
        && let Some((set, deployment)) = snapshot.set.as_ref().zip(snapshot.above.deployment.as_ref())
        && let Some(patch) = mirror::change(mirror.as_ref(), &shown::updated(snapshot, mirror, native, set, deployment))
    {
        plan.then(Action::Patch { mirror: Arc::clone(mirror), patch }, "it shows the MCM Machine");
        return;
    }
    let status = shown::status(snapshot, mirror, native);
    if mirror.status.as_ref() != Some(&status) {
        let action = Action::WriteStatus { mirror: Arc::clone(mirror), status: Box::new(status) };
        plan.then(action, "its MCM Machine changed");
    }
    if native.is_terminating() {
        plan.wait(WaitKind::MachineDeletion, "the MCM Machine to be deleted", None);
    }
}

/// S5: a Machine without a MachineDeployment is refused.
fn refuse(plan: &mut Plan<Action>, snapshot: &Snapshot, mirror: &Arc<Machine>) {
    let mut next = mirror.status.clone().unwrap_or_default();
    let text = "the stand-in serves MachineDeployments only: create one of them";
    let refused = ConditionVerdict::no(StandInReason::UnownedUnsupported, text);
    let generation = mirror.metadata.generation;
    conditions::set(&mut next.conditions, StandInCondition::StandIn, refused, generation, snapshot.now);
    if mirror.status.as_ref() != Some(&next) {
        let action = Action::WriteStatus { mirror: Arc::clone(mirror), status: Box::new(next) };
        plan.then(action, "it is not served");
    }
}
