//! In-place updates of a Node whose Machine stays.
//!
//! | Condition `InPlaceUpdate` of the Node | Action |
//! |---|---|
//! | `CandidateForUpdate` | the label `selected-for-update` is awaited |
//! | `SelectedForUpdate` | the Node is cordoned and drained, then the Machine is `InPlaceUpdating` |
//! | `DrainSuccessful` | `ReadyForUpdate` follows |
//! | `ReadyForUpdate` | the agent on the Node updates it and sets the label `update-result` |
//! | `UpdateSuccessful`, `UpdateFailed` | the deployment takes the Machine over, or the health timeout runs |
//!
//! The reason of the condition is the only state, so every process can continue from every moment.

mod condition;
mod drain;

use crate::{
    machine::{Action, MachinePolicy, Snapshot, conditions, status},
    object::in_place::{self, UpdateResult},
};
use condition::{enter, node_of};
use mcm_api::{
    machine::{MachinePhase, MachineStatus, OperationState, OperationType},
    node::{Node, NodeCondition},
    reasons::{EventReason, InPlaceUpdateReason as Reason},
};
use mcm_rules::plan::{Event, Plan, WaitKind};

pub(in super::super) use drain::forced_from;

/// Plans the next step of the in-place update of the Machine's own Node.
pub(in super::super) fn plan(snapshot: &Snapshot, policy: &MachinePolicy) -> Plan<Action> {
    let mut plan = Plan::default();
    let Some(node) = node_of(snapshot) else { return plan };
    let progress = in_place::progress_of(&node.status.conditions);
    match (next_of(&node, progress), progress) {
        (Some(next), _) => enter(&mut plan, snapshot, &node, next),
        (None, Some(Reason::SelectedForUpdate)) => drain::plan(&mut plan, snapshot, policy, &node),
        (None, Some(Reason::DrainSuccessful)) => enter(&mut plan, snapshot, &node, Reason::ReadyForUpdate),
        (None, Some(Reason::CandidateForUpdate)) if in_place::is_candidate(&node) => {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            plan.wait(WaitKind::InPlaceUpdate, format!("Node {name} to be selected for its in-place update"), None);
        }
        _ => {}
    }
    plan
}

/// The Node is selected, drained or updated now: nothing else is done to it.
pub(in super::super) fn is_under_way(snapshot: &Snapshot) -> bool {
    let progress = node_of(snapshot).and_then(|node| in_place::progress_of(&node.status.conditions));
    matches!(progress, Some(Reason::SelectedForUpdate | Reason::DrainSuccessful | Reason::ReadyForUpdate))
}

/// The conditions to store: those of the Node, what is refused on it, and while it is drained for its update, what is in
/// the way of that.
pub(super) fn conditions_of(node: &Node, stored: &MachineStatus, watched: &[String]) -> Vec<NodeCondition> {
    let blocked = if drain::is_due(node) { conditions::drain_blocked(&stored.conditions) } else { None };
    let ours = blocked.into_iter().chain(conditions::node_refused(&stored.conditions)).cloned();
    conditions::storable(&node.status.conditions, watched).chain(ours).collect()
}

/// Reads the result of the update from the Node of a Machine that is updated. True if the phase changes.
pub(super) fn take_result(plan: &mut Plan<Action>, snapshot: &Snapshot, node: &Node, next: &MachineStatus) -> bool {
    let (name, now, mut next) = (snapshot.name(), snapshot.now, next.clone());
    let (phase, operation, event) = match (in_place::result_of(node), &next.current_status.phase) {
        (Some(UpdateResult::Successful), _) => {
            let text = format!("Machine {name} successfully updated dependencies");
            let done = OperationState::Successful;
            let operation = status::operation(OperationType::InPlaceUpdate, done, text.clone(), now);
            let event = Event::normal(EventReason::InPlaceUpdated, text);
            (MachinePhase::InPlaceUpdateSuccessful, operation, event)
        }
        (Some(UpdateResult::Failed), MachinePhase::InPlaceUpdating) => {
            let text = format!("Machine {name} failed to update dependencies: {}", in_place::failure_of(node));
            let operation = status::failed_operation(OperationType::InPlaceUpdate, None, text.clone(), now);
            let event = Event::warning(EventReason::InPlaceUpdateFailed, text);
            (MachinePhase::InPlaceUpdateFailed, operation, event)
        }
        (Some(UpdateResult::Failed) | None, _) => return false,
    };
    next.last_operation = operation;
    let runs_out = phase == MachinePhase::InPlaceUpdateFailed;
    status::enter(&mut next, phase, runs_out, now);
    let action = Action::WriteStatus(Box::new(next));
    plan.then_recording(action, "the agent on the Node reported the result of the in-place update", event);
    true
}

