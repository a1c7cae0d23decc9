//! Rolls Machines from one template to the next: sets, revisions, surge, pause, scaling, status.

mod autoscaler;
mod conditions;
mod draft;
mod hash_label;
mod history;
mod naming;
mod nodes;
mod plan;
mod reconcile;
mod revision;
mod rollback;
mod rollout;
mod scale;
mod sets;
mod status;
mod steps;
#[cfg(test)]
mod tests;
mod validate;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

pub use plan::plan;
pub use reconcile::{Memory, reconcile};

use crate::api::{
    machine::{Machine, MachineDeployment, MachineDeploymentStatus, MachineSet},
    node::Node,
};

/// Everything a plan for a deployment is made from.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The deployment.
    pub deployment: Arc<MachineDeployment>,
    /// Sets of the namespace that the deployment controls, and those without a controller that its selector matches.
    pub sets: Vec<Arc<MachineSet>>,
    /// Machines controlled by those sets.
    pub machines: Vec<Arc<Machine>>,
    /// How many Machines each set may be creating right now, by its name: they take room before they can be seen. To be read
    /// before the Machines.
    pub coming: BTreeMap<String, usize>,
    /// Names of sets or Machines below the deployment whose content could not be read.
    pub unreadable: Vec<String>,
    /// Nodes of those Machines, by name; empty without a target cluster.
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// A set that could not be created in the last pass.
    pub failure: Option<Failure>,
    /// The time.
    pub now: Timestamp,
}

/// A failed create of a set in the last pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The name was taken by something else.
    NameTaken,
    /// Anything else.
    Other {
        /// The error.
        message: String,
    },
}

/// What the operator chose for all deployments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Keep the autoscaler from removing Nodes during a rollout (`--autoscaler-scaledown-annotation-during-rollout`).
    pub annotate_nodes: bool,
    /// There is a target cluster.
    pub has_target: bool,
}

/// What a deployment can do. Patches are JSON merge patches; the shell adds `metadata.resourceVersion` as a precondition.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Patch of the deployment itself: finalizers, revision, rollback.
    PatchDeployment(Value),
    /// Patch of a set: adoption, release, size, annotations, in-place template changes.
    PatchSet {
        /// The set, as the plan saw it.
        set: Arc<MachineSet>,
        /// The patch.
        patch: Value,
    },
    /// Patch of a Machine: deletion marks that the autoscaler asked for, the hash label after an adoption.
    PatchMachine {
        /// The Machine, as the plan saw it.
        machine: Arc<Machine>,
        /// The patch.
        patch: Value,
    },
    /// Create a set.
    CreateSet(Box<MachineSet>),
    /// Delete a set, with its UID as precondition.
    DeleteSet(Arc<MachineSet>),
    /// Patch of a Node: taint, annotations. A failure is logged and does not stop the plan.
    PatchNode {
        /// The Node, as the plan saw it.
        node: Arc<Node>,
        /// The patch.
        patch: Value,
    },
    /// Write the status as a whole.
    WriteStatus(Box<MachineDeploymentStatus>),
}
