//! The drain of a Node before its in-place update. It ends only when all its pods were told to go: unlike a deletion, an
//! update can wait.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{
    super::super::{
        Action, Policy, Snapshot, delete::progress::Progress, draining, memory::NodeWrite, policy::after, status,
        views::PodsView,
    },
    enter, node_of, wait_for_node,
};
use crate::{
    api::{
        labels,
        machine::{MachinePhase, OperationState, OperationType},
        node::Node,
        reasons::{EventReason, InPlaceUpdateReason as Reason},
    },
    controllers::object::in_place,
    drain::{Answer, DrainPolicy, Method, Mode, PodFacts, policy as drain_policy},
    plan::{Event, Plan, WaitKind},
};

/// When to list pods again, or to delete one again, after a failure.
const AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// When the drain is forced; `None` if it is forced now, or the Node is not drained for an update.
pub(in super::super::super) fn forced_from(snapshot: &Snapshot, policy: &Policy) -> Option<Timestamp> {
    let node = node_of(snapshot)?;
    let progress = in_place::progress_of(&node.status.conditions);
    (progress == Some(Reason::SelectedForUpdate)).then(|| drain_policy_of(snapshot, policy, &node).forced_from())?
}

/// Cordons and drains the Node. Then the Machine is `InPlaceUpdating`, and after that the Node `DrainSuccessful`.
pub(super) fn plan(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy, node: &Arc<Node>) {
    let drain = drain_policy_of(snapshot, policy, node);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    if !node.spec.unschedulable {
        let purpose = NodeWrite::Cordon;
        if let Some(failure) = snapshot.memory.node_failure_of(purpose, snapshot.now) {
            blocked(plan, snapshot, &failure.message);
            return wait_for_node(plan, failure);
        }
        let patch = json!({ "spec": { "unschedulable": true } });
        let action = Action::StrategicPatchNode { node: Arc::clone(node), patch, purpose };
        plan.then(action, "no new pods are scheduled to a Node that is drained");
        return;
    }
    match &snapshot.learned.pods {
        PodsView::NotListed => {
            let node = name.to_owned();
            plan.then(Action::ListPods { node }, "the drain needs the current pods of the Node");
        }
        PodsView::Failed(error) => {
            blocked(plan, snapshot, error);
            let until = drain.at_most(after(snapshot.now, AGAIN)).max(after(snapshot.now, AGAIN));
            plan.wait(WaitKind::PodList, format!("the list of the pods of the Node: {error}"), Some(until));
        }
        PodsView::Listed(pods) => {
            let unread = snapshot.memory.volumes.unread(pods);
            let is_forced = drain.is_forced(snapshot.now);
            if !is_forced && !unread.is_empty() && snapshot.learned.unread_volumes.is_none() {
                plan.then(Action::ReadVolumes(unread), "volumes decide about the order of the pods and are awaited");
                return;
            }
            drain_pods(plan, snapshot, policy, &drain, node, pods);
        }
    }
}

/// The deadline counts from the selection.
fn drain_policy_of(snapshot: &Snapshot, policy: &Policy, node: &Node) -> DrainPolicy {
    let machine = &snapshot.machine;
    let condition = in_place::condition_of(&node.status.conditions);
    let since = condition.and_then(|condition| condition.last_transition_time.as_ref());
    let since = since.map_or(snapshot.now, |time| time.0);
    let label = machine.metadata.labels.as_ref().and_then(|all| all.get(labels::FORCE_DRAIN));
    DrainPolicy {
        evict_for: DrainPolicy::evict_for(policy.max_evict_retries_of(machine)),
        deadline: after(since, policy.drain_timeout_of(machine).as_signed()),
        broken_from: drain_policy::broken_from(&node.status.conditions),
        is_demanded: label.is_some_and(|value| value == labels::TRUE),
    }
}

fn drain_pods(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    policy: &Policy,
    drain: &DrainPolicy,
    node: &Arc<Node>,
    pods: &[PodFacts],
) {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let mode = drain.mode(snapshot.now);
    let next = draining::next(snapshot, policy, drain, name, pods);
    let error = next.error();
    if !next.is_done() {
        match (error, mode) {
            (Some(error), Mode::Normal) => blocked(plan, snapshot, &error),
            (None, Mode::Normal) if !next.refused_by.is_empty() => {
                let budgets = next.refused_by.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                tell(plan, snapshot, &format!("Evictions are refused by the disruption budget {budgets}. "), None);
            }
            _ => {}
        }
        return draining::append(plan, next);
    }
    match error {
        Some(error) if mode == Mode::Forced => delete_again(plan, snapshot, pods, &error),
        _ => finish(plan, snapshot, node, name),
    }
}

/// The Machine is updated first: when the agent begins, its timeout runs.
fn finish(plan: &mut Plan<Action>, snapshot: &Snapshot, node: &Arc<Node>, name: &str) {
    if snapshot.machine.phase() == MachinePhase::InPlaceUpdating {
        return enter(plan, snapshot, node, Reason::DrainSuccessful);
    }
    let (mut next, now) = (status::stored(&snapshot.machine), snapshot.now);
    let text = format!("Machine {} is undergoing an in-place update", snapshot.name());
    next.last_operation = status::operation(OperationType::InPlaceUpdate, OperationState::Processing, text, now);
    status::enter_preserving(&mut next, MachinePhase::InPlaceUpdating, true, now);
    let event = Event::normal(EventReason::InPlaceUpdating, format!("Node {name} is drained for its in-place update"));
    let reason = "the Node is drained, and the agent on it may begin";
    plan.then_recording(Action::WriteStatus(Box::new(next)), reason, event);
}

/// Pods whose deletion failed are deleted again: the update does not begin beside them.
fn delete_again(plan: &mut Plan<Action>, snapshot: &Snapshot, pods: &[PodFacts], error: &str) {
    blocked(plan, snapshot, error);
    let mut retry_at = None::<Timestamp>;
    for pod in pods {
        let Some(attempt) = snapshot.memory.pods.get(&pod.pod.uid) else { continue };
        if attempt.method != Method::Delete || attempt.answer == Answer::Accepted {
            continue;
        }
        let due = after(attempt.at, AGAIN);
        if due <= snapshot.now {
            plan.then(Action::DeletePod(pod.pod.clone()), "its deletion failed, and the drain is forced");
        } else {
            retry_at = Some(retry_at.map_or(due, |at| at.min(due)));
        }
    }
    let text = format!("pods to be deleted: {error}");
    plan.wait(WaitKind::Eviction, text, Some(retry_at.unwrap_or_else(|| after(snapshot.now, AGAIN))));
}

fn blocked(plan: &mut Plan<Action>, snapshot: &Snapshot, error: &str) {
    let story = format!("Drain failed due to - {error}. Will retry in next sync. ");
    tell(plan, snapshot, &story, Some(Event::warning(EventReason::DrainBlocked, error)));
}

/// Shows in the status why the drain does not go on. The text ends as the reference's.
fn tell(plan: &mut Plan<Action>, snapshot: &Snapshot, story: &str, event: Option<Event>) {
    let (stored, now) = (status::stored(&snapshot.machine), snapshot.now);
    let mut next = stored.clone();
    let text = Progress::Drain.after(story);
    next.last_operation = status::operation(OperationType::DrainNode, OperationState::Processing, text, now);
    if !status::is_news(&stored, &next, now) {
        return;
    }
    let (action, reason) = (Action::WriteStatus(Box::new(next)), "the status shows what the drain waits for");
    match event {
        Some(event) => plan.then_recording(action, reason, event),
        None => plan.then(action, reason),
    };
}
