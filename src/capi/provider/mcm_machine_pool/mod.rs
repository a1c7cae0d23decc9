//! MCMMachinePools: each is the VMs of a MachinePool of Cluster API, by way of a native MachineDeployment, or of one for
//! each failure domain. The native controllers create, roll, drain and replace; the workload cluster is their target.
//!
//! Rules that hold in every plan:
//! - nothing but the status is written before core has made the MachinePool an owner, and nothing but the condition `Paused`
//!   while the object or its Cluster is paused;
//! - an ID leaves `spec.providerIDList` only after its native Machine is deleted, because core then deletes the Node;
//! - a deployment that is only shown is never written;
//! - the finalizer is removed only after a live read showed that the native objects, and so the VMs, are deleted.

mod apply;
mod cache;
mod chosen;
mod ids;
mod members;
mod native;
mod observe;
mod parts;
mod plan;
mod register;
mod shares;
mod status;
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

use crate::object::{
    conditions,
    gate::ManagerObstacle,
    view::{ObjectView, OwnerView},
};
use mcm_api::{
    machine::{self as native_api, MachineClass, MachineDeployment},
    patch,
};
use mcm_conversion::types::{
    Cluster, MCMCluster, MCMMachine, MCMMachinePool, MCMMachinePoolStatus, Machine, MachinePool,
};

pub(super) use cache::{BY_CLUSTER, CACHE, POOLS};
pub(super) use register::KIND;

/// The input of a plan for an MCMMachinePool.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The object.
    pub object: Arc<MCMMachinePool>,
    /// The MachinePool that owns it.
    pub owner: OwnerView<MachinePool>,
    /// Its Cluster.
    pub cluster: ObjectView<Cluster>,
    /// The infrastructure of the Cluster, if it is ours.
    pub infrastructure: ObjectView<MCMCluster>,
    /// The named or derived classes, and those of its Machines, by name.
    pub classes: BTreeMap<String, ObjectView<MachineClass>>,
    /// The classes that its sets and Machines use.
    pub used_classes: BTreeSet<String>,
    /// The native deployments with its label or with a name that it needs, and the shown one, by name.
    pub deployments: BTreeMap<String, Arc<MachineDeployment>>,
    /// The native Machines of its owned deployments or of the shown one, by name.
    pub machines: BTreeMap<String, Arc<native_api::Machine>>,
    /// Names of its native Machines that cannot be decoded.
    pub unreadable_machines: Vec<String>,
    /// Names of its native deployments that cannot be decoded.
    pub unreadable_deployments: Vec<String>,
    /// The Secret with bootstrap data that the MachinePool names.
    pub bootstrap: ObjectView<()>,
    /// Why the Nodes of the workload cluster are not known; `None` if they are.
    pub nodes_unknown: Option<String>,
    /// The native objects were read since the Cluster was paused.
    pub is_resumed: bool,
    /// MCMMachines with its label or with the name of one of its native Machines, by name.
    pub members: BTreeMap<String, MachinePoolMember>,
    /// Results of the live reads of this reconcile.
    pub session: McmMachinePoolSession,
    /// A native manager beside the provider.
    pub obstacle: Option<ManagerObstacle>,
    /// Value of `--watch-filter`.
    pub watch_filter: Option<String>,
    /// The time.
    pub now: Timestamp,
}

/// Results of the live reads of a reconcile.
#[derive(Clone, Debug, Default)]
pub(super) struct McmMachinePoolSession {
    /// No native object of the pool exists.
    pub is_gone: bool,
    /// The Machines of Cluster API in the caches are as they were during this reconcile.
    pub has_read_machines: bool,
    /// Names of the native Machines whose Nodes the autoscaler is about to delete; `None` before the Nodes were read.
    pub to_be_deleted: Option<BTreeSet<String>>,
}

/// An MCMMachine of a pool whose VMs are also Machines of Cluster API.
#[derive(Clone, Debug)]
pub(super) struct MachinePoolMember {
    /// The object.
    pub object: Arc<MCMMachine>,
    /// The Machine of the same name, once core has created it.
    pub machine: ObjectView<Machine>,
}

/// One operation of a plan. Patches are JSON merge patches with the resource version as precondition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Patch of the MCMMachinePool.
    PatchSelf(Value),
    /// Write its status.
    WriteStatus(Box<MCMMachinePoolStatus>),
    /// Create a derived class.
    CreateClass(Box<MachineClass>),
    /// Delete a derived class.
    DeleteClass(Arc<MachineClass>),
    /// Create a native deployment.
    CreateDeployment(Box<MachineDeployment>),
    /// Patch of a native deployment.
    PatchDeployment { deployment: Arc<MachineDeployment>, patch: Value },
    /// Delete a native deployment.
    DeleteDeployment(Arc<MachineDeployment>),
    /// Patch of a native Machine.
    PatchNative { machine: Arc<native_api::Machine>, patch: Value },
    /// Create an MCMMachine for a native Machine.
    CreateMember(Box<MCMMachine>),
    /// Patch of an MCMMachine of the pool.
    PatchMember { member: Arc<MCMMachine>, patch: Value },
    /// Delete an MCMMachine for which core creates no Machine any more.
    DeleteMember(Arc<MCMMachine>),
    /// Delete a Machine of Cluster API, so that core drains its Node.
    DeleteMachine(Arc<Machine>),
    /// Patch of the MachinePool.
    PatchOwner { pool: Arc<MachinePool>, patch: Value },
    /// Read the native objects of the pool live.
    ReadNatives,
    /// Read the Machines of Cluster API live.
    ReadMachines,
    /// Read the Nodes of the native Machines live.
    ReadNodes,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PatchSelf(patch) => write!(f, "patch {patch}"),
            Self::WriteStatus(status) => {
                write!(f, "write status, {} replicas", status.replicas.unwrap_or_default())?;
                if status.ready {
                    write!(f, ", ready")?;
                }
                conditions::told(f, &status.conditions)
            }
            Self::CreateClass(class) => write!(f, "create MachineClass {}", class.name_any()),
            Self::DeleteClass(class) => write!(f, "delete MachineClass {}", class.name_any()),
            Self::CreateDeployment(deployment) => {
                let (name, spec) = (deployment.name_any(), &deployment.spec);
                let class = &spec.template.spec.class.name;
                write!(f, "create MCM MachineDeployment {name} of class {class} with {} replicas", spec.replicas)
            }
            Self::PatchDeployment { deployment, patch } => {
                write!(f, "patch MCM MachineDeployment {}: {}", deployment.name_any(), patch::fields(patch))
            }
            Self::DeleteDeployment(deployment) => {
                write!(f, "delete MCM MachineDeployment {}", deployment.name_any())
            }
            Self::PatchNative { machine, patch } => {
                write!(f, "patch MCM Machine {}: {}", machine.name_any(), patch::fields(patch))
            }
            Self::CreateMember(member) => write!(f, "create MCMMachine {}", member.name_any()),
            Self::PatchMember { member, patch } => {
                write!(f, "patch MCMMachine {}: {}", member.name_any(), patch::fields(patch))
            }
            Self::DeleteMember(member) => write!(f, "delete MCMMachine {}", member.name_any()),
            Self::DeleteMachine(machine) => write!(f, "delete Machine {}", machine.name_any()),
            Self::PatchOwner { pool, patch } => write!(f, "patch MachinePool {} {patch}", pool.name_any()),
            Self::ReadNatives => f.write_str("look for MCM objects live"),
            Self::ReadMachines => f.write_str("read the Machines live"),
            Self::ReadNodes => f.write_str("read the Nodes live"),
        }
    }
}
