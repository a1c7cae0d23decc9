//! The orphan collector: finds VMs without a Machine and deletes them, and reports Machines without a VM.
//!
//! Each class is checked separately, with one list: periodically, at the start, after the deletion of one of its
//! Machines, and when the driver reports several VMs of one Machine (`OutOfRange`).
//!
//! A VM is deleted only if
//! - the driver's list was complete and began after this reconcile did;
//! - no Machine claims the VM (see [`mcm_rules::safety::orphans`]), by a cache that is trusted and in which every Machine
//!   could be decoded;
//! - it carries the marker of this namespace or, if it carries none, no other namespace uses the cluster tag: none of the
//!   listed VMs has another marker, and no class of another namespace has the same tag. Where those classes may not be
//!   listed, the tag must be that of the namespace alone ([`own_tag`], or [`Policy::is_sole_user`]);
//! - the same was so in an earlier list, at least one period and [`Policy::minimum_age`] ago, and in all lists since;
//! - no target cluster is frozen;
//! - a live read finds no Machine of its name that the cache lacks.
//!
//! A VM whose Node exists serves: it is not deleted like that, but drained first, see [`serving`].
//!
//! Only a few VMs of an account are deleted in one period: if many Machines are missing at once, something else is wrong.

mod apply;
pub(crate) mod metrics;
mod nodes;
mod observe;
pub mod offers;
mod own_tag;
mod pass;
mod plan;
mod pools;
mod record;
mod register;
mod serving;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use mcm_api::{
    machine::{Machine, MachineClass, MachinePhase},
    vm_owner::Owner,
};
use mcm_driver::VmsByProviderId;
use mcm_rules::{
    plan::Event,
    safety::{
        meltdown::{MeltdownLimits, PermitKey, ReplacementPermit},
        orphans::{SightingTimes, VmClaim},
    },
};

pub use nodes::TargetNode;
pub use offers::{ADOPTED_FOR, AdoptionOffer, NamespaceObjects, OfferStep, offers};
#[cfg(test)]
pub use plan::plan;
pub use pools::NamespacePools;
pub(crate) use register::KIND;

/// The input of a plan.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Settings from the flags.
    pub policy: OrphanPolicy,
    /// The class.
    pub class: Arc<MachineClass>,
    /// This process has a driver for it that can list.
    pub can_list: bool,
    /// Claims of all known Machines, of any class and namespace.
    pub claims: Vec<VmClaim>,
    /// The Machines of this class.
    pub machines: Vec<Arc<Machine>>,
    /// All known Machines, of any class and namespace.
    pub all_machines: Vec<Arc<Machine>>,
    /// The Nodes of all targets, once the VMs are listed.
    pub nodes: Vec<TargetNode>,
    /// VMs of its account whose deletion was requested within the last period.
    pub recently_deleted: usize,
    /// Why nothing can be concluded from a missing Machine.
    pub uncertain: Option<String>,
    /// Facts from earlier reconciles.
    pub memory: Memory,
    /// Results of this reconcile.
    pub learned: OrphanCallResults,
    /// The time.
    pub now: Timestamp,
}

/// In-memory facts that are kept between reconciles. Losing them postpones deletions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// VMs without a Machine and a Node, by identity.
    pub orphans: SightingTimes,
    /// VMs without a Machine whose Node exists, by identity.
    pub serving: SightingTimes,
    /// VMs of them whose Node has the annotation `not-managed-by-mcm`.
    pub marked: SightingTimes,
    /// VMs of them whose Node another manager has: it removed the annotation.
    pub claimed: BTreeSet<String>,
    /// VMs whose Machine has an ID that no VM has, by identity.
    pub doubtful: SightingTimes,
    /// Machines whose VM is not listed, by UID.
    pub without_vm: SightingTimes,
    /// Machines without a VM that were reported, by UID.
    pub reported: BTreeSet<String>,
    /// VMs without a Machine that are not touched because they have no marker and others use the cluster tag, by
    /// identity.
    pub left_alone: BTreeSet<String>,
    /// How many VMs carry the marker of another owner.
    pub foreign: usize,
    /// VMs without a provider ID or Machine in the driver's answer, by provider ID.
    pub unidentified: BTreeSet<String>,
}

/// Results of the calls of one reconcile.
#[derive(Clone, Debug, Default)]
pub struct OrphanCallResults {
    /// The list of the driver.
    pub list: Option<VmListing>,
    /// Classes of other namespaces with the same cluster tag.
    pub others: Option<ForeignClasses>,
    /// The sightings of that list are in the memory.
    pub is_recorded: bool,
    /// VMs without a Machine that another class handles, by identity.
    pub elsewhere: Option<BTreeSet<String>>,
    /// The pools of the namespace, read live, or the error.
    pub pools: Option<Result<NamespacePools, String>>,
    /// Replacement permits that were asked for, by the name of the Machine.
    pub permits: BTreeMap<String, ReplacementPermit>,
    /// VMs whose Nodes were read live, by provider ID: whether the Node still has the annotation and the VM, or the error.
    pub nodes: BTreeMap<String, Result<bool, String>>,
    /// Names of Machines that were read live: whether such a Machine exists, or the error.
    pub machines: BTreeMap<String, Result<bool, String>>,
    /// VMs that were deleted, or whose deletion failed, by provider ID.
    pub deleted: BTreeMap<String, Result<(), String>>,
}

