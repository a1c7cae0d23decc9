//! The interface between controllers and clouds.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;

use super::{
    capacity::VmCapacity,
    cluster_tag,
    code::Code,
    error::DriverError,
    inspection::ResourceFinding,
    spec::ClassProblems,
    vm::{Vm, VmsByProviderId},
};
use mcm_api::{
    load_balancer::{LoadBalancer, LoadBalancerKind},
    machine::{Machine, MachineClass},
};

/// Secret data for one call: credentials and user data. Its content never appears in `Debug` output.
#[derive(Clone, Default)]
pub struct SecretData(pub BTreeMap<String, Vec<u8>>);

impl std::fmt::Debug for SecretData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// Request of create, initialize, delete and status.
#[derive(Clone, Debug)]
pub struct MachineRequest {
    /// The Machine. Its UID is the idempotency token of creation. An orphan has only name, namespace and provider ID.
    pub machine: Arc<Machine>,
    /// Its class.
    pub class: Arc<MachineClass>,
    /// Merged Secret data. In `create` and `initialize` the placeholders of the user data are substituted.
    pub secret: SecretData,
    /// Marker of the owner of the VM, which `create` and `tag` write on it; empty in other requests. At most 63 lower-case
    /// letters, digits and hyphens.
    pub owner: String,
    /// The call may end while the cloud still works, with [`DriverError::call_again_in`]. Otherwise it waits.
    pub may_pause: bool,
}

/// Optional capabilities of a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCapabilities {
    /// `initialize` is implemented; otherwise it is not called.
    pub initialize: bool,
    /// `list` finds every VM of a class; otherwise orphans are not collected.
    pub list: bool,
    /// `inspect` is implemented.
    pub inspect: bool,
    /// `tag` is implemented.
    pub tag: bool,
}

/// Reconciles a class.
pub type ProblemsHook = Arc<dyn Fn(&MachineClass) + Send + Sync>;

