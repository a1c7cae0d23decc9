//! The part of a deletion that empties the Node.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{
    Action, Policy, Snapshot, conditions,
    delete::{advance, advance_noting, stall},
    memory::{NodeFailure, NodeWrite},
    policy::after,
    progress::Progress,
    snapshot::{NodeView, PodsView},
    status,
};
use crate::{
    api::{
        labels,
        node::Node,
        reasons::{EventReason, NodeConditionType},
    },
    controllers::plan::{Note, Plan},
    drain::{self, Limits, Method, Mode, PodFacts},
};

/// How soon to list pods again that could not be listed.
const LIST_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// One eviction period of the reference, in which `maxEvictRetries` is counted.
const EVICTION_PERIOD: i64 = 20;

/// Empties the Node that the Machine names, by force if it has to be, and goes on to the VM.
pub(super) fn plan(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy, progress: Progress) {
    let urgency = Urgency::of(snapshot, policy);
    let node = match snapshot.own_node() {
        NodeView::Present(node) => node,
        NodeView::Unknown if urgency.is_forced() => {
            return go_on_undrained(plan, snapshot, "the Nodes of the target cluster are not known");
        }
        NodeView::Unknown => {
            plan.wait("the Nodes of the target cluster to be known", urgency.forced_from());
            return;
        }
        NodeView::Absent | NodeView::NoTarget => {
            return advance(plan, snapshot, Progress::DeleteVm, "Drain successful. ", "there is no Node to be drained");
        }
    };
    if !is_closed(plan, snapshot, &urgency, &node) {
        return;
    }
    match &snapshot.pods {
        PodsView::NotListed => {
            let node = node.metadata.name.clone().unwrap_or_default();
            plan.then(Action::ListPods { node }, "what runs on the Node has to be known");
        }
        PodsView::Failed(error) if urgency.is_forced() => go_on_undrained(plan, snapshot, error),
        PodsView::Failed(error) => {
            blocked(plan, snapshot, error);
            let until = after(snapshot.now, LIST_AGAIN);
            plan.wait(format!("the pods of the Node to be listed: {error}"), Some(urgency.at_most(until)));
        }
        PodsView::Listed(pods) => empty(plan, snapshot, progress, &urgency, &node, pods),
    }
}

/// How a drain has to be done.
struct Urgency {
    limits: Limits,
    /// From when on the Node counts as broken.
    broken_from: Option<Timestamp>,
    is_demanded: bool,
    now: Timestamp,
}

impl Urgency {
    fn of(snapshot: &Snapshot, policy: &Policy) -> Self {
        let machine = &snapshot.machine;
        let since = machine.metadata.deletion_timestamp.as_ref().map_or(snapshot.now, |time| time.0);
        let deadline = after(since, policy.drain_timeout_of(machine).as_signed());
        let retries = i64::from(policy.max_evict_retries_of(machine).max(0));
        let evict_until = after(since, SignedDuration::from_secs(retries * EVICTION_PERIOD)).min(deadline);
        let conditions = match &snapshot.node {
            NodeView::Present(node) if !node.status.conditions.is_empty() => node.status.conditions.clone(),
            _ => status::stored(machine).conditions,
        };
        let label = machine.metadata.labels.as_ref().and_then(|map| map.get(labels::FORCE_DELETION));
        Self {
            limits: Limits { evict_until, deadline },
            broken_from: conditions::broken_from(&conditions),
            is_demanded: label.is_some_and(|text| is_go_true(text)),
            now: snapshot.now,
        }
    }

    fn is_forced(&self) -> bool {
        self.forced_from().is_none_or(|from| self.now >= from)
    }

    /// From when on the drain is forced; `None` if it was asked for.
    fn forced_from(&self) -> Option<Timestamp> {
        let broken_from = self.broken_from.unwrap_or(Timestamp::MAX);
        (!self.is_demanded).then(|| self.limits.deadline.min(broken_from))
    }

    /// A time, or the one from which the drain is forced if that is earlier.
    fn at_most(&self, time: Timestamp) -> Timestamp {
        self.forced_from().map_or(time, |from| time.min(from))
    }
}

/// What Go's `strconv.ParseBool` takes for true.
fn is_go_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// Whether the Node is announced as going and takes no new pods; sees to it otherwise.
fn is_closed(plan: &mut Plan<Action>, snapshot: &Snapshot, urgency: &Urgency, node: &Arc<Node>) -> bool {
    let failure = |purpose| snapshot.memory.node_failure_of(purpose, snapshot.now);
    let type_ = NodeConditionType::Terminating.as_str();
    let is_announced = node.status.conditions.iter().any(|it| it.type_ == type_ && it.status == "True");
    if !is_announced {
        match failure(NodeWrite::Announce) {
            None => {
                let (purpose, patch) = (NodeWrite::Announce, announcement(snapshot, node));
                let action = Action::PatchNodeStatus { node: node.clone(), patch, purpose };
                plan.then(action, "others may want to know before the Node goes");
                return false;
            }
            Some(_) if urgency.is_forced() => {}
            Some(failure) => {
                let error = &failure.message;
                let story = format!(
                    "Drain failed due to failure in update of node conditions - {error}. Will retry in next sync. "
                );
                stall(
                    plan,
                    snapshot,
                    Progress::Drain,
                    &story,
                    Note::warning(EventReason::DrainBlocked, error.as_str()),
                );
                wait_for_node(plan, urgency, failure);
                return false;
            }
        }
    }
    if node.spec.unschedulable {
        return true;
    }
    match failure(NodeWrite::Cordon) {
        None => {
            let (purpose, patch) = (NodeWrite::Cordon, json!({ "spec": { "unschedulable": true } }));
            plan.then(
                Action::AmendNode { node: node.clone(), patch, purpose },
                "no new pods may come while it is drained",
            );
        }
        Some(failure) if urgency.is_forced() => go_on_undrained(plan, snapshot, &failure.message),
        Some(failure) => {
            blocked(plan, snapshot, &failure.message);
            wait_for_node(plan, urgency, failure);
        }
    }
    false
}

