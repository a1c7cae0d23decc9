//! The node condition `Preserved`. Its text stores whether the Node was drained, as in the reference.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{Action, NodeWrite, Snapshot, status};
use mcm_api::{
    machine::PreserveMode,
    node::{Node, NodeCondition},
    reasons::{EventReason, NodeConditionType, PreservedReason},
};
use mcm_rules::plan::{Event, Plan};

/// Texts of the reference, which it searches for.
const DRAINED: &str = "Preserved node drained successfully.";
const UNDRAINED: &str = "Preserved node could not be drained.";

/// The preservation that the condition of a Node shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PreservedCondition {
    /// Nothing, or that a preservation ended.
    Nothing,
    /// It is preserved, and no drain was needed.
    Kept,
    /// It is preserved and drained.
    Drained,
    /// It could not be drained so far.
    Undrained,
}

impl PreservedCondition {
    pub fn from_node(node: &Node) -> Self {
        let Some(condition) = preserved_condition(node) else { return Self::Nothing };
        let says = |text: &str| condition.message.as_ref().is_some_and(|message| message.contains(text));
        match condition.status.as_str() {
            _ if says(UNDRAINED) => Self::Undrained,
            "True" if says(DRAINED) => Self::Drained,
            "True" => Self::Kept,
            _ => Self::Nothing,
        }
    }
}

fn preserved_condition(node: &Node) -> Option<&NodeCondition> {
    node.status.conditions.iter().find(|condition| condition.type_ == NodeConditionType::Preserved.as_str())
}

/// The condition shows that the preservation ended.
pub(super) fn is_told_stopped(node: &Node) -> bool {
    preserved_condition(node).is_some_and(|condition| {
        condition.status == "False" && condition.reason.as_deref() == Some(PreservedReason::Stopped.as_str())
    })
}

/// Sets the condition. `error` is why the drain has not succeeded.
pub(super) fn tell(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    node: &Arc<Node>,
    told: &PreservedCondition,
    (mode, expiry): (PreserveMode, Timestamp),
    error: Option<&str>,
) {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let (purpose, text, reason, event) = match told {
        PreservedCondition::Drained => {
            let event =
                Event::normal(EventReason::Drained, format!("Node {name} is drained, its Machine is preserved"));
            (NodeWrite::TellDrained, Some(DRAINED), "no pod is left to drain", Some(event))
        }
        PreservedCondition::Undrained => {
            let event = Event::warning(EventReason::DrainBlocked, error.unwrap_or_default());
            (NodeWrite::TellPreserved, Some(UNDRAINED), "the condition shows that the drain is blocked", Some(event))
        }
        PreservedCondition::Kept | PreservedCondition::Nothing => {
            (NodeWrite::TellPreserved, None, "the condition shows that the Machine is preserved", None)
        }
    };
    let status = if *told == PreservedCondition::Undrained { "False" } else { "True" };
    let until = format!("Machine preserved until {expiry}.");
    let texts = [Some(until.as_str()), text, error].into_iter().flatten().collect::<Vec<_>>();
    let by = if mode == PreserveMode::Auto { PreservedReason::ByMcm } else { PreservedReason::ByUser };
    let patch = patch(node, status, by, &texts.join(" "), snapshot.now);
    let action = Action::PatchNodeStatus { node: Arc::clone(node), patch, purpose };
    match event {
        Some(event) => plan.then_recording(action, reason, event),
        None => plan.then(action, reason),
    };
}

/// Sets the condition to show that the preservation ended.
pub(super) fn tell_stopped(plan: &mut Plan<Action>, snapshot: &Snapshot, node: &Arc<Node>) {
    let patch = patch(node, "False", PreservedReason::Stopped, "The machine is no longer preserved.", snapshot.now);
    let action = Action::PatchNodeStatus { node: Arc::clone(node), patch, purpose: NodeWrite::TellPreserved };
    plan.then(action, "the condition shows that the preservation ended");
}

fn patch(node: &Node, status: &str, reason: PreservedReason, message: &str, now: Timestamp) -> Value {
    let is_same =
        |before: &&NodeCondition| before.status == status && before.reason.as_deref() == Some(reason.as_str());
    let since = preserved_condition(node).filter(is_same).and_then(|before| before.last_transition_time);
    let since = since.map_or_else(|| status::stamp(now), Into::into);
    json!({ "status": { "conditions": [{
        "type": NodeConditionType::Preserved.as_str(), "status": status, "reason": reason.as_str(), "message": message,
        "lastHeartbeatTime": status::stamp(now), "lastTransitionTime": since,
    }] } })
}