/// A driver for one cloud.
///
/// All methods may be called concurrently and again after any failure. An unknown result (a lost response, a timeout)
/// is an error with a transient code, never a wrong result.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// Name in `MachineClass.provider`.
    fn name(&self) -> &'static str;

    /// Its optional capabilities.
    fn capabilities(&self) -> DriverCapabilities;

    /// Returns all problems of a class, field by field. Makes no cloud call. [`crate::spec`] helps.
    fn validate(&self, class: &MachineClass) -> ClassProblems;

    /// The same, as far as it is known without waiting: `None` if the driver is another process and was not asked yet.
    fn known_problems(&self, class: &MachineClass) -> Option<ClassProblems> {
        Some(self.validate(class))
    }

    /// Calls `hook` whenever the problems of a class became known, or may be asked for again. Only a driver that is another
    /// process does.
    fn on_problems(&self, _hook: ProblemsHook) {}

    /// The same, also of a driver that is another process.
    async fn problems(&self, class: &MachineClass) -> Result<ClassProblems, DriverError> {
        Ok(self.validate(class))
    }

    /// Returns the problems of the Secret of a class, such as missing credentials. Makes no cloud call. Only `mcm class check`
    /// calls it, because Secrets change without their class.
    fn secret_problems(&self, _: &MachineClass, _: &SecretData) -> ClassProblems {
        ClassProblems::default()
    }

    /// Creates the VM of a Machine, or returns the VM of an earlier call. Never creates a second one.
    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError>;

    /// Initializes a VM after its creation. [`Code::Uninitialized`] means: call again.
    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError>;

    /// Deletes the VM with the Machine's provider ID or, without one, every VM of the Machine. Succeeds if no VM
    /// exists. Returns the state to store, if any.
    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError>;

    /// Finds the VM of a Machine. [`Code::NotFound`] means that it certainly does not exist; [`Code::Uninitialized`]
    /// carries the VM in [`DriverError::vm`].
    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError>;

    /// All existing VMs of a class, by provider ID. A partial list is an error.
    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError>;

    /// [`Self::list`] of a class may show VMs that were created for another class of the same provider. Makes no
    /// cloud call.
    fn may_list(&self, class: &MachineClass, other: &MachineClass) -> bool {
        cluster_tag::is_shared(&class.provider_spec, &other.provider_spec)
    }

    /// Checks the cloud resources that the class needs, such as its image and its network, with read-only calls.
    /// [`Code::Unimplemented`] if the driver cannot. Only `mcm class check` calls it.
    async fn inspect(&self, _: &MachineClass, _: &SecretData) -> Result<Vec<ResourceFinding>, DriverError> {
        let message = format!("driver {} cannot inspect its cloud", self.name());
        Err(DriverError::new(Code::Unimplemented, message))
    }

    /// Names all that [`Self::capacity`] depends on, such as region and type of the VMs: classes of one account with one key have VMs
    /// of one capacity. `None` if the driver cannot read it. Makes no cloud call.
    fn capacity_key(&self, _: &MachineClass) -> Option<String> {
        None
    }

    /// Reads the resources of a VM of the class, with read-only calls. [`Code::Unimplemented`] if the driver cannot.
    async fn capacity(&self, _: &MachineClass, _: &SecretData) -> Result<VmCapacity, DriverError> {
        Err(no_capacity(self.name()))
    }

    /// Gives the VM with the Machine's provider ID the tags by which [`Self::list`] finds VMs of the class and the marker of
    /// its owner, or takes the marker and so many of the others away that `list` does not find it. [`Code::Unimplemented`] if the driver cannot. Only `mcm adopt` calls it.
    async fn tag(&self, _: &MachineRequest, _is_listed: bool) -> Result<(), DriverError> {
        let message = format!("driver {} cannot change tags: change them by hand, as the class specifies", self.name());
        Err(DriverError::new(Code::Unimplemented, message))
    }

    /// Provider IDs of the VMs that are members of a group with which the cloud keeps a number of VMs, in the region of a class: an
    /// Auto Scaling group of AWS. A partial list is an error. [`Code::Unimplemented`] if the driver finds no groups. Only `mcm adopt`
    /// calls it.
    async fn members_of_group(
        &self,
        _: &MachineClass,
        _: &SecretData,
        group: &str,
    ) -> Result<BTreeSet<String>, DriverError> {
        let message = format!("driver {} cannot list the members of group {group}", self.name());
        Err(DriverError::new(Code::Unimplemented, message))
    }

    /// The kind of load balancer whose members [`Self::register`] and [`Self::deregister`] change; `None` if the driver changes
    /// none. Makes no cloud call.
    fn load_balancers(&self) -> Option<LoadBalancerKind> {
        None
    }

    /// Makes the VM with the Machine's provider ID a member of a load balancer that exists. Succeeds if it is one.
    async fn register(&self, _: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        Err(no_members(self.name(), balancer))
    }

    /// Ends the membership of that VM. Succeeds if it is no member, and if the VM does not exist. [`Code::NotFound`] means that
    /// the load balancer does not exist, according to a clear answer of the cloud.
    async fn deregister(&self, _: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        Err(no_members(self.name(), balancer))
    }

    /// IDs of volumes as they appear in `Node.status.volumesAttached`. Unknown volume types are left out.
    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError>;
}

/// The error of a driver that cannot read the capacity of VMs.
pub(crate) fn no_capacity(driver: &str) -> DriverError {
    let message = format!("driver {driver} cannot read the capacity of VMs: write nodeTemplate.capacity of the class");
    DriverError::new(Code::Unimplemented, message)
}

/// The error of a driver for a load balancer that it does not serve.
pub fn no_members(driver: &str, balancer: &LoadBalancer) -> DriverError {
    let message = format!("driver {driver} cannot change the members of {balancer}: name one of its own cloud");
    DriverError::new(Code::Unimplemented, message)
}
