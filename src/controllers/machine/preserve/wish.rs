//! The preservation that the annotations of a Machine and of its Node request.

use std::sync::Arc;

use super::super::{Snapshot, TargetNodeView};
use mcm_api::{
    labels,
    machine::{Machine, PreserveMode},
    node::Node,
};

/// The observed state of the Node to preserve.
pub(super) enum PreservationNode {
    /// It certainly does not exist, it belongs to another Machine, or there is no target.
    NoNode,
    /// It is not certain whether it exists.
    Unsure,
    /// It is being deleted, and so will be the Machine.
    Going,
    /// It exists.
    Node(Arc<Node>),
}

impl PreservationNode {
    pub fn from_snapshot(snapshot: &Snapshot) -> Self {
        if snapshot.machine.node_name().is_none() {
            return Self::NoNode;
        }
        match snapshot.own_node() {
            TargetNodeView::NoTarget | TargetNodeView::Absent => Self::NoNode,
            TargetNodeView::Unknown | TargetNodeView::Missing => Self::Unsure,
            TargetNodeView::Present(node) if node.metadata.deletion_timestamp.is_some() => Self::Going,
            TargetNodeView::Present(node) => Self::Node(node),
        }
    }
}

/// The requested preservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PreservationRequest {
    /// Nothing, or this.
    Asked(Option<PreserveMode>),
    /// The annotation of the Node has a value that means nothing.
    Misspelt(String),
}

impl PreservationRequest {
    /// The Node's annotation takes precedence. If it was set and then removed, nothing is requested. Without a Node,
    /// the Machine's annotation counts.
    pub fn for_machine(machine: &Machine, node: Option<&Node>) -> Self {
        match node.map(of_node) {
            Some(Some(word)) => match PreserveMode::parse(word) {
                None => Self::Misspelt(word.to_owned()),
                mode => Self::Asked(mode),
            },
            Some(None) if is_copied(machine) => Self::Asked(None),
            Some(None) | None => Self::Asked(machine.preserve_mode()),
        }
    }
}

/// The annotation of the Node. An empty one counts as absent.
pub fn of_node(node: &Node) -> Option<&str> {
    let value = node.annotations().get(labels::PRESERVE)?.as_str();
    (!value.is_empty()).then_some(value)
}

/// The Node's annotation is in control, or was.
pub(super) fn is_copied(machine: &Machine) -> bool {
    copy_of(machine).is_some_and(|value| !value.is_empty())
}

/// The Node's annotation as it was last copied.
pub(super) fn copy_of(machine: &Machine) -> Option<&str> {
    machine.metadata.annotations.as_ref()?.get(labels::LAST_NODE_PRESERVE).map(String::as_str)
}
