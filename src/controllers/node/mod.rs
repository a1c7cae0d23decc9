//! Ties Nodes to Machines: deleting a Node replaces its Machine, a Node with a Machine is held, one without is left alone.
//!
//! **The mark `not-managed-by-mcm`.** Several managers, ours or the reference, each with a control namespace of its own, may
//! share a target cluster, and none knows the Machines of the others. So that they do not fight over a Node:
//! - who has the Machine of a Node removes the mark at once; if it comes back, after 1, 2, 4 … 15 minutes, the period of the
//!   reference;
//! - who has no Machine for a Node puts the mark on it once it is older than the creation timeout, and once for each UID: if
//!   it is removed, somebody manages the Node, and it is left alone from then on;
//! - a Node that says by its label that it is another's Machine keeps its finalizer until the mark has stood for the
//!   creation timeout. Nobody removed it, so nobody has that Machine. Without such a label, or if the Machine was ours, the
//!   finalizer is removed together with the mark.
//!
//! **A Node that is gone.** What counts is the Node's identity, not its name: names are used again. Its Machine is deleted
//! only if the Node was its own, the API server says now that no Node of that name exists, and no more Machines of its
//! deployment are out of service than the meltdown guard allows. (A Node that is being *deleted* is an order, and is obeyed
//! at once.)

mod apply;
mod gone;
mod observe;
mod plan;
mod register;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

pub use gone::GoneNode;
pub use plan::plan;
pub(crate) use register::{BY_MACHINE, KIND, Nodes, cache, is_relevant};

use crate::{
    api::{machine::Machine, node::Node},
    safety::{
        meltdown::{Permit, PermitKey},
        trust::TargetTrust,
    },
};

/// Everything a plan for a Node is made from.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub subject: Subject,
    /// The Machines whose label `node` is its name.
    pub machines: Vec<Arc<Machine>>,
    /// Whether the Machines above are all there are: the cache is filled, and every Machine could be read.
    pub machines_complete: bool,
    /// Whether what is known of the target cluster can be believed.
    pub target: TargetTrust,
    /// What earlier reconciles left behind.
    pub memory: Memory,
    pub now: Timestamp,
}

/// What a plan is about.
#[derive(Clone, Debug)]
pub enum Subject {
    /// The cache has it.
    Present(Arc<Node>),
    /// The watch has reported its end.
    Gone {
        node: GoneNode,
        /// Whether a Node of that name exists, read live in this reconcile; or why it could not be read.
        exists: Option<Result<bool, String>>,
        /// The right to replace its Machine.
        permit: Permit,
    },
}

/// What a process remembers of a Node, and may forget: losing it costs a repeated write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Its end, which the watch has reported and nobody has dealt with.
    pub gone: Option<GoneNode>,
    /// The last Machine of ours that had the Node and is gone.
    pub former_machine: Option<String>,
    /// UID of the Node that the following is about.
    pub(crate) uid: Option<String>,
    /// Since when the mark stands, for all we know; it stays when the mark is removed.
    pub(crate) marked_at: Option<Timestamp>,
    /// How often we removed the mark.
    pub(crate) unmarked: u32,
    /// When we did so last.
    pub(crate) unmarked_at: Option<Timestamp>,
}

/// What the operator chose for all Nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How old a Node without a Machine becomes before it is declared not managed (`--machine-creation-timeout`).
    pub creation_timeout: SignedDuration,
    /// How old a Node with a Machine becomes before its finalizer is added here. Until then the Machine controller is
    /// expected to add it, in one patch with the labels.
    pub finalizer_grace: SignedDuration,
    /// How many Machines of a deployment may be out of service before one whose Node is gone is replaced.
    pub max_unhealthy_replacements: u32,
}

/// What can be done for a Node. Patches are JSON merge patches; the executor adds `metadata.resourceVersion` as a
/// precondition.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Delete the Machine of the Node, with its UID as precondition; its set replaces it.
    DeleteMachine(Arc<Machine>),
    /// Patch of the Node's metadata: finalizers and annotations.
    PatchNode { patch: Value, mark: Mark },
    /// Remember since when the mark stands that somebody else put on the Node.
    RememberMark,
    /// Read whether a Node of this name exists, live.
    GetNode,
    /// Take the permit to replace a Machine, then count the others.
    TakePermit { permit: PermitKey, machine: Arc<Machine> },
    /// Nothing is left to be done for a Node that is gone.
    ForgetGoneNode,
}

/// What a patch does with the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Put,
    Remove,
    Leave,
}

impl Memory {
    /// What is remembered, unless it is of an earlier Node of the same name.
    fn of(&self, uid: Option<&str>) -> Self {
        if self.uid.as_deref() == uid {
            return self.clone();
        }
        let (gone, former_machine) = (self.gone.clone(), self.former_machine.clone());
        Self { gone, former_machine, uid: uid.map(str::to_owned), ..Self::default() }
    }

    pub(crate) fn mark_put(&mut self, now: Timestamp) {
        self.marked_at = Some(now);
    }

    pub(crate) fn mark_removed(&mut self, now: Timestamp) {
        self.unmarked = self.unmarked.saturating_add(1);
        self.unmarked_at = Some(now);
    }
}

#[cfg(test)]
mod tests;
