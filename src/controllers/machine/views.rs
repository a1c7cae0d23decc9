//! The view of a reconcile on the objects around a Machine. "Unknown" and "absent" are always different values.

use std::{collections::BTreeMap, sync::Arc};

use super::token;
use mcm_api::{machine::MachineClass, node::Node};
use mcm_driver::{DriverCapabilities, DriverError, SecretData, Vm};
use mcm_rules::{
    drain::{DisruptionAllowance, DrainAnswer, PodFacts},
    safety::meltdown::ReplacementPermit,
};

/// A Node in the target cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetNodeView {
    /// There is no target cluster.
    NoTarget,
    /// Unknown: the cache was never filled, the target cluster is not trusted, or a live read failed.
    Unknown,
    /// Not in the cache, which may be stale. Leads only to a live read.
    Missing,
    /// Read live in this reconcile: it does not exist.
    Absent,
    /// It exists.
    Present(Arc<Node>),
}

/// How to find the Node of a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeLookup {
    /// By its name.
    Name(String),
    /// By its label [`mcm_api::labels::MACHINE_NAME`], because the Machine has no label with the Node's name.
    OfMachine(String),
}

/// Result of a live read of a Node in this reconcile. A Node that was found is in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRead {
    /// How the Node was looked up.
    pub key: NodeLookup,
    pub answer: NodeAnswer,
}

/// Result of the read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAnswer {
    Found,
    Gone,
    /// The read failed, with the error text.
    Failed(String),
}

/// The class of a Machine.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassView {
    /// Unknown: the cache was never filled.
    Unknown,
    /// It does not exist.
    Missing,
    /// It exists, and this process has no driver for it.
    Unserved(Arc<MachineClass>),
    /// It exists.
    Present {
        class: Arc<MachineClass>,
        /// Capabilities of its driver.
        driver: DriverCapabilities,
    },
}

/// The merged Secrets of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SecretView {
    /// Not read in this reconcile.
    #[default]
    NotRead,
    /// Reading failed, with the error text.
    Failed(String),
    /// Read. The executor keeps the data.
    Read(SecretFacts),
}

/// The facts about the Secrets of a class that a plan uses. It never contains their data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretFacts {
    /// Secrets that the class names and that cannot be used, each with the reason. No call is made without them.
    pub missing: Vec<String>,
    /// Why the Secret with the Machine's own user data cannot be used.
    pub missing_user_data: Option<String>,
    /// The merged data has the key `userData`.
    pub has_user_data: bool,
    /// The user data contains a placeholder for a bootstrap token.
    pub wants_token: bool,
}

/// The bootstrap token of a Machine. Failures are in the [`super::Memory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenView {
    /// Not requested in this reconcile, or the request failed.
    #[default]
    NotEnsured,
    /// It exists, and the executor can substitute it.
    Ensured,
}

/// The VM, as the driver returned it in this reconcile. Errors are in the [`super::Memory`].
#[derive(Clone, Debug, Default, PartialEq)]
pub enum DriverVmView {
    /// The driver was not called yet.
    #[default]
    NotAsked,
    /// It certainly does not exist.
    NotFound,
    /// It exists and is initialized.
    Found(Vm),
    /// It exists and has to be initialized.
    Uninitialized(Vm),
    /// It was created in this reconcile and may have to be initialized.
    Created(Vm),
    /// It was initialized in this reconcile.
    Initialized(Vm),
    /// It was deleted in this reconcile, or did not exist.
    Deleted,
}

/// The pods of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodsView {
    /// Not listed in this reconcile, or not since a call whose result makes the list stale.
    #[default]
    NotListed,
    /// The list failed, with the error text.
    Failed(String),
    /// All pods of the Node.
    Listed(Vec<PodFacts>),
}

/// The result of a call about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodCall {
    /// A 404 or 409, with its text. The pod may be deleted or replaced; or it exists, and its disruption budget was
    /// deleted or changed at the same time.
    Doubtful(String),
    Answered(DrainAnswer),
}

/// Results of the calls of one reconcile. Dropped when the reconcile ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineCallResults {
    /// The Secrets of the class.
    pub secret: SecretView,
    pub token: TokenView,
    /// The VM, as the driver returned it.
    pub vm: DriverVmView,
    /// The answer behind [`VmView::NotFound`]. With [`mcm_driver::Code::Unimplemented`] the driver cannot look VMs up.
    pub no_vm: Option<DriverError>,
    /// The pods of the Node.
    pub pods: PodsView,
    /// Why volumes of the pods could not be read; `None` if they were read or not yet.
    pub unread_volumes: Option<String>,
    /// Current allowances of the disruption budgets that refused evictions, by `namespace/name`.
    pub allowances: BTreeMap<String, DisruptionAllowance>,
    /// How many VolumeAttachments of the Node were deleted; `None` if this was not tried or failed.
    pub detached: Option<usize>,
    /// The permit to mark the Machine Failed for bad health.
    pub permit: ReplacementPermit,
    /// The last live read of a Node.
    pub node_read: Option<NodeRead>,
    /// The deletion of the VM waits for a slot.
    pub awaits_slot: bool,
    /// Value of `Memory::forgotten` when this was learned.
    pub(super) forgotten: u64,
}

impl MachineCallResults {
    /// The class or a Secret may have changed since: the Secrets are read again.
    pub(super) fn at(mut self, forgotten: u64) -> Self {
        if self.forgotten != forgotten {
            self.secret = SecretView::NotRead;
            self.forgotten = forgotten;
        }
        self
    }
}

impl DriverVmView {
    /// The VM, if one is known.
    pub fn vm(&self) -> Option<&Vm> {
        match self {
            Self::Found(vm) | Self::Uninitialized(vm) | Self::Created(vm) | Self::Initialized(vm) => Some(vm),
            Self::NotAsked | Self::NotFound | Self::Deleted => None,
        }
    }
}

impl SecretFacts {
    /// Extracts the facts from merged Secret data.
    pub fn from_data(data: &SecretData, missing: Vec<String>, missing_user_data: Option<String>) -> Self {
        let user_data = data.0.get("userData");
        Self {
            missing,
            missing_user_data,
            has_user_data: user_data.is_some(),
            wants_token: user_data.is_some_and(|user_data| token::is_wanted(user_data)),
        }
    }
}
