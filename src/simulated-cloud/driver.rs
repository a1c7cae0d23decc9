//! The driver of the simulated cloud.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;

use super::{
    CloudApi, CloudCallError, CreateVm, InvalidAddress, PROVIDER_ID_PREFIX, ProviderSpec, TagRequest,
    VmListItem as Listing, VmSelector, VmState, VmView,
};
use mcm_api::{
    GoDuration,
    load_balancer::{LoadBalancer, LoadBalancerKind},
    machine::MachineClass,
    quantity::quantity_amount,
};
use mcm_driver::{
    Code, Driver, DriverCapabilities, DriverError, GpuCapacity, ListedVm, MachineRequest, OpenError, SecretData, Vm,
    VmCapacity, VmsByProviderId, no_members, spec::ClassProblems,
};

/// Name in `MachineClass.provider`.
pub const NAME: &str = "simulated";

/// An environment variable for runs with faults (docs/faults.md): the creation of the machine of this name panics.
const POISON: &str = "MCM_SIMULATED_PANIC";

/// Opens the driver of a cloud.
///
/// # Errors
/// The address of the cloud is invalid.
pub fn open(cloud: Result<Arc<dyn CloudApi>, InvalidAddress>) -> Result<Arc<dyn Driver>, OpenError> {
    let cloud = cloud.map_err(|error| OpenError::Address(Box::new(error)))?;
    let poisoned = std::env::var(POISON).ok();
    Ok(Arc::new(SimulatedDriver { poisoned, ..SimulatedDriver::new(cloud) }))
}

/// The driver of a simulated cloud, in this process or another.
#[derive(Debug)]
pub struct SimulatedDriver {
    cloud: Arc<dyn CloudApi>,
    /// The tag of all VMs; the namespace if `None`.
    cluster: Option<String>,
    poisoned: Option<String>,
}

impl SimulatedDriver {
    /// The driver of a cloud.
    pub fn new(cloud: Arc<dyn CloudApi>) -> Self {
        Self { cloud, cluster: None, poisoned: None }
    }

    /// Tags all VMs with `cluster` instead of the namespace, and finds only VMs with that tag.
    #[must_use]
    pub fn with_cluster(self, cluster: impl Into<String>) -> Self {
        Self { cluster: Some(cluster.into()), ..self }
    }

    fn cluster(&self, namespace: &str) -> String {
        self.cluster.clone().unwrap_or_else(|| namespace.to_owned())
    }

    fn selector(&self, request: &MachineRequest) -> Result<VmSelector, DriverError> {
        let machine = request.machine.metadata.name.clone().unwrap_or_default();
        let provider_id = Some(request.machine.spec.provider_id.clone()).filter(|id| !id.is_empty());
        if let Some(foreign) = provider_id.as_ref().filter(|id| !id.starts_with(PROVIDER_ID_PREFIX)) {
            let message = format!(
                "machine {machine:?} has provider ID {foreign:?}, which is not an ID of driver {NAME}: check its class"
            );
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        let cluster = Some(self.cluster(&namespace_of(request)));
        Ok(VmSelector { cluster, machine: Some(machine), provider_id })
    }
}

#[async_trait]
impl Driver for SimulatedDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities { initialize: true, list: true, inspect: false, tag: true }
    }

    fn validate(&self, class: &MachineClass) -> ClassProblems {
        let mut problems = ClassProblems::default();
        if !class.provider.is_empty() && !class.provider.trim().eq_ignore_ascii_case(NAME) {
            problems.expected("provider", NAME, &format!("{:?}", class.provider));
        }
        ProviderSpec::read(&class.provider_spec, &mut problems);
        problems
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.validate(&request.class).to_result()?;
        let namespace = namespace_of(request);
        let create = CreateVm {
            machine_name: request.machine.metadata.name.clone().unwrap_or_default(),
            cluster: Some(self.cluster(&namespace)),
            namespace,
            owner: request.owner.clone(),
            token: request.machine.metadata.uid.clone().unwrap_or_default(),
            user_data_bytes: request.secret.0.get("userData").map_or(0, Vec::len),
            provider_spec: request.class.provider_spec.clone(),
        };
        if self.poisoned.as_ref() == Some(&create.machine_name) {
            #[expect(clippy::panic, reason = "a fault that the operator asked for")]
            {
                panic!("{POISON} names the machine {}", create.machine_name);
            }
        }
        if create.token.is_empty() {
            // Without it a repeated call would create a second VM.
            let message = format!("machine {:?} has no UID: it is not from an API server", create.machine_name);
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        self.cloud.create(&create).await.map(vm_of).map_err(|failure| error_for(request, failure))
    }

    /// [`Code::Unimplemented`] if the class does not ask for initialization.
    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        if !spec_of(&request.class)?.initialize {
            let message = "the class does not ask for initialization";
            return Err(DriverError::new(Code::Unimplemented, message));
        }
        let id = match request.machine.spec.provider_id.rsplit('/').next() {
            Some(id) if !id.is_empty() => id.to_owned(),
            _ => self.id_of(&self.selector(request)?).await?,
        };
        self.cloud.initialize(&id).await.map(vm_of).map_err(|failure| error_for(request, failure))
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        self.cloud.delete(&self.selector(request)?).await.map_err(|failure| error_for(request, failure))?;
        Ok(None)
    }

    /// A VM that the Machine names is also found without a tag: another client may have created it.
    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let selector = self.selector(request)?;
        let found = match self.cloud.status(&selector).await {
            Err(failure) if failure.code == Code::NotFound && selector.provider_id.is_some() => {
                self.cloud.status(&VmSelector { cluster: Some(String::new()), ..selector }).await
            }
            found => found,
        };
        found.map(vm_of).map_err(|failure| error_for(request, failure))
    }

    /// Every VM of the cluster, which the classes of a namespace share.
    async fn list(&self, class: &MachineClass, _: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let namespace = class.metadata.namespace.as_deref().unwrap_or_default();
        let list = self.cloud.list(&self.cluster(namespace)).await.map_err(error_of)?;
        let entry = |vm: Listing| (vm.provider_id, ListedVm::new(vm.machine_name, Some(vm.owner)));
        Ok(list.items.into_iter().map(entry).collect())
    }

    fn may_list(&self, class: &MachineClass, other: &MachineClass) -> bool {
        let [own, other] =
            [class, other].map(|class| self.cluster(class.metadata.namespace.as_deref().unwrap_or_default()));
        own == other
    }

    /// Region, zone and type of a class do not determine the capacity of its VMs, so all of it is named.
    fn capacity_key(&self, class: &MachineClass) -> Option<String> {
        let spec = spec_of(class).ok()?;
        Some(format!("{} {} {} {:?}", spec.region, spec.zone, spec.instance_type, spec.capacity))
    }

    async fn capacity(&self, class: &MachineClass, _: &SecretData) -> Result<VmCapacity, DriverError> {
        Ok(capacity_of(&spec_of(class)?))
    }

    /// The tags of a VM are its cluster and its owner.
    async fn tag(&self, request: &MachineRequest, is_listed: bool) -> Result<(), DriverError> {
        let tags = match is_listed {
            true => TagRequest { cluster: self.cluster(&namespace_of(request)), owner: request.owner.clone() },
            false => TagRequest::default(),
        };
        self.cloud.tag(named_id(request)?, &tags).await.map(drop).map_err(error_of)
    }

    fn load_balancers(&self) -> Option<LoadBalancerKind> {
        Some(LoadBalancerKind::Simulated)
    }

    async fn register(&self, request: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        self.set_member(request, balancer, true).await
    }

    async fn deregister(&self, request: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        self.set_member(request, balancer, false).await
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        let handle = |spec: &PersistentVolumeSpec| spec.csi.as_ref().map(|csi| csi.volume_handle.clone());
        Ok(specs.iter().filter_map(handle).filter(|handle| !handle.is_empty()).collect())
    }
}

