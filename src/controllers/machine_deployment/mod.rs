//! The deployment controller: rolls Machines from one template to the next. Sets, revisions, surge, pause, scaling,
//! status.

mod apply;
mod autoscaler;
mod bounds;
mod cache;
pub use cache::CACHE;
mod counts;
mod lost_replicas;
pub(crate) mod metrics;
mod nodes;
mod observe;
pub mod overlap;
mod plan;
mod register;
mod rollout;
mod sets;
mod status;
mod steps;
#[cfg(test)]
mod tests;
mod validate;

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::machine_set::SetWritesInFlight;
use crate::object::{owner, strays::StrayView};
use mcm_api::{
    machine::{Machine, MachineDeployment, MachineDeploymentStatus, MachineSet},
    node::Node,
    patch::{self, Packed},
};
use mcm_rules::plan::{ReconcileHold, SubjectRef};

pub(crate) use apply::RolloutNodes;
pub use autoscaler::chosen;
pub use bounds::IntOrPercent;
pub use lost_replicas::keeps_machines;
pub use overlap::overlap;
#[cfg(test)]
pub(crate) use plan::plan;
pub use register::KIND;
pub use sets::revision::revision_of;
pub use validate::bounds_of;

/// The input of a plan for a deployment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Settings from the flags.
    pub policy: DeploymentPolicy,
    /// The deployment.
    pub deployment: Arc<MachineDeployment>,
    /// Sets of the namespace that the deployment controls, and those without a controller that its selector matches.
    pub sets: Vec<Arc<MachineSet>>,
    /// Other deployments of the namespace that select sets without a controller, or whose Machines this one selects, or
    /// the reverse. None of them is being deleted.
    pub rivals: Vec<Arc<MachineDeployment>>,
    /// Machines controlled by those sets.
    pub machines: Vec<Arc<Machine>>,
    /// Writes in flight of each set, by UID of the set. Read before the Machines.
    pub in_flight: BTreeMap<String, SetWritesInFlight>,
    /// Names of sets of the deployment that cannot be decoded.
    pub unreadable_sets: Vec<String>,
    /// Machines of those sets that cannot be decoded.
    pub unreadable_machines: Vec<UnreadableMachine>,
    /// Nodes of those Machines, by name; empty without a target cluster.
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// Why Nodes that are not among them may exist all the same; `None` if the cache of Nodes can be trusted.
    pub nodes_unknown: Option<String>,
    /// When a Node whose last patch failed may be patched again, by its name.
    pub node_retries: BTreeMap<String, Timestamp>,
    /// Sets that it created and that are not its own.
    pub(crate) strays: StrayView<MachineSet>,
    /// When the next set may be created for this spec; `None` if that is now.
    pub sets_paused_until: Option<Timestamp>,
    /// A live read showed that its replicas are a 0 that a client wrote.
    pub is_zero_written: bool,
    /// A set that could not be created in the last reconcile.
    pub failure: Option<SetCreateFailure>,
    /// Why it may not be touched now, such as a pause of its cluster.
    pub hold: Option<ReconcileHold>,
    /// The time.
    pub now: Timestamp,
}

/// A Machine that exists and cannot be decoded. It counts and is not touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableMachine {
    /// Its name.
    pub name: String,
    /// UID of the set that controls it.
    pub set_uid: String,
    /// It is being deleted, according to its metadata.
    pub is_terminating: bool,
}

/// A failed create of a set in the last reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetCreateFailure {
    /// The name is taken by another object.
    NameTaken,
    /// Any other error.
    Other {
        /// The error.
        message: String,
    },
}

/// Settings for all deployments, from the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeploymentPolicy {
    /// Stop the autoscaler from removing Nodes during a rollout (`--autoscaler-scaledown-annotation-during-rollout`).
    pub annotate_nodes: bool,
    /// There is a target cluster.
    pub has_target: bool,
}

