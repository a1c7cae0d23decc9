use jiff::Timestamp;

use super::{
    Action, MachinePolicy, Snapshot, conditions, create, delete, evidence,
    lint::lint,
    preserve, refused, running, status,
    steps::{show_refusals, wait_for_nodes},
    views::DriverVmView,
    watch_vm,
};
use crate::object::finalizer;
use mcm_api::{labels, machine::MachinePhase};
use mcm_rules::{
    plan::{Plan, PlanInput, ReconcileHold, SubjectRef, WaitKind},
    safety::trust::TargetTrust,
};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self, &self.policy)
    }

    fn lint(&self, plan: &Plan<Action>) -> Option<String> {
        lint(self, &self.policy, &plan.steps).first().map(ToString::to_string)
    }

    fn is_look(action: &Action) -> bool {
        matches!(
            action,
            Action::ReadSecret
                | Action::GetVmStatus
                | Action::GetNode(_)
                | Action::ListPods { .. }
                | Action::ReadVolumes(_)
                | Action::LookAtPermit(_)
        )
    }

    fn subject(action: &Action) -> Option<SubjectRef> {
        action.subject()
    }
}

/// Plans the next actions for a Machine.
///
/// Returns the few actions that do not depend on each other's results. Plan again with the results in the snapshot.
pub fn plan(snapshot: &Snapshot, policy: &MachinePolicy) -> Plan<Action> {
    let mut plan = next(snapshot, policy);
    refused::hold_back(&mut plan, snapshot);
    plan
}

fn next(snapshot: &Snapshot, policy: &MachinePolicy) -> Plan<Action> {
    let mut plan = Plan::default();
    // The ID of a VM that was just created is stored all the same: it cannot be learned again for certain.
    let owes_id =
        matches!(snapshot.learned.vm, DriverVmView::Created(_)) && snapshot.machine.spec.provider_id.is_empty();
    if let Some(hold) = &snapshot.hold
        && (snapshot.is_deleting() || !owes_id)
    {
        let may_be_in_the_making = !snapshot.is_deleting() && snapshot.machine.spec.provider_id.is_empty();
        if hold.is_pause && may_be_in_the_making && snapshot.machine.blocks_move() {
            create::settle::plan(&mut plan, snapshot, policy);
        }
        plan.wait(WaitKind::Hold, hold.on.as_str(), None);
        if hold.is_confirmed {
            show_pause(&mut plan, snapshot, Some(hold));
        }
        return plan;
    }
    if show_pause(&mut plan, snapshot, None) {
        return plan;
    }
    if snapshot.is_deleting() {
        return delete::plan(snapshot, policy);
    }
    let may_have_vm = !owes_id && create::may_have_begun(&snapshot.machine);
    if may_have_vm && let Some(patch) = finalizer::add(&snapshot.machine.metadata, labels::FINALIZER) {
        plan.then(Action::PatchMachine(patch), "a Machine that may have a VM carries the finalizer");
        return plan;
    }
    if !owes_id && snapshot.has_target() && matches!(snapshot.target, TargetTrust::Untrusted { .. }) {
        wait_for_nodes(&mut plan, snapshot);
        return plan;
    }
    let class = &snapshot.machine.spec.class;
    if class.kind.is_empty() || class.name.is_empty() {
        plan.wait(WaitKind::SpecCorrection, "spec.class.kind and spec.class.name to be set", None);
        return plan;
    }
    if owes_id {
        append(&mut plan, create::plan(snapshot, policy));
        return plan;
    }
    append(&mut plan, evidence::plan(snapshot, policy));
    if !plan.steps.is_empty() {
        return plan;
    }
    append(&mut plan, preserve::copy(snapshot));
    if !plan.steps.is_empty() {
        return plan;
    }
    append(&mut plan, running::renamed::plan(snapshot));
    if !plan.steps.is_empty() {
        return plan;
    }
    if snapshot.machine.node_name().is_some() && snapshot.machine.phase() != MachinePhase::New {
        append(&mut plan, running::plan(snapshot, policy));
        append(&mut plan, running::node_sync::plan(snapshot));
        if plan.steps.is_empty() {
            append(&mut plan, running::in_place::plan(snapshot, policy));
        }
        if !plan.steps.is_empty() {
            return plan;
        }
    }
    if !running::in_place::is_under_way(snapshot) {
        append(&mut plan, preserve::plan(snapshot, policy));
        if !plan.steps.is_empty() {
            return plan;
        }
    }
    show_refusals(&mut plan, snapshot);
    if plan.steps.is_empty() && create::is_needed(snapshot) {
        append(&mut plan, create::plan(snapshot, policy));
    } else if plan.steps.is_empty() && watch_vm::is_needed(snapshot) {
        append(&mut plan, watch_vm::plan(snapshot, policy));
    }
    plan
}

/// Writes the condition `Paused`, or removes it. True if there was something to write.
fn show_pause(plan: &mut Plan<Action>, snapshot: &Snapshot, hold: Option<&ReconcileHold>) -> bool {
    let mut next = status::stored(&snapshot.machine);
    let is_news = conditions::set_paused(&mut next.conditions, hold, snapshot.now);
    if is_news {
        let reason = if hold.is_some() { "the Machine is on hold from now on" } else { "its hold has ended" };
        plan.then(Action::WriteStatus(Box::new(next)), reason);
    }
    is_news
}

/// When the drain of the Machine's Node is forced, if there is one; `None` if it is forced now.
pub(super) fn forced_from(snapshot: &Snapshot, policy: &MachinePolicy) -> Option<Timestamp> {
    if snapshot.is_deleting() {
        delete::forced_from(snapshot, policy)
    } else if running::in_place::is_under_way(snapshot) {
        running::in_place::forced_from(snapshot, policy)
    } else {
        preserve::forced_from(snapshot, policy)
    }
}

fn append(plan: &mut Plan<Action>, other: Plan<Action>) {
    plan.steps.extend(other.steps);
    plan.waits.extend(other.waits);
}
