//! Ties Nodes to Machines: deleting a Node replaces its Machine, a Node with a Machine is held, one without is left alone.

mod plan;
mod reconcile;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

pub use plan::{gone, plan};
pub use reconcile::{follow_gone, reconcile};

use crate::api::{machine::Machine, node::Node};

/// Everything a plan for a Node is made from.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The Node.
    pub node: Arc<Node>,
    /// The Machines whose label `node` is its name.
    pub machines: Vec<Arc<Machine>>,
    /// Whether the Machines above are all there are: the cache is filled, and every Machine could be read.
    pub machines_complete: bool,
    /// The time.
    pub now: Timestamp,
}

/// What the operator chose for all Nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How old a Node without a Machine becomes before it is declared not managed (`--machine-creation-timeout`).
    pub creation_timeout: SignedDuration,
    /// How old a Node with a Machine becomes before its finalizer is added here. Until then the Machine controller is
    /// expected to add it, in one patch with the labels.
    pub finalizer_grace: SignedDuration,
}

/// What can be done for a Node. Patches are JSON merge patches; the shell adds `metadata.resourceVersion` as a precondition.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Delete the Machine of the Node, with its UID as precondition; its set replaces it.
    DeleteMachine(Arc<Machine>),
    /// Patch of the Node's metadata: finalizers and annotations.
    PatchNode(Value),
}
