//! Copies the Node's request for preservation to the Machine, because sets read no Nodes.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    super::{Action, Snapshot, TargetNodeView, steps::set},
    wish::{PreservationNode, copy_of, is_copied, of_node},
};
use mcm_api::{
    labels,
    machine::{Machine, MachinePhase, NOT_PRESERVED, PreserveMode},
};
use mcm_rules::plan::Plan;

/// Copies the annotation of the Node to the Machine, and removes the copy when the annotation is removed. Planned
/// before anything else, so that a Machine never becomes Failed before its set can see that it has to be kept.
pub(in super::super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    let machine = &snapshot.machine;
    match PreservationNode::from_snapshot(snapshot) {
        PreservationNode::Unsure if is_copied(machine) && snapshot.node == TargetNodeView::Missing => {
            plan.then(
                Action::GetNode(snapshot.node_key()),
                "the copied annotation is removed only if there is no Node",
            );
        }
        PreservationNode::Going | PreservationNode::Unsure => {}
        PreservationNode::NoNode if snapshot.has_target() && is_copied(machine) => {
            let patch = json!({ "metadata": { "annotations": { labels::LAST_NODE_PRESERVE: null } } });
            plan.then(Action::PatchMachine(patch), "there is no Node, so the Machine's own annotation counts");
        }
        PreservationNode::NoNode => {}
        PreservationNode::Node(node) => match of_node(&node) {
            Some(word) if PreserveMode::parse(word).is_none() => {}
            Some(word) if copy_of(machine) != Some(word) || has_own(machine) => {
                let patch = changed(machine, Some(word), None);
                let reason =
                    format!("its Node has the annotation {}={word}, which replaces the Machine's", labels::PRESERVE);
                plan.then(Action::PatchMachine(patch), reason);
            }
            None if is_copied(machine) => {
                let patch = changed(machine, None, forgotten(machine, snapshot.now));
                plan.then(
                    Action::PatchMachine(patch),
                    "its Node has no annotation that asks for a preservation any more",
                );
            }
            _ => {}
        },
    }
    plan
}

/// The value left in the Machine's annotation after its request was fulfilled: none, or `false` if the Machine failed
/// and its time is over. Otherwise its set would preserve it again.
pub(super) fn forgotten(machine: &Machine, now: Timestamp) -> Option<&'static str> {
    let is_expired = machine.preserve_expiry().is_some_and(|expiry| expiry <= now);
    (machine.phase() == MachinePhase::Failed && is_expired).then_some(NOT_PRESERVED)
}

/// The patch to this copy and this annotation of the Machine.
pub(super) fn changed(machine: &Machine, copy: Option<&str>, own: Option<&str>) -> Value {
    let mut patch = Value::Null;
    for (key, wanted) in [(labels::LAST_NODE_PRESERVE, copy), (labels::PRESERVE, own)] {
        let stored = machine.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        if stored != wanted {
            set(&mut patch, &["metadata", "annotations", key], wanted);
        }
    }
    patch
}

fn has_own(machine: &Machine) -> bool {
    machine.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(labels::PRESERVE))
}
