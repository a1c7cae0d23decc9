//! The node controller. Deleting a Node replaces its Machine; a Node with a Machine carries a finalizer; a Node without
//! a Machine is left alone.
//!
//! **The annotation `not-managed-by-mcm`** (the mark). Several managers, ours or the reference, each with its own
//! control namespace, may share a target cluster, each without access to the Machines of the others. So that they do not fight
//! over a Node:
//! - the manager with the Machine of a Node removes the mark immediately; if it is set again, after 1, 2, 4 … 15
//!   minutes, the period of the reference;
//! - a manager without a Machine for a Node sets the mark once the Node is older than the creation timeout, and only
//!   once per UID: if the mark is removed, another manager has the Machine, and the Node is left alone from then on;
//! - a Machine has a Node only with evidence (`mcm_rules::safety::node_claim`), which the machine controller stores on the Node. A Node
//!   that is named without evidence is neither marked nor released, unless it names another Machine;
//! - a Node whose label names a Machine that this manager does not have keeps its finalizer until the mark has been set
//!   for the creation timeout: no manager removed it, so none has that Machine. Without such a label, or if the
//!   Machine was ours, the finalizer is removed together with setting the mark.
//!
//! **A Node that vanished.** Names of Nodes are reused, so its identity counts, not its name. Its Machine is deleted
//! only if the Node was its own, a live read finds no Node of that name, and the meltdown guard permits it. (A Node
//! with a deletion timestamp is a user's request: its Machine is deleted immediately.)

mod apply;
mod cache;
mod gone;
mod observe;
mod plan;
mod register;

use std::{fmt, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::Value;

use super::machine::is_same_vm;
use mcm_api::{
    labels,
    machine::{Machine, MachinePhase},
    node::Node,
    patch,
};
use mcm_rules::safety::{
    meltdown::{self, PermitKey, ReplacementPermit},
    node_claim,
    trust::TargetTrust,
};

#[cfg(test)]
pub use cache::cache;
pub use cache::{BY_MACHINE, BY_VM, cache_for};
#[cfg(test)]
pub use plan::plan;
pub use register::{KIND, is_relevant};

/// The input of a plan for a Node.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Settings from the flags.
    pub policy: NodePolicy,
    pub subject: ObservedNode,
    /// The Machines with its name in the label `node`. Of a Node that exists, those with evidence that it is theirs.
    pub machines: Vec<Arc<Machine>>,
    /// The other Machines with its name in that label.
    pub unproven: Vec<Arc<Machine>>,
    /// The list above is complete: the cache is filled and every Machine could be decoded.
    pub machines_complete: bool,
    /// Trust in the cache of the target cluster.
    pub target: TargetTrust,
    /// Facts from earlier reconciles.
    pub memory: Memory,
    /// The time by the clock of the control cluster.
    pub now: Timestamp,
    /// How far the clock of the target cluster, which stamps Nodes, is ahead of that.
    pub target_ahead: SignedDuration,
}

/// The object of a plan.
#[derive(Clone, Debug)]
pub enum ObservedNode {
    /// The cache has it.
    Present(Arc<Node>),
    /// The watch reported its deletion.
    Gone {
        node: GoneNode,
        /// True if a Node of that name exists, read live in this reconcile; or the error of that read.
        exists: Option<Result<bool, String>>,
        /// The permit to replace its Machine.
        permit: ReplacementPermit,
    },
}

/// In-memory facts about a Node that are kept between reconciles. Losing them costs a repeated write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Its deletion, reported by the watch and not handled yet.
    pub gone: Option<GoneNode>,
    /// The last of our Machines that had the Node and was deleted.
    pub former_machine: Option<String>,
    /// UID of the Node to which the following fields belong.
    pub(crate) uid: Option<String>,
    /// When the mark was first seen, or last renewed. Kept when the mark is removed.
    pub(crate) marked_at: Option<Timestamp>,
    /// How often this manager removed the mark.
    pub(crate) unmarked: u32,
    /// When it last did so.
    pub(crate) unmarked_at: Option<Timestamp>,
}

/// Settings for all Nodes, from the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePolicy {
    /// Age at which a Node without a Machine gets the mark (`--machine-creation-timeout`).
    pub creation_timeout: SignedDuration,
    /// It gets the mark without a sign that it had a Machine. In a cluster of Cluster API, other managers have
    /// it.
    pub marks_strangers: bool,
    /// Age at which the node controller adds the finalizer to a Node with a Machine. Before that, the machine
    /// controller adds it in one patch with the labels.
    pub finalizer_grace: SignedDuration,
    /// How many Machines may be out of service before no further one is replaced.
    pub unhealthy_replacements: meltdown::MeltdownLimits,
}

