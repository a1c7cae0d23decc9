//! The drain of the Node during a deletion: connects the Machine with the rules in `mcm_rules::drain`.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::{
    record::{advance, advance_recording, record_blocked},
    vm::delete_vm,
};
use crate::machine::{
    Action, DrainReason, MachinePolicy, Snapshot, drain_node,
    memory::{NodeWrite, VmCall},
    policy::after,
    progress::DeletionProgress,
    status,
    steps::{is_node_certain, wait_for_write},
    views::{PodsView, SecretView, TargetNodeView},
};
use mcm_api::{
    labels,
    node::Node,
    reasons::{EventReason, NodeConditionType},
    syntax,
};
use mcm_rules::{
    drain::{DrainMode, DrainPlan, DrainPolicy, DrainPreparation, PodFacts, VolumeTracker, policy as drain_policy},
    plan::{Event, Plan, WaitKind, counted},
    safety::node_claim,
};

/// Drains the Machine's Node, by force if necessary, then advances to the deletion of the VM.
pub(super) fn plan(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy, progress: DeletionProgress) {
    let drain = drain_policy_of(snapshot, policy);
    let is_forced = drain.is_forced(snapshot.now);
    let node = match snapshot.own_node() {
        TargetNodeView::Present(node) => node,
        TargetNodeView::Unknown if is_forced => {
            return go_on_undrained(plan, snapshot, "the Nodes of the target cluster are unknown");
        }
        TargetNodeView::Unknown => {
            let (text, until) = snapshot.unknown_node();
            let until = until.map_or(drain.forced_from(), |until| Some(drain.at_most(until)));
            plan.wait(WaitKind::NodesUnknown, text, until);
            return;
        }
        TargetNodeView::Missing => {
            is_node_certain(
                plan,
                snapshot,
                "the drain is skipped only after a live read confirmed that the Node does not exist",
            );
            return;
        }
        TargetNodeView::Absent if !is_forced && awaits_volumes(plan, snapshot, policy, &drain) => return,
        TargetNodeView::Absent | TargetNodeView::NoTarget => {
            let reason = "there is no Node to drain";
            return advance(plan, snapshot, DeletionProgress::DeleteVm, "Drain successful. ", reason);
        }
    };
    if !is_prepared(plan, snapshot, &drain, &node) {
        return;
    }
    match &snapshot.learned.pods {
        PodsView::NotListed if is_forced && drain_node::delete_known_pods(plan, snapshot) => {}
        PodsView::NotListed => {
            let node = node.metadata.name.clone().unwrap_or_default();
            plan.then(Action::ListPods { node }, "the drain needs the current pods of the Node");
        }
        PodsView::Failed(error) if is_forced => go_on_undrained(plan, snapshot, error),
        PodsView::Failed(error) => {
            blocked(plan, snapshot, error);
            let until = after(snapshot.now, drain_node::LIST_AGAIN);
            plan.wait(
                WaitKind::PodList,
                format!("the list of the pods of the Node: {error}"),
                Some(drain.at_most(until)),
            );
        }
        PodsView::Listed(pods) => {
            let unread = snapshot.memory.volumes.unread(pods);
            if !is_forced && !unread.is_empty() && snapshot.learned.unread_volumes.is_none() {
                plan.then(
                    Action::ReadVolumes(unread),
                    "volumes determine the order of evictions, and the drain waits for them",
                );
                return;
            }
            drain_pods(plan, snapshot, progress, policy, &drain, &node, pods);
        }
    }
}

/// Waits for volumes whose Node object no longer exists: a cloud that deletes a VM under them may lose data. Without a Node
/// there is no pod to evict, and the VolumeAttachments show what is attached.
fn awaits_volumes(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy, drain: &DrainPolicy) -> bool {
    let Some(name) = snapshot.machine.node_name() else { return false };
    if snapshot.node != TargetNodeView::Absent || !node_claim::has_joined(&snapshot.machine) {
        return false;
    }
    match &snapshot.learned.pods {
        PodsView::NotListed => {
            let reason = "the Node object is gone, and volumes may still be attached to its VM";
            plan.then(Action::ListPods { node: name.to_owned() }, reason);
            true
        }
        PodsView::Failed(error) => {
            let until = drain.at_most(after(snapshot.now, drain_node::LIST_AGAIN));
            plan.wait(WaitKind::PodList, format!("the list of the pods of the Node: {error}"), Some(until));
            true
        }
        PodsView::Listed(_) => {
            let rest = drain_node::next(snapshot, policy, drain, name, &[], &snapshot.memory.pods);
            let is_done = rest.is_done();
            drain_node::append(plan, rest);
            !is_done
        }
    }
}

