//! Whether the Node of a Machine serves, and what follows if it does not.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::NodeCondition;

use super::{
    Action, Policy, Snapshot, conditions, create,
    policy::{after, created_at},
    snapshot::NodeView,
    status, token,
};
use crate::{
    api::{
        GoDuration, labels,
        machine::{MachinePhase, MachineStatus, OperationState, OperationType},
        reasons::EventReason,
    },
    controllers::plan::{Note, Plan},
    safety::meltdown::{self, Permit},
};

/// How soon to ask for a permit again that was not granted.
const PERMIT_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// What the state of the Node means for a Machine that has one.
pub(super) fn plan(snapshot: &Snapshot, policy: &Policy) -> Plan<Action> {
    let mut plan = Plan::default();
    match &snapshot.node {
        NodeView::NoTarget => return plan,
        NodeView::Unknown => {
            plan.wait("the Nodes of the target cluster to be known", None);
            return plan;
        }
        NodeView::Absent => gone(&mut plan, snapshot, policy),
        NodeView::Present(node) => seen(&mut plan, snapshot, policy, &node.status.conditions),
    }
    plan
}

fn gone(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy) {
    let stored = status::stored(&snapshot.machine);
    if snapshot.machine.phase() == MachinePhase::Running && !stored.conditions.is_empty() {
        let text = format!(
            "Node object went missing. Machine {} is unhealthy - changing MachinePhase to Unknown",
            snapshot.name()
        );
        return lose(plan, snapshot, stored, text);
    }
    expire(plan, snapshot, policy, stored);
}

fn seen(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy, seen: &[NodeCondition]) {
    let stored = status::stored(&snapshot.machine);
    let phase = stored.current_status.phase;
    let mut next = stored.clone();
    if conditions::differ(&stored.conditions, seen) {
        next.conditions = seen.to_vec();
    }
    let watched = policy.node_conditions_of(&snapshot.machine);
    let is_updated_in_place = matches!(phase, MachinePhase::InPlaceUpdating | MachinePhase::InPlaceUpdateFailed);
    if !is_updated_in_place && phase != MachinePhase::Running && may_serve(snapshot, policy) {
        return join(plan, snapshot, next);
    }
    if phase == MachinePhase::Running && !conditions::is_healthy(seen, &watched) {
        let text = format!(
            "Machine {} is unhealthy - changing MachinePhase to Unknown. Node conditions: {}",
            snapshot.name(),
            conditions::describe(seen, &watched)
        );
        return lose(plan, snapshot, next, text);
    }
    expire(plan, snapshot, policy, next.clone());
    // While a Node joins its conditions come one by one; they are stored with the phase that they lead to.
    if plan.steps.is_empty() && phase != MachinePhase::Pending && conditions::differ(&stored.conditions, seen) {
        plan.then(Action::WriteStatus(Box::new(next)), "conditions of the Node changed");
    }
}

/// Whether the Node is there, healthy, and not waiting for its critical components. The last one holds back a Machine
/// only before its Node has served.
pub(super) fn may_serve(snapshot: &Snapshot, policy: &Policy) -> bool {
    let NodeView::Present(node) = &snapshot.node else { return false };
    let joins = matches!(snapshot.machine.phase(), MachinePhase::Pending | MachinePhase::New);
    let is_held_back = joins
        && node
            .spec
            .taints
            .iter()
            .any(|taint| taint.key == labels::CRITICAL_COMPONENTS_TAINT && taint.effect == "NoSchedule");
    !is_held_back && conditions::is_healthy(&node.status.conditions, &policy.node_conditions_of(&snapshot.machine))
}

/// The Node serves, for the first time or again.
pub(super) fn join(plan: &mut Plan<Action>, snapshot: &Snapshot, mut next: MachineStatus) {
    let (name, now) = (snapshot.name(), snapshot.now);
    if let NodeView::Present(node) = &snapshot.node
        && conditions::differ(&next.conditions, &node.status.conditions)
    {
        next.conditions.clone_from(&node.status.conditions);
    }
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
    if is_first && snapshot.memory.wants_token != Some(false) {
        let id = token::id_of(&snapshot.machine);
        plan.then(Action::DeleteBootstrapToken { id }, "the token has served");
    }
    next.last_operation = status::operation(type_, OperationState::Successful, text.clone(), now);
    status::enter_preserving(&mut next, MachinePhase::Running, false, now);
    plan.then_noting(Action::WriteStatus(Box::new(next)), reason, Note::normal(event, text));
}

