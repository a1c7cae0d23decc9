//! MachineDeployments of Cluster API: each becomes a native MachineDeployment of its name, by the conversion library, and
//! shows its status.
//!
//! Rules that hold in every plan:
//! - a refused MachineDeployment changes nothing natively;
//! - annotations that choose machines reach these before a lower number of machines reaches the native deployment;
//! - the native deployment is deleted only for a MachineDeployment that is being deleted, not with the propagation policy
//!   `Orphan`, that has the authority, and after a live look for core.

mod apply;
mod cache;
pub(super) use cache::{CACHE, HEALTH_CHECKS, MIGRATIONS};
mod native;
mod observe;
mod plan;
mod register;
mod status;
mod tear_down;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::{mirror, standing::StandInStatus};
use crate::object::{conditions, view::ObjectView};
use mcm_api::{
    machine::{self as native_api, MachineClass},
    patch,
};
use mcm_conversion::types::{
    Cluster, MCMMachineTemplate, MCMMigration, MCMMigrationStatus, Machine, MachineAuthority, MachineDeployment,
    MachineDeploymentStatus, MachineHealthCheck,
};

pub(super) use register::KIND;

/// The input of a plan for a MachineDeployment.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The right of the stand-in to act.
    pub standing: StandInStatus,
    /// The object.
    pub object: ObjectView<MachineDeployment>,
    /// The authority over it.
    pub migration: ObjectView<MCMMigration>,
    /// Its Cluster.
    pub cluster: ObjectView<Cluster>,
    /// The template that it names.
    pub template: ObjectView<MCMMachineTemplate>,
    /// The health checks of the namespace; an error has the reason why they are unknown.
    pub health_checks: Result<Vec<Arc<MachineHealthCheck>>, String>,
    /// The classes of the namespace, by name.
    pub classes: BTreeMap<String, Arc<MachineClass>>,
    /// The classes that native objects of the namespace use.
    pub used_classes: BTreeSet<String>,
    /// The native deployment of its name.
    pub native: ObjectView<native_api::MachineDeployment>,
    /// Native sets and machines of the deployment, as the caches know them.
    pub children: usize,
    /// Its machines on both sides.
    pub machines: Vec<(Arc<Machine>, Arc<native_api::Machine>)>,
    /// Resource version of the Secret with bootstrap data that it names.
    pub bootstrap: ObjectView<String>,
    /// The native copy of that Secret: the resource version of the original; empty if the stand-in did not create it.
    pub copy: ObjectView<String>,
    /// Copies of the stand-in that no class names.
    pub stale_copies: BTreeSet<String>,
    /// Facts from earlier reconciles.
    pub memory: Memory,
    /// Progress of this reconcile.
    pub session: StandInDeploymentSession,
    /// Value of `--watch-filter`.
    pub watch_filter: Option<String>,
    /// The time.
    pub now: Timestamp,
}

/// Facts that are kept between reconciles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// The resource version of a Secret with bootstrap data that cannot be used, and why.
    pub unusable: Option<(String, String)>,
}

/// Progress of a reconcile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StandInDeploymentSession {
    /// Core was checked live.
    pub is_confirmed: bool,
    /// It read live whether the garbage collector released the sets that show the native ones.
    pub are_sets_released: Option<bool>,
    /// It read live that the native deployment does not exist.
    pub is_gone: bool,
    /// It read the Machines of Cluster API live.
    pub has_read_machines: bool,
}

/// One operation of a plan. Patches are JSON merge patches with the resource version as precondition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Patch of the MachineDeployment.
    PatchSelf(Value),
    /// Write its status.
    WriteStatus(Box<MachineDeploymentStatus>),
    /// Create the object that has the authority.
    CreateMigration(Box<MCMMigration>),
    /// Write the status of that.
    WriteAuthority(Box<MCMMigrationStatus>),
    /// Delete that.
    DeleteMigration,
    /// Create a class that is derived from the template.
    CreateClass(Box<MachineClass>),
    /// Delete such a class.
    DeleteClass(Arc<MachineClass>),
    /// Copy the bootstrap data of a Secret into a native one.
    CopyBootstrap { source: String, copy: String },
    /// Delete such a copy.
    DeleteCopy(String),
    /// Create the native deployment.
    CreateNative(Box<native_api::MachineDeployment>),
    /// Patch it.
    PatchNative { native: Arc<native_api::MachineDeployment>, patch: Value },
    /// Delete it.
    DeleteNative(Arc<native_api::MachineDeployment>),
    /// Patch one of its Machines.
    PatchMachine { machine: Arc<native_api::Machine>, patch: Value },
    /// Read the Machines of Cluster API live.
    ReadMachines,
    /// Read the native deployment live.
    ReadNative,
    /// Read the MachineSets of Cluster API live.
    ReadSets,
    /// Check live for core.
    Confirm,
}

impl Snapshot {
    /// The owner of the deployment; `None` before it was decided.
    pub(super) fn authority(&self) -> Option<MachineAuthority> {
        mirror::authority(self.migration.known().map(Arc::as_ref))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PatchSelf(patch) => write!(f, "patch {}", patch::fields(patch)),
            Self::WriteStatus(status) => {
                write!(f, "write status, {} replicas", status.replicas.unwrap_or_default())?;
                conditions::told(f, &status.conditions)
            }
            Self::CreateMigration(migration) => write!(f, "create MCMMigration {}", migration.name_any()),
            Self::WriteAuthority(status) => {
                write!(f, "write status of the MCMMigration, authority {:?}", status.authority)?;
                conditions::told(f, &status.conditions)
            }
            Self::DeleteMigration => f.write_str("delete the MCMMigration"),
            Self::CreateClass(class) => write!(f, "create MachineClass {}", class.name_any()),
            Self::DeleteClass(class) => write!(f, "delete MachineClass {}", class.name_any()),
            Self::CopyBootstrap { source, copy } => write!(f, "copy Secret {source} to {copy}"),
            Self::DeleteCopy(name) => write!(f, "delete Secret {name}"),
            Self::CreateNative(native) => {
                let (name, spec) = (native.name_any(), &native.spec);
                let class = &spec.template.spec.class.name;
                write!(f, "create MCM MachineDeployment {name} of class {class} with {} replicas", spec.replicas)
            }
            Self::PatchNative { native, patch } => {
                write!(f, "patch MCM MachineDeployment {}: {}", native.name_any(), patch::fields(patch))
            }
            Self::DeleteNative(native) => write!(f, "delete MCM MachineDeployment {}", native.name_any()),
            Self::PatchMachine { machine, patch } => {
                write!(f, "patch MCM Machine {}: {}", machine.name_any(), patch::fields(patch))
            }
            Self::ReadMachines => f.write_str("read its Machines live"),
            Self::ReadNative => f.write_str("read the MCM MachineDeployment live"),
            Self::ReadSets => f.write_str("read its MachineSets live"),
            Self::Confirm => f.write_str("look for Cluster API core live"),
        }
    }
}
