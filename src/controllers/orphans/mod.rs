//! The orphan collector: finds VMs without a Machine and deletes them, and reports Machines without a VM.
//!
//! Each class is checked for itself, with a list of its own: periodically, at the start, after the deletion of one of its
//! Machines, and when the driver reports several VMs of one Machine (`OutOfRange`).
//!
//! A VM is deleted only if
//! - the driver's list was complete and began after this reconcile did;
//! - no Machine claims the VM (see [`crate::safety::orphans`]), by a cache that is trusted and in which every Machine
//!   could be decoded;
//! - the same was so in an earlier list, at least one period and [`Policy::minimum_age`] ago, and in all lists since;
//! - no target cluster is frozen;
//! - a live read finds no Machine of its name that the cache lacks.
//!
//! Only a few VMs of an account are deleted in one period: if many Machines are missing at once, something else is wrong.

mod apply;
pub(crate) mod metrics;
mod observe;
mod plan;
mod register;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

pub use plan::plan;
pub(crate) use register::KIND;

use crate::{
    api::machine::{Machine, MachineClass, MachinePhase},
    safety::orphans::{Claim, Sightings},
};

/// The input of a plan.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The class.
    pub class: Arc<MachineClass>,
    /// Whether this process has a driver for it that can list.
    pub can_list: bool,
    /// Claims of all Machines that the process knows, of whatever class and namespace.
    pub claims: Vec<Claim>,
    /// The Machines of this class.
    pub machines: Vec<Arc<Machine>>,
    /// VMs of its account whose deletion was requested within the last period.
    pub recently_deleted: usize,
    /// Why nothing can be concluded from a missing Machine.
    pub uncertain: Option<String>,
    /// Facts from earlier reconciles.
    pub memory: Memory,
    /// Results of this reconcile.
    pub learned: Learned,
    /// The time.
    pub now: Timestamp,
}

/// In-memory facts that one reconcile leaves for the next. Losing them postpones deletions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// VMs without a Machine, by identity.
    pub orphans: Sightings,
    /// VMs whose Machine has an ID that no VM has, by identity.
    pub doubtful: Sightings,
    /// Machines whose VM is not listed, by UID.
    pub without_vm: Sightings,
    /// Machines without a VM that were reported, by UID.
    pub reported: BTreeSet<String>,
}

/// Results of the calls of one reconcile.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    /// The list of the driver.
    pub list: Option<Listing>,
    /// The sightings of that list are in the memory.
    pub is_recorded: bool,
    /// Names of Machines that were read live: whether such a Machine exists, or the error.
    pub machines: BTreeMap<String, Result<bool, String>>,
    /// VMs that were deleted, or whose deletion failed, by provider ID.
    pub deleted: BTreeMap<String, Result<(), String>>,
}

/// A list of the VMs of a class.
#[derive(Clone, Debug)]
pub struct Listing {
    /// When the call began.
    pub began_at: Timestamp,
    /// Provider ID → name of the Machine; or the error.
    pub vms: Result<BTreeMap<String, String>, String>,
}

/// Settings, from the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How often VMs are listed (`--machine-safety-orphan-vms-period`); at least one minute.
    pub period: Duration,
    /// How long a VM must have been without a Machine, if that is longer than the period.
    pub minimum_age: SignedDuration,
    /// VMs of one account that are deleted within one period at most.
    pub limit: usize,
    /// Report orphans and delete none (`--machine-safety-orphan-vms-dry-run`).
    pub is_dry_run: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            period: Duration::from_mins(15),
            minimum_age: SignedDuration::from_mins(10),
            limit: 5,
            is_dry_run: false,
        }
    }
}

/// One operation of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// List the VMs of the class.
    ListVms,
    /// Replace the sightings, and record the events.
    Record {
        /// The new memory.
        memory: Box<Memory>,
        /// Machines without a VM to report.
        report: Vec<Arc<Machine>>,
    },
    /// Read live whether a Machine of this name exists.
    GetMachine(String),
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
            Self::Record { report, .. } => write!(f, "record the sightings, report {} machines", report.len()),
            Self::GetMachine(name) => write!(f, "read machine {name}"),
            Self::DeleteVm { id, machine } => write!(f, "delete VM {id} of machine {machine}"),
        }
    }
}

/// What VM a Machine claims. As in the reference, one that has no phase yet or could not be created may have any VM of its
/// name.
fn claim_of(machine: &Machine) -> Claim {
    Claim {
        name: machine.metadata.name.clone().unwrap_or_default(),
        provider_id: machine.spec.provider_id.clone(),
        is_creating: matches!(machine.phase(), MachinePhase::New | MachinePhase::CrashLoopBackOff),
    }
}

#[cfg(test)]
mod tests;