/// A list of the VMs of a class.
#[derive(Clone, Debug)]
pub struct VmListing {
    /// When the call began.
    pub began_at: Timestamp,
    /// The findings, or the error.
    pub found: Result<ClassVms, String>,
}

/// The VMs in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassVms {
    /// The owner of the class.
    pub owner: Owner,
    /// The VMs.
    pub vms: VmsByProviderId,
}

/// The classes of other namespaces whose VMs may be in the list of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignClasses {
    /// All of them as `namespace/name`; there may be none.
    Known(Vec<String>),
    /// This process may not list the classes of other namespaces.
    Forbidden {
        /// The list is limited to the technical ID of the namespace, see [`own_tag`].
        has_own_tag: bool,
    },
    /// They could not be read.
    Unknown(String),
}

/// Settings, from the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrphanPolicy {
    /// How often VMs are listed (`--machine-safety-orphan-vms-period`); at least one minute.
    pub period: Duration,
    /// How long a VM must have been without a Machine, if that is longer than the period.
    pub minimum_age: SignedDuration,
    /// VMs of one account that are deleted within one period at most.
    pub limit: usize,
    /// Report orphans and delete none (`--machine-safety-orphan-vms-dry-run`).
    pub is_dry_run: bool,
    /// No other namespace uses the cluster tags of this one (`--machine-safety-orphan-vms-sole-user`). It counts only where
    /// the classes of other namespaces may not be listed.
    pub is_sole_user: bool,
    /// For how long another manager may claim the Node of a VM (`--machine-creation-timeout`).
    pub claim_timeout: SignedDuration,
    /// How many Machines of a deployment may be out of service while a Node is drained.
    pub unhealthy_replacements: MeltdownLimits,
}

impl Default for OrphanPolicy {
    fn default() -> Self {
        Self {
            period: Duration::from_mins(15),
            minimum_age: SignedDuration::from_mins(10),
            limit: 5,
            is_dry_run: false,
            is_sole_user: false,
            claim_timeout: SignedDuration::from_mins(20),
            unhealthy_replacements: MeltdownLimits::default(),
        }
    }
}

/// One operation of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// List the VMs of the class.
    ListVms,
    /// Look for classes of other namespaces with the same cluster tag.
    ListClassesOfOthers,
    /// Leave VMs without a Machine, by identity, to other classes that list them as well.
    DivideVms(Vec<String>),
    /// Replace the sightings, and record the events.
    Record {
        /// The new memory.
        memory: Box<Memory>,
        /// Machines without a VM to report.
        report: Vec<Arc<Machine>>,
        /// Events of the class.
        warnings: Vec<Event>,
    },
    /// Read live whether a Machine of this name exists.
    GetMachine(String),
    /// Read the sets and deployments of the namespace live.
    ListPools,
    /// Take the permit with which the Node of a Machine is drained.
    TakePermit {
        /// The permit.
        permit: PermitKey,
        /// The Machine that will be created, or exists.
        machine: String,
    },
    /// Read live whether the Node of a VM is as the cache has it.
    GetNode {
        /// Provider ID of the VM.
        id: String,
        /// The Node.
        node: TargetNode,
    },
    /// Create the Machine of a VM whose Node is drained.
    CreateMachine(Box<Machine>),
    /// Delete such a Machine.
    DeleteMachine(Arc<Machine>),
    /// Delete a VM.
    DeleteVm {
        /// Its provider ID.
        id: String,
        /// Name of the Machine that it was created for.
        machine: String,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ListVms => f.write_str("list VMs"),
            Self::ListClassesOfOthers => f.write_str("list the classes of other namespaces"),
            Self::DivideVms(vms) => write!(f, "divide {} VMs among classes", vms.len()),
            Self::Record { report, .. } => write!(f, "record the sightings, report {} machines", report.len()),
            Self::GetMachine(name) => write!(f, "read machine {name}"),
            Self::ListPools => f.write_str("list the sets and deployments"),
            Self::TakePermit { permit, machine } => write!(f, "take the permit of {permit} for machine {machine}"),
            Self::GetNode { node, .. } => write!(f, "read node {}", node.node.name_any()),
            Self::CreateMachine(machine) => write!(f, "create machine {}", machine.name_any()),
            Self::DeleteMachine(machine) => write!(f, "delete machine {}", machine.name_any()),
            Self::DeleteVm { id, machine } => write!(f, "delete VM {id} of machine {machine}"),
        }
    }
}

/// The VM that a Machine claims. As in the reference, a Machine that has no phase yet or could not be created may have
/// any VM of its name.
pub fn claim_of(machine: &Machine) -> VmClaim {
    VmClaim {
        name: machine.metadata.name.clone().unwrap_or_default(),
        provider_id: machine.spec.provider_id.clone(),
        is_creating: matches!(machine.phase(), MachinePhase::New | MachinePhase::CrashLoopBackOff),
    }
}

#[cfg(test)]
mod tests;