/// One operation that a plan for a Node can contain. Patches are JSON merge patches; the executor adds
/// `metadata.resourceVersion` as a precondition.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Delete the Machine of the Node, with its UID as precondition; its set replaces it.
    DeleteMachine(Arc<Machine>),
    /// Patch of the Node's metadata: finalizers and annotations.
    PatchNode { patch: Value, mark: NodeMarkChange },
    /// Remember when a mark that another manager set was first seen.
    RememberMark,
    /// Read whether a Node of this name exists, live.
    GetNode,
    /// Read the permit to replace a Machine without taking it: the Node is read only if it is free.
    LookAtPermit { permits: Vec<PermitKey>, machine: Arc<Machine> },
    /// Take the permit to replace a Machine, then count the Machines out of service.
    TakePermit { permits: Vec<PermitKey>, machine: Arc<Machine> },
    /// Nothing is left to do for a deleted Node.
    ForgetGoneNode,
}

impl Action {
    /// The object that it changes or reads, if that is another one than the object of the plan.
    fn subject(&self) -> Option<mcm_rules::plan::SubjectRef> {
        match self {
            Self::DeleteMachine(machine) | Self::LookAtPermit { machine, .. } | Self::TakePermit { machine, .. } => {
                Some(mcm_rules::plan::SubjectRef::from_object(&**machine))
            }
            Self::PatchNode { .. } | Self::RememberMark | Self::GetNode | Self::ForgetGoneNode => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteMachine(machine) => write!(f, "delete machine {}", machine.name_any()),
            Self::PatchNode { patch, .. } => write!(f, "patch node: {}", patch::fields(patch)),
            Self::RememberMark => f.write_str("remember the mark"),
            Self::GetNode => f.write_str("read node"),
            Self::LookAtPermit { permits, .. } => {
                write!(f, "check the replacement permit of {}", meltdown::names(permits))
            }
            Self::TakePermit { permits, .. } => {
                write!(f, "take the replacement permit of {}", meltdown::names(permits))
            }
            Self::ForgetGoneNode => f.write_str("forget the deleted node"),
        }
    }
}

/// The change of the mark by a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeMarkChange {
    Put,
    Remove,
    /// The mark stays, and the manager of the Machine has as long as before to remove it.
    Renew,
    Leave,
}

impl Memory {
    /// The memory, unless it is about an earlier Node of the same name.
    fn for_uid(&self, uid: Option<&str>) -> Self {
        if self.uid.as_deref() == uid {
            return self.clone();
        }
        let (gone, former_machine) = (self.gone.clone(), self.former_machine.clone());
        Self { gone, former_machine, uid: uid.map(str::to_owned), ..Self::default() }
    }

    /// A patch that changed the mark in this way was stored.
    pub(crate) fn mark_changed(&mut self, change: NodeMarkChange, now: Timestamp) {
        match change {
            NodeMarkChange::Put | NodeMarkChange::Renew => self.mark_put(now),
            NodeMarkChange::Remove => self.mark_removed(now),
            NodeMarkChange::Leave => {}
        }
    }

    pub(crate) fn mark_put(&mut self, now: Timestamp) {
        self.marked_at = Some(now);
    }

    pub(crate) fn mark_removed(&mut self, now: Timestamp) {
        self.unmarked = self.unmarked.saturating_add(1);
        self.unmarked_at = Some(now);
    }
}

/// A Node whose deletion the watch reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoneNode {
    pub name: String,
    /// Its `spec.providerID`; may be empty.
    pub provider_id: String,
    /// The Machine in its label.
    pub machine: Option<String>,
    /// The Machine in its annotation, as it is stored.
    pub owner: Option<String>,
    pub seen_at: Timestamp,
}

impl GoneNode {
    /// The facts to remember of a deleted Node.
    pub fn from_node(node: &Node, seen_at: Timestamp) -> Self {
        let machine = node.labels().get(labels::MACHINE_NAME).filter(|name| !name.is_empty());
        Self {
            name: node.name_any(),
            provider_id: node.spec.provider_id.clone(),
            machine: machine.map(ToString::to_string),
            owner: node.annotations().get(labels::NODE_OF).map(ToString::to_string),
            seen_at,
        }
    }

    /// It was the Node of a Machine that names it. A younger Machine, or a Machine whose Node has not joined yet,
    /// only has the same Node name.
    fn was_of(&self, machine: &Machine) -> bool {
        let created = machine.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
        if created.is_some_and(|created| created >= self.seen_at.as_second()) {
            return false;
        }
        if let Some(owner) = &self.owner {
            return node_claim::is_annotation_of(owner, machine);
        }
        match (&self.machine, self.provider_id.as_str(), machine.spec.provider_id.as_str()) {
            (Some(owner), ..) => *owner == machine.name_any(),
            (None, "", _) | (None, _, "") => matches!(machine.phase(), MachinePhase::Running | MachinePhase::Unknown),
            (None, of_node, of_machine) => is_same_vm(of_node, of_machine),
        }
    }
}

#[cfg(test)]
mod tests;
