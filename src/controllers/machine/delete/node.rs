//! The last part of a deletion: the Node object, then the finalizer of the Machine.

use std::sync::Arc;

use serde_json::json;

use super::record::{advance, record_blocked};
use crate::{
    machine::{
        Action, Snapshot,
        memory::NodeWrite,
        progress::DeletionProgress,
        steps::{delete_token, is_node_certain, wait_for_nodes},
        views::TargetNodeView,
    },
    object::finalizer,
};
use mcm_api::{labels, node::Node, reasons::EventReason};
use mcm_rules::plan::{Event, Plan, WaitKind};

/// Deletes the Node, if the Machine has one, then removes the finalizer of the Machine.
pub(super) fn plan(plan: &mut Plan<Action>, snapshot: &Snapshot, progress: DeletionProgress) {
    if progress == DeletionProgress::Release {
        return remove_finalizer(plan, snapshot);
    }
    match snapshot.own_node() {
        TargetNodeView::Present(node) => delete_node(plan, snapshot, &node),
        // Without a name there is no Node: until the VM was deleted, no Node had the Machine's name in its label.
        _ if snapshot.machine.node_name().is_none() => remove_finalizer(plan, snapshot),
        // Its VM no longer exists, and nothing showed that this Node was its own.
        TargetNodeView::Unknown if snapshot.unproven().is_some() => remove_finalizer(plan, snapshot),
        TargetNodeView::Unknown if progress < DeletionProgress::DeleteNode => {
            let story = "VM deletion was successful. ";
            advance(plan, snapshot, DeletionProgress::DeleteNode, story, "the VM is deleted");
        }
        TargetNodeView::Unknown => wait_for_nodes(plan, snapshot),
        TargetNodeView::Missing => drop(is_node_certain(plan, snapshot, "a Node of this Machine may still exist")),
        TargetNodeView::Absent | TargetNodeView::NoTarget => remove_finalizer(plan, snapshot),
    }
}

fn delete_node(plan: &mut Plan<Action>, snapshot: &Snapshot, node: &Arc<Node>) {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let is_held = finalizer::has(&node.metadata, labels::NODE_FINALIZER);
    if !is_held && node.metadata.deletion_timestamp.is_some() {
        return release(plan, snapshot);
    }
    let purpose = if is_held { NodeWrite::RemoveFinalizer } else { NodeWrite::Delete };
    if let Some(failure) = snapshot.memory.node_failure_of(purpose, snapshot.now) {
        let story = match purpose {
            NodeWrite::RemoveFinalizer => format!(
                "Removal of finalizers from Node Object \"{name}\" failed due to error: {}, Retrying. ",
                failure.message
            ),
            _ => format!("Deletion of Node Object \"{name}\" failed due to error: {}. ", failure.message),
        };
        let event = Event::warning(EventReason::DeleteFailed, story.trim_end());
        record_blocked(plan, snapshot, DeletionProgress::DeleteNode, &story, event);
        plan.wait(
            WaitKind::NodeWrite,
            format!("the deletion of Node {name} to succeed: {}", failure.message),
            Some(failure.retry_at()),
        );
        return;
    }
    if is_held {
        let patch = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": [labels::NODE_FINALIZER] } });
        plan.then(
            Action::StrategicPatchNode { node: node.clone(), patch, purpose },
            "the VM is deleted, so the Node can be deleted",
        );
    } else {
        plan.then(Action::DeleteNode(node.clone()), "the VM of the Node is deleted");
    }
}

fn remove_finalizer(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    // The Machine had another Node before, or its VM has joined under another name.
    if let Some(node) = snapshot.own_other_node()
        && (finalizer::has(&node.metadata, labels::NODE_FINALIZER) || node.metadata.deletion_timestamp.is_none())
    {
        return delete_node(plan, snapshot, node);
    }
    release(plan, snapshot);
}

fn release(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    if let Some(patch) = finalizer::remove(&snapshot.machine.metadata, labels::FINALIZER) {
        delete_token(plan, snapshot, "no VM will join with the token");
        let event = Event::normal(EventReason::Deleted, "VM and Node are deleted");
        plan.then_recording(Action::PatchMachine(patch), "VM and Node are deleted, nothing else is left", event);
    }
}
