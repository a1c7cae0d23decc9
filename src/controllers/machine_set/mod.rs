//! The set controller: keeps a number of equal Machines. Replicas, adoption, deletion order, replacement of failed
//! Machines, status.

mod apply;
mod brake;
mod cache;
mod claim;
mod construct;
mod in_flight;
mod lint;
pub(crate) mod metrics;
mod observe;
mod plan;
mod preserve;
mod propagate;
mod register;
mod replicas;
mod status;
#[cfg(test)]
mod tests;
mod validate;

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use crate::object::{owner, strays::StrayView};
use mcm_api::{
    machine::{Machine, MachineDeployment, MachineSet, MachineSetStatus},
    patch,
};
use mcm_rules::plan::{ReconcileHold, SubjectRef};

pub(crate) use apply::{InFlightWrites, MachineSetReconciler};
pub use brake::YoungFailures;
pub use cache::{BY_CONTROLLER, CACHE};
pub(crate) use in_flight::SetWritesInFlight;
#[cfg(test)]
pub(crate) use plan::plan;
pub use register::KIND;

/// The input of a plan for a set.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The set.
    pub set: Arc<MachineSet>,
    /// The deployment that controls it; `None` if it has no controller or that is unknown. Read after the Machines: a mark of the
    /// autoscaler on one of them is then never newer than the replicas that belong to it.
    pub deployment: Option<Arc<MachineDeployment>>,
    /// Machines of the namespace that the set controls, and those without a controller that its selector matches.
    pub machines: Vec<Arc<Machine>>,
    /// Other sets of the namespace that select those Machines without a controller. None of them is being deleted.
    pub rivals: Vec<Arc<MachineSet>>,
    /// The class of the template, or a Secret that it names, certainly does not exist, so no VM can be made from it now.
    pub is_class_unusable: bool,
    /// Names of Machines that the set controls and that cannot be decoded. They exist: they count and are not touched.
    pub unreadable: Vec<String>,
    /// The number of Machines that are preserved automatically, according to their annotation.
    pub unreadable_preserved: usize,
    /// Machines that it created and that are not its own.
    pub(crate) strays: StrayView<Machine>,
    /// The failure of the last plan, if it failed.
    pub failure: Option<ReplicaWriteFailure>,
    /// Its Machines that failed soon after this process created them.
    pub young_failures: YoungFailures,
    /// Why it may not be touched now, such as a pause of its cluster.
    pub hold: Option<ReconcileHold>,
    /// The time.
    pub now: Timestamp,
    /// Seed for the names of new Machines.
    pub seed: u64,
}

/// A create or delete that failed in the last reconcile; becomes the condition ReplicaFailure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaWriteFailure {
    /// The error.
    pub message: String,
}

/// One write that a plan for a set can contain. Patches are JSON merge patches; the executor adds
/// `metadata.resourceVersion` as a precondition.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Patch of the set's own metadata (finalizers).
    PatchSet(Value),
    /// Patch of a Machine: adoption, release, template propagation.
    PatchMachine {
        /// The Machine, as the plan saw it.
        machine: Arc<Machine>,
        /// The patch.
        patch: Value,
    },
    /// Create a Machine. Consecutive creates run concurrently, by slow start.
    CreateMachine(Box<Machine>),
    /// Ask the API server how it would store a new Machine, without storing it.
    TryMachine(Box<Machine>),
    /// Delete a Machine, with its UID and its resource version as preconditions: if it has changed, another plan is made.
    /// Consecutive ones are deleted concurrently.
    DeleteMachine(Arc<Machine>),
    /// Write the status as a whole.
    WriteStatus(Box<MachineSetStatus>),
}

impl Action {
    /// It makes the set with this UID the owner of a Machine.
    fn adopts(&self, set: Option<&str>) -> bool {
        matches!(self, Self::PatchMachine { patch, .. } if set.is_some_and(|uid| owner::adopts(patch, uid)))
    }

    /// The object that it changes or reads, if that is another one than the object of the plan.
    fn subject(&self) -> Option<SubjectRef> {
        match self {
            Self::PatchMachine { machine, .. } | Self::DeleteMachine(machine) => {
                Some(SubjectRef::from_object(&**machine))
            }
            Self::PatchSet(_) | Self::CreateMachine(_) | Self::TryMachine(_) | Self::WriteStatus(_) => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PatchSet(patch) => write!(f, "patch set: {}", patch::fields(patch)),
            Self::PatchMachine { machine, patch } => {
                write!(f, "patch machine {}: {}", machine.name_any(), patch::fields(patch))
            }
            Self::CreateMachine(_) => f.write_str("create a machine"),
            Self::TryMachine(_) => f.write_str("ask how a machine would be stored"),
            Self::DeleteMachine(machine) => write!(f, "delete machine {}", machine.name_any()),
            Self::WriteStatus(_) => f.write_str("write status"),
        }
    }
}