fn wait_for_node(plan: &mut Plan<Action>, urgency: &Urgency, failure: &NodeFailure) {
    let until = urgency.at_most(failure.retry_at());
    plan.wait(format!("the Node to be writable: {}", failure.message), Some(until));
}

/// The node condition `Terminating`. The phase is always Terminating by now, so health is read from the conditions.
fn announcement(snapshot: &Snapshot, node: &Node) -> serde_json::Value {
    let now = status::stamp(snapshot.now);
    let is_ready = node.status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
    let (reason, message) = if is_ready {
        ("ScaleDown", "Machine Controller empties the node because its machine is deleted")
    } else {
        ("Unhealthy", "Machine Controller empties the node because its machine is deleted after it was not healthy")
    };
    json!({ "status": { "conditions": [{
        "type": NodeConditionType::Terminating.as_str(), "status": "True", "reason": reason, "message": message,
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }] } })
}

fn empty(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    progress: Progress,
    urgency: &Urgency,
    node: &Node,
    pods: &[PodFacts],
) {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let mode = if urgency.is_forced() { Mode::Forced } else { Mode::Normal };
    let drain = drain::plan(name, pods, &snapshot.memory.pods, mode, urgency.limits, snapshot.now);
    if drain.is_done() {
        return finish(plan, snapshot, mode, drain.error(), name);
    }
    match drain.error() {
        Some(error) if mode == Mode::Normal => blocked(plan, snapshot, &error),
        None if mode == Mode::Normal && !drain.refused_by.is_empty() => {
            // Said once: pods that go one by one would make it a write for each.
            let budgets = drain.refused_by.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let story = format!("Evictions are refused by the disruption budget {budgets}. ");
            advance(plan, snapshot, Progress::Drain, &story, "others must see what the drain waits for");
        }
        None if progress != Progress::Drain => {
            let note = Note::normal(EventReason::Draining, format!("draining the Node {name} of {} pods", drain.pods));
            advance_noting(plan, snapshot, Progress::Drain, "", "pods have to go before the VM does", note);
        }
        Some(_) | None => {}
    }
    for (method, pod, report) in drain.calls {
        let (action, reason) = match method {
            Method::Evict => (Action::EvictPod(pod), "its Node is drained"),
            Method::Delete => (Action::DeletePod(pod), "its Node is drained, and the time for evictions is over"),
        };
        match report {
            Some(text) => plan.then_noting(action, reason, Note::warning(EventReason::DrainBlocked, text)),
            None => plan.then(action, reason),
        };
    }
    plan.waits.extend(drain.waits.into_iter().map(|mut wait| {
        wait.until = wait.until.map(|until| urgency.at_most(until));
        wait
    }));
}

fn finish(plan: &mut Plan<Action>, snapshot: &Snapshot, mode: Mode, error: Option<String>, node: &str) {
    let note = Note::normal(EventReason::Drained, format!("the Node {node} is drained"));
    match (mode, error) {
        (Mode::Normal, _) => {
            let reason = "nothing is left on the Node";
            advance_noting(plan, snapshot, Progress::DeleteVm, "Drain successful. ", reason, note);
        }
        (Mode::Forced, None) => {
            let reason = "everything on the Node was told to go at once";
            advance_noting(plan, snapshot, Progress::DetachVolumes, "Force Drain successful. ", reason, note);
        }
        (Mode::Forced, Some(error)) => go_on_undrained(plan, snapshot, &error),
    }
}

/// A forced deletion does not stop for a drain.
fn go_on_undrained(plan: &mut Plan<Action>, snapshot: &Snapshot, error: &str) {
    let story =
        format!("Drain failed due to - {error}. However, since it's a force deletion shall continue deletion of VM. ");
    let note = Note::warning(EventReason::DrainBlocked, format!("going on without a complete drain: {error}"));
    advance_noting(plan, snapshot, Progress::DetachVolumes, &story, "the deletion is forced", note);
}

fn blocked(plan: &mut Plan<Action>, snapshot: &Snapshot, error: &str) {
    let story = format!("Drain failed due to - {error}. Will retry in next sync. ");
    stall(plan, snapshot, Progress::Drain, &story, Note::warning(EventReason::DrainBlocked, error));
}
