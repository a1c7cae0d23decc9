//! The in-place update of a Node, as its labels and its condition `InPlaceUpdate` show it. The deployment controller
//! writes the labels, the machine controller the condition, and the agent on the Node the result.

use kube::ResourceExt;

use mcm_api::{
    labels,
    machine::Machine,
    node::{Node, NodeCondition},
    reasons::{InPlaceUpdateReason, NodeConditionType},
    sharing::SharedText,
};

/// The result of an update, as the agent on the Node reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateResult {
    Successful,
    Failed,
}

const REASONS: [InPlaceUpdateReason; 6] = [
    InPlaceUpdateReason::CandidateForUpdate,
    InPlaceUpdateReason::SelectedForUpdate,
    InPlaceUpdateReason::DrainSuccessful,
    InPlaceUpdateReason::ReadyForUpdate,
    InPlaceUpdateReason::UpdateSuccessful,
    InPlaceUpdateReason::UpdateFailed,
];

/// A condition shows the progress of an update.
pub(crate) fn is_progress(condition: &NodeCondition) -> bool {
    condition.type_ == NodeConditionType::InPlaceUpdate.as_str()
}

/// The condition `InPlaceUpdate`, if it exists.
pub(crate) fn condition_of(conditions: &[NodeCondition]) -> Option<&NodeCondition> {
    conditions.iter().find(|condition| is_progress(condition) && condition.status == "True")
}

/// The progress of the update, from the conditions of a Node or their copy on a Machine; `None` if there was none yet.
pub fn progress_of(conditions: &[NodeCondition]) -> Option<InPlaceUpdateReason> {
    let reason = condition_of(conditions)?.reason.as_deref()?;
    REASONS.into_iter().find(|known| known.as_str() == reason)
}

/// Its Machine belongs to an old set of a deployment that is updated in place.
pub fn is_candidate(node: &Node) -> bool {
    label(node, labels::CANDIDATE_FOR_UPDATE).is_some()
}

/// The Node is to be drained and updated.
pub fn is_selected(node: &Node) -> bool {
    label(node, labels::SELECTED_FOR_UPDATE).is_some()
}

/// The result; `None` before the update ends.
pub fn result_of(node: &Node) -> Option<UpdateResult> {
    match label(node, labels::UPDATE_RESULT)? {
        labels::SUCCESSFUL => Some(UpdateResult::Successful),
        labels::FAILED => Some(UpdateResult::Failed),
        _ => None,
    }
}

/// The Node of a Machine was updated: the Machine moves to the set of the current template, or just did.
pub(crate) fn was_updated(machine: &Machine) -> bool {
    machine.labels().get(labels::UPDATE_RESULT).is_some_and(|result| result == labels::SUCCESSFUL)
}

/// The reason of the failure in the agent's report; empty without one.
pub(crate) fn failure_of(node: &Node) -> &str {
    node.annotations().get(labels::UPDATE_FAILED_REASON).map_or("", SharedText::as_str)
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.labels().get(key).map(SharedText::as_str)
}
