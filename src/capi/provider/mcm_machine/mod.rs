//! MCMMachines: each is the VM of a Machine of Cluster API, by way of a native Machine of the same name.
//!
//! Rules that hold in every plan:
//! - nothing but the status is written before core has made the Machine an owner, and nothing but the condition `Paused`
//!   while the object or its Cluster is paused;
//! - an object that has the ID of a VM never leads to another VM;
//! - a VM is registered in the load balancer of its control plane before the object is provisioned, and deregistered before
//!   the VM is deleted;
//! - the finalizer is removed only after a live read showed that the native Machine, and so its VM, is deleted.

mod apply;
mod cache;
mod in_place;
mod membership;
mod native;
mod observe;
mod parts;
mod plan;
mod register;
mod status;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use crate::object::{
    conditions,
    gate::ManagerObstacle,
    view::{ObjectView, OwnerView},
};
use mcm_api::{
    load_balancer::{LoadBalancer, LoadBalancerKind},
    machine::{self as native_api, MachineClass},
};
pub use mcm_conversion::{
    ProviderKinds,
    types::{Cluster, MCMCluster, MCMMachine, MCMMachineStatus, Machine},
};
use mcm_driver::Code;

pub(super) use cache::{BY_CLUSTER, CACHE, CLUSTERS, MACHINES};
pub(super) use register::KIND;

/// The input of a plan for an MCMMachine.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The object.
    pub object: Arc<MCMMachine>,
    /// The Machine that owns it.
    pub owner: OwnerView<Machine>,
    /// Its Cluster.
    pub cluster: ObjectView<Cluster>,
    /// The infrastructure of the Cluster, if it is ours.
    pub infrastructure: ObjectView<MCMCluster>,
    /// The named class, or the class for the zone of its Machine in its place.
    pub class: ObjectView<MachineClass>,
    /// The class with the name of the object, for a description in the object itself.
    pub own_class: ObjectView<MachineClass>,
    /// The class of the VM: that of the native Machine, if there is one.
    pub vm_class: ObjectView<MachineClass>,
    /// The kind of load balancer that the driver of that class serves.
    pub served: Option<LoadBalancerKind>,
    /// The native Machine of its name.
    pub native: ObjectView<native_api::Machine>,
    /// Name of another native Machine that has the VM of the object.
    pub rival: Option<String>,
    /// The Secret with bootstrap data that its Machine names.
    pub bootstrap: ObjectView<()>,
    /// Results of the live reads of this reconcile.
    pub session: McmMachineSession,
    /// Results of the calls of earlier reconciles.
    pub memory: Memory,
    /// A native manager beside the provider.
    pub obstacle: Option<ManagerObstacle>,
    /// Value of `--watch-filter`.
    pub watch_filter: Option<String>,
    /// The time.
    pub now: Timestamp,
}

/// A call that failed, or that the cloud still works on.
#[derive(Clone, Debug)]
struct UnfinishedCall {
    action: Action,
    code: Code,
    message: String,
    /// The cloud works on it: the call is repeated to see its end.
    is_working: bool,
    /// Failures in a row.
    count: u32,
    until: Timestamp,
}

/// Facts that earlier reconciles leave.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    failed: Option<UnfinishedCall>,
}

/// Results of the live reads and of the calls of a reconcile.
#[derive(Clone, Debug, Default)]
pub(super) struct McmMachineSession {
    /// The native Machine does not exist.
    pub is_native_gone: bool,
    /// The native Machines in the caches are as they were during this reconcile.
    pub has_read_natives: bool,
    /// Name of a native Machine that has the VM of the object and cannot be decoded, so that no cache has it.
    pub unreadable_rival: Option<String>,
    /// The infrastructure of the Cluster, of another provider; null if it does not exist.
    pub network: Option<Arc<Value>>,
    /// The load balancer in which the VM was registered.
    pub registered: Option<LoadBalancer>,
    /// Load balancers from which the VM was deregistered, each with the message of the cloud if it does not exist.
    pub deregistered: Vec<(LoadBalancer, String)>,
}

/// One operation of a plan. Patches are JSON merge patches with the resource version as precondition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Patch of the MCMMachine.
    PatchSelf(Value),
    /// Write its status.
    WriteStatus(Box<MCMMachineStatus>),
    /// Create the derived class.
    CreateClass(Box<MachineClass>),
    /// Patch of the class that was made of the description.
    PatchClass { class: Arc<MachineClass>, patch: Value },
    /// Create the native Machine.
    CreateNative(Box<native_api::Machine>),
    /// Patch of the native Machine.
    PatchNative { machine: Arc<native_api::Machine>, patch: Value },
    /// Delete the native Machine.
    DeleteNative(Arc<native_api::Machine>),
    /// Read the native Machine live.
    ReadNative,
    /// Read all native Machines of the namespace live.
    ReadNatives,
    /// Read the infrastructure of the Cluster, of another provider, live.
    ReadNetwork { kinds: &'static ProviderKinds, name: String },
    /// Register the VM in a load balancer.
    Register(LoadBalancer),
    /// Deregister the VM from a load balancer.
    Deregister(LoadBalancer),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PatchSelf(patch) => write!(f, "patch {patch}"),
            Self::WriteStatus(status) => {
                write!(f, "write status")?;
                if status.initialization.provisioned == Some(true) {
                    write!(f, ", provisioned")?;
                }
                conditions::told(f, &status.conditions)
            }
            Self::CreateClass(class) => write!(f, "create MachineClass {}", class.name_any()),
            Self::PatchClass { class, patch } => write!(f, "patch MachineClass {} {patch}", class.name_any()),
            Self::CreateNative(machine) => {
                write!(f, "create MCM Machine {} of class {}", machine.name_any(), machine.spec.class.name)?;
                match machine.spec.provider_id.as_str() {
                    "" => Ok(()),
                    id => write!(f, " with VM {id}"),
                }
            }
            Self::PatchNative { machine, patch } => write!(f, "patch MCM Machine {} {patch}", machine.name_any()),
            Self::DeleteNative(machine) => write!(f, "delete MCM Machine {}", machine.name_any()),
            Self::ReadNative => write!(f, "read the MCM Machine live"),
            Self::ReadNatives => write!(f, "read all MCM Machines live"),
            Self::ReadNetwork { kinds, name } => write!(f, "read {} {name} live", kinds.cluster.kind),
            Self::Register(balancer) => write!(f, "register the VM in {balancer}"),
            Self::Deregister(balancer) => write!(f, "deregister the VM from {balancer}"),
        }
    }
}

/// The load balancers in which the VM of an object is or may be registered, for the hold on the deletion of its native
/// Machine.
pub(super) fn registered_in(object: &MCMMachine) -> &[LoadBalancer] {
    object.status.as_ref().map(|status| status.load_balancers.as_slice()).unwrap_or_default()
}
