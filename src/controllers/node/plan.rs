use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::{
    Action, Memory, NodeMarkChange, NodePolicy, ObservedNode, Snapshot,
    gone::{self, replace, wait_for_one},
};
use crate::object::finalizer;
use mcm_api::{
    labels::{MACHINE_NAME, NODE_FINALIZER, NOT_MANAGED},
    machine::Machine,
    node::Node,
    sharing::SharedText,
};
use mcm_rules::plan::{Plan, PlanInput, SentPatch, WaitKind};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self, &self.policy)
    }

    fn sent_patch<'a>(&'a self, action: &'a Action) -> Option<SentPatch<'a>> {
        match (action, &self.subject) {
            (Action::PatchNode { patch, .. }, ObservedNode::Present(node)) => Some(SentPatch::new(&**node, patch)),
            _ => None,
        }
    }

    fn subject(action: &Action) -> Option<mcm_rules::plan::SubjectRef> {
        action.subject()
    }
}

/// Plans the next steps for a Node.
pub fn plan(snapshot: &Snapshot, policy: &NodePolicy) -> Plan<Action> {
    let node = match &snapshot.subject {
        ObservedNode::Present(node) => node.as_ref(),
        ObservedNode::Gone { node, exists, permit } => {
            return gone::plan(snapshot, policy, node, exists.as_ref(), permit);
        }
    };
    let mut plan = Plan::default();
    let is_deleting = node.metadata.deletion_timestamp.is_some();
    match snapshot.machines.as_slice() {
        [] if !snapshot.machines_complete => {
            plan.wait(
                WaitKind::Unreadable,
                "all machines to become readable, because one of them may have this node",
                None,
            );
        }
        [] if is_claimed(snapshot, node) => probe_claim(&mut plan, snapshot, policy, node),
        [] if !snapshot.unproven.is_empty() => {
            let names: Vec<String> = snapshot.unproven.iter().map(|machine| machine.name_any()).collect();
            let text = format!("evidence that the node is that of machine {}", names.join(", "));
            plan.wait(WaitKind::NodeClaim, text, None);
        }
        [] if is_deleting || is_not_managed(node) => {
            if let Some(patch) = finalizer::remove(&node.metadata, NODE_FINALIZER) {
                plan.then(Action::PatchNode { patch, mark: NodeMarkChange::Leave }, "no machine has the node");
            }
        }
        [] if !policy.marks_strangers => {}
        [] => declare_not_managed(&mut plan, snapshot, policy, node),
        [machine] if is_deleting => {
            unmark(&mut plan, snapshot, node, None, &machine.name_any());
            replace(&mut plan, machine, &node.name_any(), "is being deleted");
        }
        [machine] => hold(&mut plan, snapshot, policy, node, machine),
        several => wait_for_one(&mut plan, several),
    }
    plan
}

/// Its label names a Machine that this manager does not have and never had.
fn is_claimed(snapshot: &Snapshot, node: &Node) -> bool {
    let owner = node.labels().get(MACHINE_NAME).filter(|owner| !owner.is_empty());
    owner.is_some_and(|owner| {
        snapshot.memory.former_machine.as_deref() != Some(owner.as_str())
            && !snapshot.unproven.iter().any(|machine| *owner == machine.name_any())
    })
}

/// The mark requests its removal by the manager that has the Machine.
fn probe_claim(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &NodePolicy, node: &Node) {
    let owner = node.labels().get(MACHINE_NAME).map(SharedText::as_str).unwrap_or_default();
    match (is_not_managed(node), snapshot.memory.marked_at) {
        (false, Some(_)) => {
            plan.wait(
                WaitKind::NodeClaim,
                format!("the manager of machine {owner}: this manager ignores the node"),
                None,
            );
        }
        (false, None) => {
            let is_deleting = node.metadata.deletion_timestamp.is_some();
            let due = after(created_at(snapshot, node), policy.creation_timeout).filter(|due| *due > snapshot.now);
            match due {
                Some(due) if !is_deleting => {
                    plan.wait(WaitKind::NodeClaim, "a machine to claim the node", Some(due));
                }
                _ => {
                    let patch = marks(None, Some(json!("1")));
                    let reason = format!(
                        "machine {owner} is unknown here; the manager of that machine will remove the annotation"
                    );
                    plan.then(Action::PatchNode { patch, mark: NodeMarkChange::Put }, reason);
                }
            }
        }
        (true, None) => {
            plan.then(Action::RememberMark, "the manager of that machine will remove the annotation");
        }
        (true, Some(since)) => {
            let Some(patch) = finalizer::remove(&node.metadata, NODE_FINALIZER) else { return };
            match after(Some(since), policy.creation_timeout).filter(|due| *due > snapshot.now) {
                Some(due) => {
                    let text = format!("the manager of machine {owner} to remove the annotation not-managed-by-mcm");
                    plan.wait(WaitKind::NodeClaim, text, Some(due));
                }
                None => {
                    let reason = format!("no manager has machine {owner}");
                    // A manager that has the Machine after all adds the finalizer again: once per timeout, not in a loop.
                    plan.then(Action::PatchNode { patch, mark: NodeMarkChange::Renew }, reason);
                }
            }
        }
    }
}

