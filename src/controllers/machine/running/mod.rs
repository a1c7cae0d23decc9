//! Monitors the Node of a Machine that has a VM.

pub(super) mod in_place;
pub(super) mod marks;
pub(super) mod node_sync;
mod node_template;
pub(super) mod renamed;
mod timeouts;

use self::{
    marks::{is_settled, mark_running, mark_unknown, may_serve, restart_timeout},
    timeouts::check_timeout,
};
use super::{
    Action, MachinePolicy, Snapshot, TargetNodeView,
    conditions::{self, CopyPeriod},
    status,
    steps::{is_node_certain, wait_for_nodes},
};
use mcm_api::{
    machine::MachinePhase,
    node::{Node, NodeCondition},
};
use mcm_rules::plan::{Plan, WaitKind};

/// Plans for a Machine with a Node name, from the state of that Node.
pub(super) fn plan(snapshot: &Snapshot, policy: &MachinePolicy) -> Plan<Action> {
    let mut plan = Plan::default();
    match snapshot.serving_node() {
        TargetNodeView::NoTarget => {}
        TargetNodeView::Unknown => wait_for_nodes(&mut plan, snapshot),
        _ if was_interrupted(snapshot) && !may_serve(snapshot, policy) => restart_timeout(&mut plan, snapshot),
        TargetNodeView::Missing | TargetNodeView::Absent => node_missing(&mut plan, snapshot, policy),
        TargetNodeView::Present(node) => node_present(&mut plan, snapshot, policy, &node),
    }
    plan
}

/// It became Unknown during an interruption, perhaps only because its Node could not report.
fn was_interrupted(snapshot: &Snapshot) -> bool {
    let stored = status::stored(&snapshot.machine);
    let since = stored.current_status.last_update_time.map(|time| time.0);
    stored.current_status.phase == MachinePhase::Unknown
        && since.is_some_and(|since| snapshot.target.interrupted(since))
}

fn node_missing(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy) {
    let stored = status::stored(&snapshot.machine);
    if snapshot.machine.phase() != MachinePhase::Running || stored.conditions.is_empty() {
        return check_timeout(plan, snapshot, policy, stored);
    }
    if is_settled(plan, snapshot)
        && is_node_certain(plan, snapshot, "the Node of this Machine is missing in the cache, which may be stale")
    {
        let text = format!(
            "Node object went missing. Machine {} is unhealthy - changing MachinePhase to Unknown",
            snapshot.name()
        );
        mark_unknown(plan, snapshot, stored, text);
    }
}

fn node_present(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy, node: &Node) {
    let stored = status::stored(&snapshot.machine);
    let watched = policy.node_conditions_of(&snapshot.machine);
    let current: &[NodeCondition] = &in_place::conditions_of(node, &stored, &watched);
    let phase = stored.current_status.phase.clone();
    let mut next = stored.clone();
    if conditions::differ(&stored.conditions, current) {
        next.conditions = current.to_vec();
    }
    let is_updated_in_place = matches!(phase, MachinePhase::InPlaceUpdating | MachinePhase::InPlaceUpdateFailed);
    let may_recover = !is_updated_in_place && !in_place::has_failed(&stored, node);
    if may_recover && phase != MachinePhase::Running && may_serve(snapshot, policy) {
        return mark_running(plan, snapshot, next);
    }
    if phase == MachinePhase::Running && !conditions::is_healthy(&node.status.conditions, &watched) {
        if !is_settled(plan, snapshot) {
            return;
        }
        let text = format!(
            "Machine {} is unhealthy - changing MachinePhase to Unknown. Node conditions: {}",
            snapshot.name(),
            conditions::describe(current, &watched)
        );
        return mark_unknown(plan, snapshot, next, text);
    }
    if is_updated_in_place && in_place::take_result(plan, snapshot, node, &next) {
        return;
    }
    check_timeout(plan, snapshot, policy, next.clone());
    // While a Node joins, its conditions change one by one. They are stored together with the next phase.
    if plan.steps.is_empty() && phase != MachinePhase::Pending && conditions::differ(&stored.conditions, current) {
        let due = CopyPeriod::puts_off(snapshot.memory.copies, &stored.conditions, current, snapshot.now);
        match due {
            Some(_) => plan.wait(WaitKind::NodeHealth, "the next write of the conditions of its Node", due),
            None => plan.then(Action::WriteStatus(Box::new(next)), "conditions of the Node changed"),
        };
    }
}
