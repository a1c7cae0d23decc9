//! What a reconcile can know of the things around a Machine. "Unknown" and "not there" are different values everywhere.

use std::sync::Arc;

use super::token;
use crate::{
    api::{machine::MachineClass, node::Node},
    drain::{Answer, PodFacts},
    driver::{Capabilities, SecretData, Vm},
    safety::meltdown::Permit,
};

/// A Node in the target cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeView {
    /// There is no target cluster.
    NoTarget,
    /// Nothing is known: the cache was never filled, the target cluster cannot be trusted, or a live read failed.
    Unknown,
    /// The cache does not have it, and may be behind. Nothing follows from this but a live read.
    Missing,
    /// Read live in this reconcile: it certainly does not exist.
    Absent,
    /// It exists.
    Present(Arc<Node>),
}

/// How to find the Node of a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKey {
    /// By its name.
    Name(String),
    /// By its label [`crate::api::labels::MACHINE_NAME`], because the Machine does not know its Node.
    OfMachine(String),
}

/// What a live read of a Node in this reconcile said. A Node that was found is in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRead {
    /// What was looked for.
    pub key: NodeKey,
    pub answer: NodeAnswer,
}

/// See [`NodeRead`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAnswer {
    Found,
    Gone,
    /// The text says why.
    Failed(String),
}

/// The class of a Machine.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassView {
    /// Nothing is known, for the cache was never filled.
    Unknown,
    /// It certainly does not exist.
    Missing,
    /// It exists, and no driver in this process serves it.
    Unserved(Arc<MachineClass>),
    /// It exists.
    Present {
        class: Arc<MachineClass>,
        /// What its driver can do.
        driver: Capabilities,
    },
}

/// The merged Secrets of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SecretView {
    /// Not read in this reconcile.
    #[default]
    NotRead,
    /// Reading failed; the text says why.
    Failed(String),
    /// Read; the executor keeps the data.
    Read(SecretFacts),
}

/// What a plan needs to know of Secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretFacts {
    /// Names of Secrets that the class refers to and that certainly do not exist.
    pub missing: Vec<String>,
    /// There is a key `userData`.
    pub has_user_data: bool,
    /// The user data asks for a bootstrap token.
    pub wants_token: bool,
}

/// The bootstrap token of a Machine. Failures are in the [`super::Memory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenView {
    /// Not looked at in this reconcile, or not to be had.
    #[default]
    NotEnsured,
    /// It is there, and the executor can fill it in.
    Ensured,
}

/// A VM, as the driver described it in this reconcile. Failures are in the [`super::Memory`].
#[derive(Clone, Debug, Default, PartialEq)]
pub enum VmView {
    /// The driver was not called yet.
    #[default]
    NotAsked,
    /// It certainly does not exist.
    NotFound,
    /// It exists and is finished.
    Found(Vm),
    /// It exists and has to be initialised.
    Uninitialized(Vm),
    /// It was made in this reconcile and may have to be initialised.
    Created(Vm),
    /// It was initialised in this reconcile.
    Initialized(Vm),
    /// It was deleted in this reconcile, or was not there to be deleted.
    Deleted,
}

/// The pods of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodsView {
    /// Not listed in this reconcile, or not since a call was answered in a way that makes the listing doubtful.
    #[default]
    NotListed,
    /// Listing failed; the text says why.
    Failed(String),
    /// All of them.
    Listed(Vec<PodFacts>),
}

/// The answer to a call about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodCall {
    /// A 404 or a 409, with its text. The pod may be gone, or another one may have its name; or it may be there, and its
    /// disruption budget went or was written by somebody else at the same time.
    Doubtful(String),
    Answered(Answer),
}

/// What calls in one reconcile have told. It ends with the reconcile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned {
    /// What the Secrets of the class say.
    pub secret: SecretView,
    pub token: TokenView,
    /// The VM, as the driver described it.
    pub vm: VmView,
    /// The pods of the Node.
    pub pods: PodsView,
    /// The right to give the Machine up for bad health.
    pub permit: Permit,
    /// The last live read of a Node.
    pub node_read: Option<NodeRead>,
    /// What the memory said when this was learned; see `Memory::forgotten`.
    pub(super) forgotten: u64,
}

impl Learned {
    /// Class or Secrets may have changed since: they are read anew.
    pub(super) fn at(mut self, forgotten: u64) -> Self {
        if self.forgotten != forgotten {
            self.secret = SecretView::NotRead;
            self.forgotten = forgotten;
        }
        self
    }
}

impl VmView {
    /// The VM, if there is one for all that is known.
    pub fn vm(&self) -> Option<&Vm> {
        match self {
            Self::Found(vm) | Self::Uninitialized(vm) | Self::Created(vm) | Self::Initialized(vm) => Some(vm),
            Self::NotAsked | Self::NotFound | Self::Deleted => None,
        }
    }
}

impl SecretFacts {
    /// Reads merged Secret data.
    pub fn of(data: &SecretData, missing: Vec<String>) -> Self {
        let user_data = data.0.get("userData");
        Self {
            missing,
            has_user_data: user_data.is_some(),
            wants_token: user_data.is_some_and(|user_data| token::is_wanted(user_data)),
        }
    }
}