/// Sets the mark and removes the finalizer in one patch, because a second patch would conflict.
fn declare_not_managed(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &NodePolicy, node: &Node) {
    if snapshot.memory.marked_at.is_some() {
        plan.wait(
            WaitKind::NodeClaim,
            "the manager that removed the annotation not-managed-by-mcm: this manager ignores the node",
            None,
        );
        return;
    }
    match after(created_at(snapshot, node), policy.creation_timeout) {
        // `<=`: a wait until now would requeue without a pause.
        Some(due) if due <= snapshot.now => {
            let patch = marks(finalizer::without(&node.metadata, NODE_FINALIZER), Some(json!("1")));
            let reason = "no machine has claimed the node within the creation timeout";
            plan.then(Action::PatchNode { patch, mark: NodeMarkChange::Put }, reason);
        }
        due => {
            plan.wait(WaitKind::NodeClaim, "a machine to claim the node", due);
        }
    }
}

fn hold(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &NodePolicy, node: &Node, machine: &Machine) {
    let name = machine.name_any();
    let finalizers = if machine.is_terminating() { None } else { finalizer::with(&node.metadata, NODE_FINALIZER) };
    if unmark(plan, snapshot, node, finalizers.clone(), &name) || finalizers.is_none() {
        return;
    }
    match after(created_at(snapshot, node), policy.finalizer_grace) {
        Some(due) if due > snapshot.now => {
            plan.wait(WaitKind::NodeClaim, format!("machine {name} to add the finalizer to the node"), Some(due));
        }
        _ => {
            let patch = marks(finalizers, None);
            plan.then(
                Action::PatchNode { patch, mark: NodeMarkChange::Leave },
                format!("the node must not be deleted before machine {name}"),
            );
        }
    }
}

/// Removes the mark, with a growing pause if another manager sets it again. True if it is removed.
fn unmark(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    node: &Node,
    finalizers: Option<Vec<String>>,
    machine: &str,
) -> bool {
    if !is_not_managed(node) {
        return false;
    }
    match unmark_due(&snapshot.memory).filter(|due| *due > snapshot.now) {
        Some(due) => {
            plan.wait(
                WaitKind::NodeClaim,
                "the next attempt to remove the annotation not-managed-by-mcm, which another manager sets again",
                Some(due),
            );
            false
        }
        None => {
            let action =
                Action::PatchNode { patch: marks(finalizers, Some(Value::Null)), mark: NodeMarkChange::Remove };
            plan.then(action, format!("machine {machine} has the node"));
            true
        }
    }
}

/// When the mark may be removed again: 1, 2, 4, 8, then 15 minutes after the last removal.
fn unmark_due(memory: &Memory) -> Option<Timestamp> {
    let minutes = 1_i64 << memory.unmarked.saturating_sub(1).min(4);
    after(memory.unmarked_at, SignedDuration::from_mins(minutes.min(15)))
}

/// The annotation counts with any value, because users set it too.
fn is_not_managed(node: &Node) -> bool {
    node.annotations().contains_key(NOT_MANAGED)
}

/// By the clock of the control cluster.
fn created_at(snapshot: &Snapshot, node: &Node) -> Option<Timestamp> {
    node.creation_timestamp()?.0.checked_sub(snapshot.target_ahead).ok()
}

fn after(time: Option<Timestamp>, duration: SignedDuration) -> Option<Timestamp> {
    time?.checked_add(duration).ok()
}

fn marks(finalizers: Option<Vec<String>>, not_managed: Option<Value>) -> Value {
    let mut metadata = Map::new();
    if let Some(finalizers) = finalizers {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
    if let Some(value) = not_managed {
        metadata.insert("annotations".to_owned(), json!({ NOT_MANAGED: value }));
    }
    json!({ "metadata": metadata })
}
