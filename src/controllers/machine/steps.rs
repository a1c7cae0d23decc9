//! Steps that several stages share.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    Action, Snapshot, TargetNodeView, conditions,
    memory::{NodeFailure, NodeWrite},
    status, token,
};
use mcm_api::{machine::Machine, reasons::EventReason};
use mcm_rules::plan::{Event, Plan, Wait, WaitKind};

/// Waits until the Node is known.
pub(super) fn wait_for_nodes(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let (text, until) = snapshot.unknown_node();
    let kind = if snapshot.unproven().is_some() { WaitKind::NodeClaim } else { WaitKind::NodesUnknown };
    plan.wait(kind, text, until);
}

/// The Node was read live in this reconcile. Otherwise reads it or waits. Needed before decisions that cannot
/// be undone, because the cache may be stale.
pub(super) fn is_node_certain(plan: &mut Plan<Action>, snapshot: &Snapshot, reason: &str) -> bool {
    if snapshot.is_node_certain() {
        return true;
    }
    match snapshot.node {
        TargetNodeView::Unknown => wait_for_nodes(plan, snapshot),
        _ => drop(plan.then(Action::GetNode(snapshot.node_key()), reason)),
    }
    false
}

/// A write to the Node failed and must not be repeated yet. If so, waits.
pub(super) fn is_refused(plan: &mut Plan<Action>, snapshot: &Snapshot, purpose: NodeWrite) -> bool {
    let Some(failure) = snapshot.memory.node_failure_of(purpose, snapshot.now) else { return false };
    if failure.is_refused {
        wait_for_refused(plan, purpose, failure, failure.retry_at());
    } else {
        wait_for_write(plan, failure, failure.retry_at());
    }
    true
}

/// Waits until a refused or reverted write to the Node is repeated.
pub(super) fn wait_for_refused(plan: &mut Plan<Action>, purpose: NodeWrite, failure: &NodeFailure, until: Timestamp) {
    plan.wait(WaitKind::NodeWriteRefused, format!("{AWAITED_WRITE}{purpose}: {}", failure.message), Some(until));
}

/// Waits until a failed write to the Node is repeated.
pub(super) fn wait_for_write(plan: &mut Plan<Action>, failure: &NodeFailure, until: Timestamp) {
    plan.wait(WaitKind::NodeWrite, format!("{AWAITED_WRITE}{}", failure.message), Some(until));
}

/// Deletes the bootstrap token of a Machine that does not need it any more. A Machine that never had one pays nothing.
pub(super) fn delete_token(plan: &mut Plan<Action>, snapshot: &Snapshot, reason: &str) {
    let may_exist = snapshot.memory.may_have_token().unwrap_or_else(|| !has_joined(&snapshot.machine));
    if may_exist && snapshot.has_target() {
        plan.then(Action::DeleteBootstrapToken { id: token::id_of(&snapshot.machine) }, reason);
    }
}

/// The Node of a Machine is ready: the token is deleted before that is stored.
fn has_joined(machine: &Machine) -> bool {
    let conditions = machine.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
/// Begins the text of a wait for a write.
const AWAITED_WRITE: &str = "a write to the Node to succeed: ";

/// Shows on the Machine which writes to its Node are refused, and which parts of its template are invalid.
pub(super) fn show_refusals(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let is_refusal = |wait: &&Wait| matches!(wait.kind, WaitKind::NodeWriteRefused | WaitKind::NodeTemplate);
    let texts: Vec<&str> = plan
        .waits
        .iter()
        .filter(is_refusal)
        .map(|wait| wait.text.strip_prefix(AWAITED_WRITE).unwrap_or(&wait.text))
        .collect();
    let message: String = texts.join("; ").chars().take(MESSAGE_MAX).collect();
    let mut next = status::stored(&snapshot.machine);
    if !conditions::set_node_refused(&mut next.conditions, &message, snapshot.now) {
        return;
    }
    let action = Action::WriteStatus(Box::new(next));
    match message.as_str() {
        "" => plan.then(action, "the API server accepts every write to the Node"),
        _ => {
            let event = Event::warning(EventReason::NodeWriteRefused, message);
            plan.then_recording(action, "the condition shows what is refused on the Node", event)
        }
    };
}

/// Longest message of the condition, in characters.
const MESSAGE_MAX: usize = 1024;

/// Sets `patch[path[0]][path[1]]… = value` and creates the objects in between.
pub(super) fn set(patch: &mut Value, path: &[&str], value: impl Into<Value>) {
    let mut place = patch;
    for key in path {
        if !place.is_object() {
            *place = Value::Object(serde_json::Map::new());
        }
        let Some(object) = place.as_object_mut() else { return };
        place = object.entry((*key).to_owned()).or_insert(Value::Null);
    }
    *place = value.into();
}