/// The drain is forced by now.
pub(super) fn is_forced(snapshot: &Snapshot, policy: &MachinePolicy) -> bool {
    drain_policy_of(snapshot, policy).is_forced(snapshot.now)
}

/// When the drain is forced; `None` if it is forced now, or the Machine is not being deleted.
pub(in super::super) fn forced_from(snapshot: &Snapshot, policy: &MachinePolicy) -> Option<Timestamp> {
    let policy = drain_policy_of(snapshot, policy);
    if snapshot.is_deleting() { policy.forced_from() } else { None }
}

fn drain_policy_of(snapshot: &Snapshot, policy: &MachinePolicy) -> DrainPolicy {
    let machine = &snapshot.machine;
    let since = machine.metadata.deletion_timestamp.as_ref().map_or(snapshot.now, |time| time.0);
    let label = machine.metadata.labels.as_ref().and_then(|map| map.get(DrainReason::Deletion.force_label()));
    drain_node::rules(snapshot, policy, since, label.is_some_and(|text| drain_policy::is_go_true(text)))
}

/// The Node has the condition `Terminating` and is cordoned. Otherwise adds the steps for that.
fn is_prepared(plan: &mut Plan<Action>, snapshot: &Snapshot, drain: &DrainPolicy, node: &Arc<Node>) -> bool {
    let is_forced = drain.is_forced(snapshot.now);
    for preparation in drain_policy::preparations(node) {
        let purpose = match preparation {
            DrainPreparation::Announce => NodeWrite::Announce,
            DrainPreparation::Cordon => NodeWrite::Cordon,
        };
        match (snapshot.memory.node_failure_of(purpose, snapshot.now), preparation) {
            (None, DrainPreparation::Announce) => {
                let action =
                    Action::PatchNodeStatus { node: node.clone(), patch: announcement(snapshot, node), purpose };
                plan.then(action, "the condition announces the deletion before the drain");
            }
            (None, DrainPreparation::Cordon) => {
                let mut patch = json!({ "spec": { "unschedulable": true } });
                if snapshot.is_mislabelled(node) && syntax::is_label_value(snapshot.name()) {
                    // When the Machine in the label is deleted, nothing else shows that the Node was not its own.
                    patch["metadata"] = json!({ "labels": { labels::MACHINE_NAME: snapshot.name() } });
                }
                let action = Action::StrategicPatchNode { node: node.clone(), patch, purpose };
                plan.then(action, "no new pods are scheduled to a Node that is drained");
            }
            // A forced drain does not need the condition.
            (Some(_), DrainPreparation::Announce) if is_forced => continue,
            (Some(failure), DrainPreparation::Cordon) if is_forced => go_on_undrained(plan, snapshot, &failure.message),
            (Some(failure), DrainPreparation::Announce) => {
                let error = &failure.message;
                let story = format!(
                    "Drain failed due to failure in update of node conditions - {error}. Will retry in next sync. "
                );
                let event = Event::warning(EventReason::DrainBlocked, error.as_str());
                record_blocked(plan, snapshot, DeletionProgress::Drain, &story, event);
                wait_for_write(plan, failure, drain.at_most(failure.retry_at()));
            }
            (Some(failure), DrainPreparation::Cordon) => {
                blocked(plan, snapshot, &failure.message);
                wait_for_write(plan, failure, drain.at_most(failure.retry_at()));
            }
        }
        return false;
    }
    true
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

fn drain_pods(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    progress: DeletionProgress,
    policy: &MachinePolicy,
    drain: &DrainPolicy,
    node: &Node,
    pods: &[PodFacts],
) {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let mode = drain.mode(snapshot.now);
    let drain = drain_node::next(snapshot, policy, drain, name, pods, &snapshot.memory.pods);
    if drain.is_done() && mode == DrainMode::Normal && is_quick(snapshot, progress, pods) {
        return delete_vm_at_once(plan, snapshot, policy, name);
    }
    if drain.is_done() {
        return finish_drain(plan, snapshot, mode, drain.error(), name, pods);
    }
    match drain.error() {
        Some(error) if mode == DrainMode::Normal => blocked(plan, snapshot, &error),
        None if mode == DrainMode::Normal && !drain.refused_by.is_empty() => {
            // Written once per set of budgets, not once per pod that terminates.
            let budgets = drain.refused_by.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let story = format!("Evictions are refused by the disruption budget {budgets}. ");
            advance(plan, snapshot, DeletionProgress::Drain, &story, "the status shows what the drain waits for");
        }
        None if progress != DeletionProgress::Drain => {
            let event =
                Event::normal(EventReason::Draining, announcement_of(&drain, &snapshot.memory.volumes, name, pods));
            advance_recording(
                plan,
                snapshot,
                DeletionProgress::Drain,
                "",
                "the pods are evicted before the VM is deleted",
                event,
            );
        }
        None if drain_node::is_condition_outdated(snapshot) => {
            advance(plan, snapshot, DeletionProgress::Drain, "", "no pod is blocked by a budget that can never be met");
        }
        Some(_) | None => {}
    }
    drain_node::append(plan, drain);
}

/// How much there is to do, and which volumes are not awaited.
fn announcement_of(drain: &DrainPlan, volumes: &VolumeTracker, node: &str, pods: &[PodFacts]) -> String {
    let ignored: Vec<String> =
        volumes.ignored(pods).iter().map(|(claim, reason)| format!("{claim} ({reason})")).collect();
    let ignored = match ignored.as_slice() {
        [] => String::new(),
        claims => format!("; not following the volumes of claims {}", claims.join(", ")),
    };
    format!("draining Node {node}: {}{ignored}", counted(drain.pods, "pod"))
}

/// The drain found nothing to do and nothing delays the deletion of the VM, so the end of the drain is not stored: after a
/// crash the drain is repeated. A status that was written before shows users where the deletion is, and is continued, and one that
/// shows a preservation is overwritten.
fn is_quick(snapshot: &Snapshot, progress: DeletionProgress, pods: &[PodFacts]) -> bool {
    let Snapshot { machine, learned, memory, .. } = snapshot;
    let is_delayed = learned.awaits_slot
        || matches!(learned.secret, SecretView::Failed(_))
        || memory.failure_of(VmCall::Delete).is_some_and(|failure| failure.error.call_again_in.is_some());
    progress == DeletionProgress::Start
        && machine.preserve_expiry().is_none()
        && !pods.iter().any(PodFacts::is_drained)
        && memory.volumes.still_attached(pods).is_empty()
        && !is_delayed
}

fn delete_vm_at_once(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy, node: &str) {
    delete_vm(plan, snapshot, policy);
    if let Some(step) = plan.steps.iter_mut().find(|step| step.action == Action::DeleteVm) {
        step.event = Some(drained(node));
    }
}

fn drained(node: &str) -> Event {
    Event::normal(EventReason::Drained, format!("Node {node} is drained"))
}

fn finish_drain(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    mode: DrainMode,
    error: Option<String>,
    node: &str,
    pods: &[PodFacts],
) {
    let event = drained(node);
    match (mode, error) {
        (DrainMode::Normal, _) => {
            let reason = match snapshot.memory.volumes.still_attached(pods).as_str() {
                "" => "no pod is left to drain, and no volume to wait for".to_owned(),
                names => format!("no pod is left to drain; volumes {names} were not detached in time"),
            };
            advance_recording(plan, snapshot, DeletionProgress::DeleteVm, "Drain successful. ", &reason, event);
        }
        (DrainMode::Forced, None) => {
            let reason = "the drain is forced and all pods were deleted";
            advance_recording(
                plan,
                snapshot,
                DeletionProgress::DetachVolumes,
                "Force Drain successful. ",
                reason,
                event,
            );
        }
        (DrainMode::Forced, Some(error)) => go_on_undrained(plan, snapshot, &error),
    }
}

/// A forced deletion continues without a complete drain.
fn go_on_undrained(plan: &mut Plan<Action>, snapshot: &Snapshot, error: &str) {
    let story =
        format!("Drain failed due to - {error}. However, since it's a force deletion shall continue deletion of VM. ");
    let event = Event::warning(EventReason::DrainBlocked, format!("continuing without a complete drain: {error}"));
    advance_recording(plan, snapshot, DeletionProgress::DetachVolumes, &story, "the deletion is forced", event);
}

fn blocked(plan: &mut Plan<Action>, snapshot: &Snapshot, error: &str) {
    let story = format!("Drain failed due to - {error}. Will retry in next sync. ");
    record_blocked(plan, snapshot, DeletionProgress::Drain, &story, Event::warning(EventReason::DrainBlocked, error));
}
