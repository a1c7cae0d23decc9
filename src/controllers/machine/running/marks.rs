//! Transitions to Running, Unknown and Failed, caused by the state of the Node.

use super::super::{
    Action, MachinePolicy, Snapshot, TargetNodeView, conditions, policy::created_at, status, steps::delete_token, token,
};
use mcm_api::{
    GoDuration, labels,
    machine::{MachinePhase, MachineStatus, OperationState, OperationType},
    reasons::EventReason,
};
use mcm_rules::plan::{Event, Plan, WaitKind};

/// The Node exists, is healthy, and does not wait for its critical components. The last condition applies only
/// before the Machine was Running for the first time.
pub(in super::super) fn may_serve(snapshot: &Snapshot, policy: &MachinePolicy) -> bool {
    let TargetNodeView::Present(node) = snapshot.serving_node() else { return false };
    let joins = matches!(snapshot.machine.phase(), MachinePhase::Pending | MachinePhase::New);
    let is_held_back = joins
        && node
            .spec
            .taints
            .iter()
            .any(|taint| taint.key == labels::CRITICAL_COMPONENTS_TAINT && taint.effect == "NoSchedule");
    !is_held_back && conditions::is_healthy(&node.status.conditions, &policy.node_conditions_of(&snapshot.machine))
}

/// The Node became healthy, for the first time or again.
pub(in super::super) fn mark_running(plan: &mut Plan<Action>, snapshot: &Snapshot, mut next: MachineStatus) {
    let (name, now) = (snapshot.name(), snapshot.now);
    take_over(snapshot, &mut next);
    let last = &next.last_operation;
    let is_first = match last.type_ {
        Some(OperationType::Create) => last.state != Some(OperationState::Successful),
        Some(_) => false,
        None => true,
    };
    let (type_, text, event, reason) = if is_first {
        let took = now.duration_since(created_at(&snapshot.machine)).as_secs();
        let took = GoDuration::from_secs(took);
        let text = format!("Machine {name} successfully joined the cluster in {took}");
        (OperationType::Create, text, EventReason::Joined, "the Node joined and is healthy")
    } else {
        let text = format!("Machine {name} successfully re-joined the cluster");
        (OperationType::HealthCheck, text, EventReason::Recovered, "the Node is healthy again")
    };
    if is_first && snapshot.memory.may_have_token() != Some(false) {
        let own = token::id_of(&snapshot.machine);
        // A VM that this process did not create may have joined with a token of the Go program.
        let of_go = snapshot.memory.wants_token.is_none().then(|| token::go_id_of(&snapshot.machine)).flatten();
        for id in [Some(own), of_go].into_iter().flatten() {
            plan.then(Action::DeleteBootstrapToken { id }, "the VM has joined, so the token is no longer needed");
        }
    }
    next.last_operation = status::operation(type_, OperationState::Successful, text.clone(), now);
    status::enter(&mut next, MachinePhase::Running, false, now);
    plan.then_recording(Action::WriteStatus(Box::new(next)), reason, Event::normal(event, text));
}

/// Stores the conditions of the Node, if they changed.
fn take_over(snapshot: &Snapshot, next: &mut MachineStatus) {
    if let TargetNodeView::Present(node) = &snapshot.serving_node() {
        let watched = snapshot.policy.node_conditions_of(&snapshot.machine);
        conditions::take_over(&mut next.conditions, &node.status.conditions, &watched);
    }
}

/// The Nodes have had time to report since the last interruption. Otherwise waits: a Machine becomes Unknown only
/// by what its Node reports, not by what it could not report.
pub(super) fn is_settled(plan: &mut Plan<Action>, snapshot: &Snapshot) -> bool {
    let due = snapshot.target.settled_at().filter(|due| *due > snapshot.now);
    if due.is_some() {
        plan.wait(WaitKind::NodeHealth, "the Node to report after its API server was unreachable", due);
    }
    due.is_none()
}

/// A Machine that became Unknown during an interruption gets its whole health timeout again. The text is the
/// reference's. It stays Unknown, because its Node is not healthy: a rollout must not count it as available.
pub(super) fn restart_timeout(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let text = "Machine Health Timeout was reset due to APIServer being unreachable";
    let (mut next, now) = (status::stored(&snapshot.machine), snapshot.now);
    take_over(snapshot, &mut next);
    next.last_operation = status::operation(OperationType::HealthCheck, OperationState::Processing, text, now);
    next.current_status.last_update_time = Some(status::stamp(now));
    let reason = "its Node could not report while the API server was unreachable";
    plan.then(Action::WriteStatus(Box::new(next)), reason);
}

/// A Machine that was Running is not healthy any more. Its health timeout starts now.
pub(super) fn mark_unknown(plan: &mut Plan<Action>, snapshot: &Snapshot, mut next: MachineStatus, text: String) {
    let now = snapshot.now;
    next.last_operation = status::operation(OperationType::HealthCheck, OperationState::Processing, text.clone(), now);
    status::enter(&mut next, MachinePhase::Unknown, true, now);
    let event = Event::warning(EventReason::Unhealthy, text);
    plan.then_recording(Action::WriteStatus(Box::new(next)), "the Node is not healthy", event);
}

/// The Machine failed; its set replaces it.
pub(in super::super) fn mark_failed(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    mut next: MachineStatus,
    text: String,
    reason: &str,
) {
    let now = snapshot.now;
    delete_token(plan, snapshot, "the Machine failed, so its VM must not join any more");
    take_over(snapshot, &mut next);
    next.last_operation.description.clone_from(&text);
    next.last_operation.state = Some(OperationState::Failed);
    next.last_operation.last_update_time = Some(status::stamp(now));
    status::enter(&mut next, MachinePhase::Failed, false, now);
    plan.then_recording(Action::WriteStatus(Box::new(next)), reason, Event::warning(EventReason::Failed, text));
}

/// Status text of a Machine that did not join in time.
pub(in super::super) fn late_text(snapshot: &Snapshot, policy: &MachinePolicy) -> String {
    let timeout = policy.creation_timeout_of(&snapshot.machine);
    format!("Machine {} failed to join the cluster in {timeout}.", snapshot.name())
}
