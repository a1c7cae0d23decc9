//! The drain of a Node before its in-place update. It ends only when all its pods were evicted: unlike a deletion, an
//! update can wait.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::condition::{enter, node_of};
use crate::{
    machine::{
        Action, DrainReason, MachinePolicy, Snapshot,
        conditions::{self, NeverMet},
        drain_node::{self, NodeDrainProgress},
        memory::NodeWrite,
        progress::DeletionProgress,
        status,
        steps::wait_for_write,
    },
    object::in_place,
};
use mcm_api::{
    labels,
    machine::{MachinePhase, OperationState, OperationType},
    node::Node,
    reasons::{EventReason, InPlaceUpdateReason as Reason},
};
use mcm_rules::{
    drain::DrainPolicy,
    plan::{Event, Plan},
};

/// When the drain is forced; `None` if it is forced now, or the Node is not drained for an update.
pub(in super::super::super) fn forced_from(snapshot: &Snapshot, policy: &MachinePolicy) -> Option<Timestamp> {
    let node = node_of(snapshot)?;
    is_due(&node).then(|| drain_policy_of(snapshot, policy, &node).forced_from())?
}

/// The Node is drained for its update now.
pub(super) fn is_due(node: &Node) -> bool {
    in_place::progress_of(&node.status.conditions) == Some(Reason::SelectedForUpdate)
}

/// Cordons and drains the Node. Then the Machine is `InPlaceUpdating`, and after that the Node `DrainSuccessful`.
pub(super) fn plan(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy, node: &Arc<Node>) {
    let drain = drain_policy_of(snapshot, policy, node);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    if !node.spec.unschedulable {
        let purpose = NodeWrite::Cordon;
        if let Some(failure) = snapshot.memory.node_failure_of(purpose, snapshot.now) {
            blocked(plan, snapshot, &failure.message);
            return wait_for_write(plan, failure, failure.retry_at());
        }
        let patch = json!({ "spec": { "unschedulable": true } });
        let action = Action::StrategicPatchNode { node: Arc::clone(node), patch, purpose };
        plan.then(action, "no new pods are scheduled to a Node that is drained");
        return;
    }
    match drain_node::plan(plan, snapshot, policy, &drain, node) {
        NodeDrainProgress::Drained => finish(plan, snapshot, node, name),
        NodeDrainProgress::Blocked(error) => blocked(plan, snapshot, &error),
        NodeDrainProgress::Busy { refused_by } if !refused_by.is_empty() && !drain.is_forced(snapshot.now) => {
            let budgets = refused_by.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            tell(plan, snapshot, &format!("Evictions are refused by the disruption budget {budgets}. "), None);
        }
        NodeDrainProgress::Busy { .. } if drain_node::is_condition_outdated(snapshot) => tell(plan, snapshot, "", None),
        NodeDrainProgress::Busy { .. } => {}
    }
}

/// The deadline counts from the selection.
fn drain_policy_of(snapshot: &Snapshot, policy: &MachinePolicy, node: &Node) -> DrainPolicy {
    let machine = &snapshot.machine;
    let condition = in_place::condition_of(&node.status.conditions);
    let since = condition.and_then(|condition| condition.last_transition_time);
    let since = since.map_or(snapshot.now, Timestamp::from);
    drain_node::rules(snapshot, policy, since, labels::is_true(&**machine, DrainReason::InPlaceUpdate.force_label()))
}

/// The Machine is updated first: when the agent begins, its timeout runs.
fn finish(plan: &mut Plan<Action>, snapshot: &Snapshot, node: &Arc<Node>, name: &str) {
    if snapshot.machine.phase() == MachinePhase::InPlaceUpdating {
        return enter(plan, snapshot, node, Reason::DrainSuccessful);
    }
    let (mut next, now) = (status::stored(&snapshot.machine), snapshot.now);
    let text = format!("Machine {} is undergoing an in-place update", snapshot.name());
    next.last_operation = status::operation(OperationType::InPlaceUpdate, OperationState::Processing, text, now);
    conditions::set_drain_blocked(&mut next.conditions, &NeverMet::default(), now);
    status::enter(&mut next, MachinePhase::InPlaceUpdating, true, now);
    let event = Event::normal(EventReason::InPlaceUpdating, format!("Node {name} is drained for its in-place update"));
    let reason = "the Node is drained, and the agent on it may begin";
    plan.then_recording(Action::WriteStatus(Box::new(next)), reason, event);
}

fn blocked(plan: &mut Plan<Action>, snapshot: &Snapshot, error: &str) {
    let story = format!("Drain failed due to - {error}. Will retry in next sync. ");
    tell(plan, snapshot, &story, Some(Event::warning(EventReason::DrainBlocked, error)));
}

/// Shows in the status why the drain does not go on. The text ends as the reference's.
fn tell(plan: &mut Plan<Action>, snapshot: &Snapshot, story: &str, event: Option<Event>) {
    let (stored, now) = (status::stored(&snapshot.machine), snapshot.now);
    let mut next = stored.clone();
    let text = DeletionProgress::Drain.after(story);
    next.last_operation = status::operation(OperationType::DrainNode, OperationState::Processing, text, now);
    conditions::set_drain_blocked(&mut next.conditions, &snapshot.memory.never_met_budgets(), now);
    if !status::is_news(&stored, &next, now) {
        return;
    }
    let (action, reason) = (Action::WriteStatus(Box::new(next)), "the status shows what the drain waits for");
    match event {
        Some(event) => plan.then_recording(action, reason, event),
        None => plan.then(action, reason),
    };
}