/// One write that a plan for a deployment can contain. Patches are JSON merge patches; the executor adds
/// `metadata.resourceVersion` as a precondition.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Patch of the deployment itself: finalizers, revision, rollback.
    PatchDeployment(Value),
    /// Patch of the deployment that writes replicas again, if a live read shows that the field is absent.
    RestoreReplicas(Value),
    /// Patch of a set: adoption, release, replicas, annotations, template changes that need no rollout.
    PatchSet {
        /// The set, as the plan saw it.
        set: Arc<MachineSet>,
        /// The patch.
        patch: Value,
    },
    /// Patch of a Machine: the autoscaler's deletion mark, the hash label after an adoption.
    PatchMachine {
        /// The Machine, as the plan saw it.
        machine: Arc<Machine>,
        /// The patch.
        patch: Value,
    },
    /// Create a set.
    CreateSet(Box<MachineSet>),
    /// Ask the API server how it would store a new set, without storing it.
    TrySet(Box<MachineSet>),
    /// Delete a set, with UID and resource version as preconditions: the garbage collector may have released it.
    DeleteSet(Arc<MachineSet>),
    /// Patch of a Node: taint, annotations. A failure is logged and does not stop the plan.
    PatchNode {
        /// The Node, as the plan saw it.
        node: Arc<Node>,
        /// The patch.
        patch: Packed,
        /// Its place in the plan.
        order: NodePatchOrder,
    },
    /// Write the status as a whole.
    WriteStatus(Box<MachineDeploymentStatus>),
}

/// The other steps of a plan that wait for the patch of a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodePatchOrder {
    /// Those of Machines and sets: an in-place update begins or ends.
    BeforeMachines,
    /// Those that shrink sets: pods of the deleted Machines would move to Nodes without the taint, or avoid Nodes with it.
    BeforeShrinking,
    /// None.
    Last,
}

impl Action {
    /// It makes the deployment with this UID the owner of a set.
    fn adopts(&self, deployment: Option<&str>) -> bool {
        matches!(self, Self::PatchSet { patch, .. } if deployment.is_some_and(|uid| owner::adopts(patch, uid)))
    }

    /// It lowers the replicas of a set, which then deletes Machines.
    fn shrinks_set(&self) -> bool {
        let Self::PatchSet { set, patch } = self else { return false };
        let replicas = patch.pointer("/spec/replicas").and_then(Value::as_i64);
        replicas.is_some_and(|replicas| replicas < i64::from(set.spec.replicas))
    }

    /// Its order, if it is the patch of a Node.
    const fn node_order(&self) -> Option<NodePatchOrder> {
        match self {
            Self::PatchNode { order, .. } => Some(*order),
            _ => None,
        }
    }

    /// The object that it changes or reads, if that is another one than the object of the plan.
    fn subject(&self) -> Option<SubjectRef> {
        match self {
            Self::PatchSet { set, .. } | Self::DeleteSet(set) => Some(SubjectRef::from_object(&**set)),
            Self::CreateSet(set) | Self::TrySet(set) => Some(SubjectRef::from_object(&**set)),
            Self::PatchMachine { machine, .. } => Some(SubjectRef::from_object(&**machine)),
            Self::PatchNode { node, .. } => Some(SubjectRef::from_object(&**node)),
            Self::PatchDeployment(_) | Self::RestoreReplicas(_) | Self::WriteStatus(_) => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PatchDeployment(patch) | Self::RestoreReplicas(patch) => {
                write!(f, "patch deployment: {}", patch::fields(patch))
            }
            Self::PatchSet { set, patch } => write!(f, "patch set {}: {}", set.name_any(), patch::fields(patch)),
            Self::PatchMachine { machine, patch } => {
                write!(f, "patch machine {}: {}", machine.name_any(), patch::fields(patch))
            }
            Self::CreateSet(set) => write!(f, "create set {}", set.name_any()),
            Self::TrySet(set) => write!(f, "ask how set {} would be stored", set.name_any()),
            Self::DeleteSet(set) => write!(f, "delete set {}", set.name_any()),
            Self::PatchNode { node, patch, .. } => {
                write!(f, "patch node {}: {}", node.name_any(), patch::fields(&patch.unpack()))
            }
            Self::WriteStatus(_) => f.write_str("write status"),
        }
    }
}