impl SimulatedDriver {
    async fn set_member(
        &self,
        request: &MachineRequest,
        balancer: &LoadBalancer,
        is_member: bool,
    ) -> Result<(), DriverError> {
        let LoadBalancer::Simulated(simulated) = balancer else { return Err(no_members(NAME, balancer)) };
        self.cloud.set_member(&simulated.name, named_id(request)?, is_member).await.map_err(error_of)
    }

    /// ID of a VM that exists, initialized or not.
    async fn id_of(&self, selector: &VmSelector) -> Result<String, DriverError> {
        match self.cloud.status(selector).await {
            Ok(vm) => Ok(vm.id),
            Err(CloudCallError { code: Code::Uninitialized, vm: Some(vm), .. }) => Ok(vm.id),
            Err(failure) => Err(error_of(failure)),
        }
    }
}

/// ID of the VM that the Machine names.
fn named_id(request: &MachineRequest) -> Result<&str, DriverError> {
    let id = request.machine.spec.provider_id.rsplit('/').next().filter(|id| !id.is_empty());
    id.ok_or_else(|| DriverError::new(Code::InvalidArgument, "the machine has no provider ID"))
}

fn vm_of(view: VmView) -> Vm {
    let halted = (view.state == VmState::Stopped).then(|| "stopped".to_owned());
    Vm { provider_id: view.provider_id, node_name: view.node_name, addresses: view.addresses, halted, ..Vm::default() }
}

/// The error of a call that may end while the cloud still works, if its request has the flag for it.
fn error_for(request: &MachineRequest, failure: CloudCallError) -> DriverError {
    let call_again_in = failure.call_again_in.filter(|_| request.may_pause).map(GoDuration::as_std);
    DriverError { call_again_in, ..error_of(failure) }
}

fn error_of(failure: CloudCallError) -> DriverError {
    DriverError {
        last_known_state: failure.last_known_state,
        vm: failure.vm.map(|vm| Box::new(vm_of(*vm))),
        ..DriverError::new(failure.code, failure.message)
    }
}

fn namespace_of(request: &MachineRequest) -> String {
    request.machine.metadata.namespace.clone().unwrap_or_default()
}

/// The capacity of a VM, as its Node has it.
fn capacity_of(spec: &ProviderSpec) -> VmCapacity {
    const MIB: f64 = 1_048_576.0;
    const GIB: f64 = 1024.0 * MIB;
    let whole = |name: &str, unit: f64| {
        let amount = spec.capacity.get(name).and_then(quantity_amount).unwrap_or_default();
        (amount / unit).floor() as u64
    };
    let gpus = spec.capacity.keys().find(|name| name.ends_with("/gpu"));
    VmCapacity {
        instance_type: spec.instance_type.clone(),
        region: spec.region.clone(),
        zone: Some(spec.zone.clone()),
        cpus: whole("cpu", 1.0),
        memory_mib: whole("memory", MIB),
        gpus: Some(gpus.map_or(GpuCapacity::NONE, |name| GpuCapacity::made_by(name, whole(name, 1.0)))),
        architecture: Some("amd64"),
        disk_gib: Some(whole("ephemeral-storage", GIB)).filter(|size| *size > 0),
    }
}

fn spec_of(class: &MachineClass) -> Result<ProviderSpec, DriverError> {
    ProviderSpec::parse(&class.provider_spec)
        .map_err(|error| DriverError::new(Code::InvalidArgument, error.to_string()))
}

#[cfg(test)]
mod tests;