/// A Machine that ran is not healthy any more; from now on its health timeout runs.
fn lose(plan: &mut Plan<Action>, snapshot: &Snapshot, mut next: MachineStatus, text: String) {
    let now = snapshot.now;
    next.last_operation = status::operation(OperationType::HealthCheck, OperationState::Processing, text.clone(), now);
    status::enter_preserving(&mut next, MachinePhase::Unknown, true, now);
    let note = Note::warning(EventReason::Unhealthy, text);
    plan.then_noting(Action::WriteStatus(Box::new(next)), "the Node does not serve", note);
}

/// Gives a Machine up whose time is over, or waits for that time. `next` is what is written otherwise.
fn expire(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy, next: MachineStatus) {
    match next.current_status.phase {
        MachinePhase::Pending => {
            let deadline = policy.creation_deadline_of(&snapshot.machine);
            if snapshot.now < deadline {
                let node = snapshot.machine.node_name().unwrap_or_default();
                plan.wait(format!("the Node {node} to join and to be healthy"), Some(deadline));
            } else {
                let text = create::late_text(snapshot, policy);
                give_up(plan, snapshot, next, text, "the creation timeout has passed");
            }
        }
        MachinePhase::Unknown => expire_unknown(plan, snapshot, policy, next),
        MachinePhase::Failed => {
            plan.wait("its set to replace it, for it has failed; or the Node to be healthy after all", None);
        }
        // In-place updates are watched by those who make them.
        _ => {}
    }
}

fn expire_unknown(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy, next: MachineStatus) {
    let on = "the Node to be healthy again";
    let Some(timeout) = policy.health_timeout_of(&snapshot.machine) else {
        plan.wait(format!("{on}; spec.disableHealthTimeout is set"), None);
        return;
    };
    let since = next.current_status.last_update_time.as_ref().or(next.last_operation.last_update_time.as_ref());
    let since = since.map_or_else(|| created_at(&snapshot.machine), |time| time.0);
    let deadline = after(since, timeout.as_signed());
    if snapshot.now < deadline {
        plan.wait(on, Some(deadline));
        return;
    }
    if let Some(key) = meltdown::key_of(&snapshot.machine) {
        let again = Some(after(snapshot.now, PERMIT_AGAIN));
        match &snapshot.permit {
            Permit::NotAsked => {
                let action = Action::TakePermit { key: key.to_owned() };
                plan.then(action, "only one Machine of a deployment is given up at a time");
                return;
            }
            Permit::Refused { by } => {
                plan.wait(format!("its turn to be replaced: {by} is being judged"), again);
                return;
            }
            Permit::Held(census) => {
                if let Some(blockers) = census.blocked_by(policy.max_unhealthy_replacements) {
                    let text = format!("its turn to be replaced: out of service in {key} are {blockers}");
                    plan.wait(text, again);
                    return;
                }
            }
        }
    }
    let watched = policy.node_conditions_of(&snapshot.machine);
    let text = format!(
        "Machine {} health checks failing since last {timeout} minutes. Updating machine phase to Failed. Node \
         Conditions: {}",
        snapshot.name(),
        conditions::describe(&next.conditions, &watched)
    );
    give_up(plan, snapshot, next, text, "the health timeout has passed");
}

fn give_up(plan: &mut Plan<Action>, snapshot: &Snapshot, mut next: MachineStatus, text: String, reason: &str) {
    let now = snapshot.now;
    if let NodeView::Present(node) = &snapshot.node
        && conditions::differ(&next.conditions, &node.status.conditions)
    {
        next.conditions.clone_from(&node.status.conditions);
    }
    next.last_operation.description.clone_from(&text);
    next.last_operation.state = Some(OperationState::Failed);
    next.last_operation.last_update_time = Some(status::stamp(now));
    status::enter_preserving(&mut next, MachinePhase::Failed, false, now);
    plan.then_noting(Action::WriteStatus(Box::new(next)), reason, Note::warning(EventReason::Failed, text));
}