/// The Machine failed because of its update, so its set replaces it although its Node is healthy. Only a late success
/// saves it.
pub(super) fn has_failed(status: &MachineStatus, node: &Node) -> bool {
    status.current_status.phase == MachinePhase::Failed
        && status.last_operation.type_ == Some(OperationType::InPlaceUpdate)
        && in_place::result_of(node) != Some(UpdateResult::Successful)
}

/// The progress that the labels of the Node demand, if it is another one.
fn next_of(node: &Node, progress: Option<Reason>) -> Option<Reason> {
    if !in_place::is_candidate(node) {
        return None;
    }
    let result = in_place::result_of(node);
    match progress {
        None => Some(Reason::CandidateForUpdate),
        // The deployment removed the result: the next update.
        Some(Reason::UpdateSuccessful) if result.is_none() => Some(Reason::CandidateForUpdate),
        Some(Reason::CandidateForUpdate) if in_place::is_selected(node) => Some(Reason::SelectedForUpdate),
        // It is drained first.
        Some(Reason::SelectedForUpdate) if in_place::is_selected(node) => None,
        Some(progress) => {
            let reported = match result? {
                UpdateResult::Successful => Reason::UpdateSuccessful,
                UpdateResult::Failed => Reason::UpdateFailed,
            };
            (reported != progress).then_some(reported)
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use mcm_api::labels::{
        CANDIDATE_FOR_UPDATE as CANDIDATE, SELECTED_FOR_UPDATE as SELECTED, UPDATE_RESULT as RESULT,
    };

    #[rstest]
    #[case::not_a_candidate(None, &[(SELECTED, "true")], None)]
    #[case::candidate(None, &[(CANDIDATE, "true")], Some(Reason::CandidateForUpdate))]
    #[case::known(Some(Reason::CandidateForUpdate), &[(CANDIDATE, "true")], None)]
    #[case::the_next_update(Some(Reason::UpdateSuccessful), &[(CANDIDATE, "true")], Some(Reason::CandidateForUpdate))]
    #[case::the_last_result_is_still_there(Some(Reason::UpdateSuccessful), &[(CANDIDATE, "true"), (RESULT, "successful")], None)]
    #[case::selected(Some(Reason::CandidateForUpdate), &[(CANDIDATE, "true"), (SELECTED, "true")], Some(Reason::SelectedForUpdate))]
    #[case::being_drained(Some(Reason::SelectedForUpdate), &[(CANDIDATE, "true"), (SELECTED, "true"), (RESULT, "successful")], None)]
    #[case::selected_too_late(Some(Reason::UpdateFailed), &[(CANDIDATE, "true"), (SELECTED, "true")], None)]
    #[case::successful(Some(Reason::ReadyForUpdate), &[(CANDIDATE, "true"), (SELECTED, "true"), (RESULT, "successful")], Some(Reason::UpdateSuccessful))]
    #[case::without_a_selection(Some(Reason::CandidateForUpdate), &[(CANDIDATE, "true"), (RESULT, "successful")], Some(Reason::UpdateSuccessful))]
    #[case::failed(Some(Reason::ReadyForUpdate), &[(CANDIDATE, "true"), (SELECTED, "true"), (RESULT, "failed")], Some(Reason::UpdateFailed))]
    #[case::failed_already(Some(Reason::UpdateFailed), &[(CANDIDATE, "true"), (SELECTED, "true"), (RESULT, "failed")], None)]
    #[case::after_all(Some(Reason::UpdateFailed), &[(CANDIDATE, "true"), (SELECTED, "true"), (RESULT, "successful")], Some(Reason::UpdateSuccessful))]
    #[case::not_a_result(Some(Reason::ReadyForUpdate), &[(CANDIDATE, "true"), (SELECTED, "true"), (RESULT, "perhaps")], None)]
    fn the_condition_follows_the_labels(
        #[case] progress: Option<Reason>,
        #[case] labels: &[(&str, &str)],
        #[case] expected: Option<Reason>,
    ) {
        let mut node = Node::default();
        node.metadata.labels = Some(labels.iter().copied().collect());
        assert_eq!(next_of(&node, progress), expected);
    }
}
