//! The condition `InPlaceUpdate` of a Node, whose reason is the progress of its update.

use std::sync::Arc;

use serde_json::json;

use crate::{
    machine::{Action, Snapshot, memory::NodeWrite, status, steps::is_refused, views::TargetNodeView},
    object::in_place,
};
use mcm_api::{
    node::Node,
    reasons::{EventReason, InPlaceUpdateReason as Reason, NodeConditionType},
};
use mcm_rules::plan::{Event, Plan};

/// The Node, if the Machine can be updated in place.
pub(super) fn node_of(snapshot: &Snapshot) -> Option<Arc<Node>> {
    match snapshot.own_node() {
        TargetNodeView::Present(node)
            if node.metadata.deletion_timestamp.is_none() && !snapshot.machine.is_terminating() =>
        {
            Some(node)
        }
        _ => None,
    }
}

/// Sets the reason of the condition.
pub(super) fn enter(plan: &mut Plan<Action>, snapshot: &Snapshot, node: &Arc<Node>, reason: Reason) {
    let purpose = NodeWrite::InPlaceUpdate;
    if is_refused(plan, snapshot, purpose) {
        return;
    }
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let (message, why) = match reason {
        Reason::CandidateForUpdate => {
            ("Node is a candidate for an in-place update".to_owned(), "the Node is a candidate")
        }
        Reason::SelectedForUpdate => ("Node is selected for an in-place update".to_owned(), "the Node was selected"),
        Reason::DrainSuccessful => ("Node is drained".to_owned(), "no pod is left to drain"),
        Reason::ReadyForUpdate => {
            ("Node is ready for its in-place update".to_owned(), "the agent on the Node begins at this condition")
        }
        Reason::UpdateSuccessful => ("Node is updated".to_owned(), "the agent on the Node reported success"),
        Reason::UpdateFailed => {
            (format!("Update failed: {}", in_place::failure_of(node)), "the agent on the Node reported a failure")
        }
    };
    let now = status::stamp(snapshot.now);
    let patch = json!({ "status": { "conditions": [{
        "type": NodeConditionType::InPlaceUpdate.as_str(), "status": "True", "reason": reason.as_str(),
        "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now,
    }] } });
    let action = Action::PatchNodeStatus { node: Arc::clone(node), patch, purpose };
    match reason {
        Reason::SelectedForUpdate => {
            let text = format!("draining Node {name} for its in-place update");
            plan.then_recording(action, why, Event::normal(EventReason::Draining, text))
        }
        _ => plan.then(action, why),
    };
}
