//! The operations of the simulated cloud.
//!
//! There are no background tasks: the state of a VM is computed from times that are fixed when an operation begins, so
//! an operation continues when its caller disconnects, and after a restart.

mod load_balancers;
mod nodes;
mod outside;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    io,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::Notify;

use super::{
    api::CloudApi,
    clock::SimulationClock,
    control::{InjectedFault, LatencyDuration, OperationLatencies, SimulationSettings, VmShape},
    faults::FaultInjector,
    inventory::VmInventory,
    journal::JournalError,
    messages::{CloudCallError, CreateVm, ListedVms, TagRequest, VmList, VmListItem, VmSelector, VmView},
    record::{DepartureCause, VmRecord, after, cluster_of},
    spec::ProviderSpec,
    stats::SimulationStats,
};
use mcm_api::GoDuration;
use mcm_driver::{code::Code, operation::DriverOperation};

pub(super) use nodes::NodeView;

/// A simulated cloud. All methods may be called concurrently.
#[derive(Debug)]
pub struct CloudSimulator {
    pub(super) clock: SimulationClock,
    seed: u64,
    /// Settings that a reset returns to.
    start: SimulationSettings,
    inner: Mutex<SimulatorState>,
    /// Wakes the keeper of the Nodes.
    changed: Notify,
}

#[derive(Debug)]
struct SimulatorState {
    vms: VmInventory,
    control: SimulationSettings,
    faults: FaultInjector,
    stats: SimulationStats,
    /// The members of each load balancer, by its name: IDs of VMs.
    load_balancers: BTreeMap<String, BTreeSet<String>>,
    /// VMs that changed since their Nodes were last updated; `None` while no Nodes are kept.
    changed: Option<BTreeSet<String>>,
}

impl CloudSimulator {
    /// A cloud without VMs that is forgotten with the process.
    pub fn new(seed: u64, control: SimulationSettings) -> Self {
        Self::with(VmInventory::default(), seed, control)
    }

    /// A cloud that keeps its VMs in a file.
    ///
    /// # Errors
    /// When the file cannot be read, written or understood.
    pub fn open(state: &Path, seed: u64, control: SimulationSettings) -> Result<Self, JournalError> {
        Ok(Self::with(VmInventory::open(state)?, seed, control))
    }

    fn with(vms: VmInventory, seed: u64, control: SimulationSettings) -> Self {
        let stats = SimulationStats::starting_with(vms.len());
        let faults = FaultInjector::seeded(seed);
        let inner = SimulatorState {
            vms,
            control: control.clone(),
            faults,
            stats,
            load_balancers: BTreeMap::new(),
            changed: None,
        };
        Self { clock: SimulationClock::new(), seed, start: control, inner: Mutex::new(inner), changed: Notify::new() }
    }

    /// Creates a VM, or returns the VM of an earlier call with the same token.
    ///
    /// # Errors
    /// As documented for `POST /v1/vms`, and injected faults.
    pub async fn create(&self, request: &CreateVm) -> Result<VmView, CloudCallError> {
        self.call(DriverOperation::Create, &request.machine_name, self.make(request)).await
    }

    /// Finds the only VM of a selector.
    ///
    /// # Errors
    /// `NotFound`, `OutOfRange` for several, `Uninitialized` with the VM, and injected faults.
    pub async fn status(&self, selector: &VmSelector) -> Result<VmView, CloudCallError> {
        let machine = self.machine_of(selector);
        self.call(DriverOperation::Status, &machine, async {
            self.pause(self.latency().status).await;
            self.look_up(selector)
        })
        .await
    }

    /// All VMs of a cluster, or of all.
    ///
    /// # Errors
    /// Injected faults only.
    pub async fn list(&self, cluster: Option<&str>) -> Result<VmList, CloudCallError> {
        let selector = VmSelector { cluster: cluster.map(str::to_owned), ..VmSelector::default() };
        self.call(DriverOperation::List, "", async {
            self.pause(self.latency().list).await;
            let (inner, now) = self.lock();
            Ok(VmList { items: inner.vms.select(&selector).into_iter().map(|vm| vm.view(now)).collect() })
        })
        .await
    }

    /// Initializes a VM.
    ///
    /// # Errors
    /// `NotFound`, `Aborted` while it is being deleted, and injected faults.
    pub async fn initialize(&self, id: &str) -> Result<VmView, CloudCallError> {
        let machine = self.lock().0.vms.get(id).map(|vm| vm.machine_name.clone()).unwrap_or_default();
        self.call(DriverOperation::Initialize, &machine, async {
            self.pause(self.latency().initialize).await;
            self.change(id, |vm, now| {
                if vm.gone_at.is_some() {
                    let message = format!("VM {id} cannot be initialized: it is being deleted");
                    return Err(CloudCallError::new(Code::Aborted, message));
                }
                vm.initialized_at.get_or_insert(now.max(vm.made_at));
                Ok(())
            })
        })
        .await
    }

    /// Deletes the VMs of a selector, if any, and returns when they are deleted.
    ///
    /// # Errors
    /// `InvalidArgument` if neither a Machine nor a provider ID is named, and injected faults.
    pub async fn delete(&self, selector: &VmSelector) -> Result<(), CloudCallError> {
        if selector.machine.is_none() && selector.provider_id.is_none() {
            let message = "name the VM to delete by machine or by providerID";
            return Err(CloudCallError::new(Code::InvalidArgument, message));
        }
        let machine = self.machine_of(selector);
        self.call(DriverOperation::Delete, &machine, async {
            let ids: Vec<String> = self.lock().0.vms.select(selector).iter().map(|vm| vm.id.clone()).collect();
            self.take_down(&ids).await
        })
        .await
    }

    /// Deletes one VM, and returns when it is deleted.
    ///
    /// # Errors
    /// `NotFound`, and injected faults.
    pub async fn delete_id(&self, id: &str) -> Result<(), CloudCallError> {
        let machine = self.lock().0.vms.get(id).map(|vm| vm.machine_name.clone()).unwrap_or_default();
        self.call(DriverOperation::Delete, &machine, async {
            if self.lock().0.vms.get(id).is_none() {
                return Err(no_vm(id));
            }
            self.take_down(&[id.to_owned()]).await
        })
        .await
    }

    /// Counts a call, and delays it or makes it fail as configured.
    async fn call<T>(
        &self,
        operation: DriverOperation,
        machine: &str,
        work: impl Future<Output = Result<T, CloudCallError>>,
    ) -> Result<T, CloudCallError> {
        let result = match self.admit(operation, machine) {
            Err(throttled) => Err(throttled),
            Ok(None) => work.await,
            Ok(Some(fault)) => self.suffer(fault, operation, work).await,
        };
        result.inspect_err(|failure| self.lock().0.stats.failed(operation, failure.code))
    }

    fn latency(&self) -> OperationLatencies {
        self.lock().0.control.latency
    }

    async fn pause(&self, latency: LatencyDuration) {
        if !latency.as_std().is_zero() {
            tokio::time::sleep(latency.as_std()).await;
        }
    }

    fn admit(&self, operation: DriverOperation, machine: &str) -> Result<Option<InjectedFault>, CloudCallError> {
        let (mut guard, now) = self.lock();
        let inner = &mut *guard;
        inner.stats.called(operation);
        if let Some(throttle) = &inner.control.throttle
            && inner.faults.is_throttled(throttle, now)
        {
            let message = format!("more than {} calls per second: retry later", throttle.calls_per_second);
            return Err(CloudCallError::new(throttle.code, message));
        }
        Ok(inner.faults.strike(&inner.control, operation, machine))
    }

    async fn suffer<T>(
        &self,
        fault: InjectedFault,
        operation: DriverOperation,
        work: impl Future<Output = Result<T, CloudCallError>>,
    ) -> Result<T, CloudCallError> {
        let failure = |code: Code| {
            let injected = || format!("injected fault of operation {}", operation.as_str());
            let message = fault.message.clone().unwrap_or_else(injected);
            let call_again_in = fault.call_again_in.map(|pause| GoDuration::from(pause.as_std()));
            CloudCallError {
                last_known_state: fault.last_known_state.clone(),
                call_again_in,
                ..CloudCallError::new(code, message)
            }
        };
        let delay = || self.pause(fault.latency);
        if fault.lost_reply {
            // The caller does not get the result.
            drop(work.await);
            delay().await;
            return Err(failure(fault.error().unwrap_or(Code::Unknown)));
        }
        delay().await;
        match fault.error() {
            Some(code) => Err(failure(code)),
            None => work.await,
        }
    }

    async fn make(&self, request: &CreateVm) -> Result<VmView, CloudCallError> {
        let (id, made_at) = self.begin(request)?;
        self.clock.reach(made_at).await;
        let (inner, now) = self.lock();
        inner.vms.get(&id).map(|vm| vm.view(now)).ok_or_else(|| {
            let message = format!("VM {id} of machine {:?} was deleted during its creation", request.machine_name);
            CloudCallError::new(Code::Aborted, message)
        })
    }

    /// Starts to make a VM, or finds it; its ID and when it is made.
    fn begin(&self, request: &CreateVm) -> Result<(String, Timestamp), CloudCallError> {
        let machine = &request.machine_name;
        if machine.is_empty() || request.namespace.is_empty() {
            return Err(CloudCallError::new(Code::InvalidArgument, "machineName and namespace are required"));
        }
        let spec = ProviderSpec::parse(&request.provider_spec)
            .map_err(|error| CloudCallError::new(Code::InvalidArgument, error.to_string()))?;
        let (mut guard, now) = self.lock();
        let inner = &mut *guard;
        if let Some(vm) = inner.find(request)? {
            return Ok((vm.id.clone(), vm.made_at));
        }
        inner.check_room(&spec)?;
        let (serial, id) = inner.vms.next_identity(self.seed);
        let vm = VmRecord::new(serial, id.clone(), request, spec, &inner.control.latency, now);
        let made_at = vm.made_at;
        inner.vms.put(vm).map_err(|error| unwritten(&error))?;
        inner.stats.created += 1;
        inner.stats.now_alive(inner.vms.len());
        self.announce(inner, &id);
        Ok((id, made_at))
    }

    async fn take_down(&self, ids: &[String]) -> Result<(), CloudCallError> {
        let mut last = Timestamp::MIN;
        for id in ids {
            let default = self.latency().delete.as_std();
            let begun = self.change(id, |vm, now| {
                let latency = vm.spec.delete_latency.map_or(default, GoDuration::as_std);
                last = last.max(*vm.gone_at.get_or_insert(after(now, latency)));
                Ok(())
            });
            match begun {
                Err(failure) if failure.code != Code::NotFound => return Err(failure),
                Ok(_) | Err(_) => {}
            }
        }
        if !ids.is_empty() {
            self.clock.reach(last).await;
        }
        let (inner, _) = self.lock();
        match ids.iter().find(|id| inner.vms.get(id).is_some()) {
            None => Ok(()),
            Some(id) => {
                let message = format!("VM {id} is deleted, but the state file cannot be written: retry later");
                Err(CloudCallError::new(Code::Unavailable, message))
            }
        }
    }

    fn look_up(&self, selector: &VmSelector) -> Result<VmView, CloudCallError> {
        let (inner, now) = self.lock();
        let found = inner.vms.select(selector);
        let name = || match (&selector.provider_id, &selector.machine) {
            (Some(provider_id), _) => format!("VM {provider_id:?}"),
            (None, machine) => format!("VM of machine {:?}", machine.as_deref().unwrap_or_default()),
        };
        match found.as_slice() {
            [] => Err(CloudCallError::new(Code::NotFound, format!("there is no {}", name()))),
            [vm] if vm.initialized_at.is_some() => Ok(vm.view(now)),
            [vm] => Err(CloudCallError {
                vm: Some(Box::new(vm.view(now))),
                ..CloudCallError::new(Code::Uninitialized, format!("VM {} is not initialized", vm.id))
            }),
            several => {
                let ids: Vec<&str> = several.iter().map(|vm| vm.id.as_str()).collect();
                let message = format!("more than one {}: {}", name(), ids.join(", "));
                Err(CloudCallError::new(Code::OutOfRange, message))
            }
        }
    }

    /// The Machine that a fault would have to name.
    fn machine_of(&self, selector: &VmSelector) -> String {
        let of_vm = || self.lock().0.vms.select(selector).first().map(|vm| vm.machine_name.clone());
        selector.provider_id.as_ref().and_then(|_| of_vm()).or_else(|| selector.machine.clone()).unwrap_or_default()
    }

    fn change(
        &self,
        id: &str,
        change: impl FnOnce(&mut VmRecord, Timestamp) -> Result<(), CloudCallError>,
    ) -> Result<VmView, CloudCallError> {
        let (mut inner, now) = self.lock();
        let old = inner.vms.get(id).ok_or_else(|| no_vm(id))?;
        let mut vm = old.clone();
        change(&mut vm, now)?;
        let view = vm.view(now);
        if vm != *old {
            inner.vms.put(vm).map_err(|error| unwritten(&error))?;
            self.announce(&mut inner, id);
        }
        Ok(view)
    }

    fn announce(&self, inner: &mut SimulatorState, id: &str) {
        if let Some(changed) = &mut inner.changed {
            changed.insert(id.to_owned());
            self.changed.notify_one();
        }
    }

    /// The present, in which every deletion that has ended has taken its VM away.
    fn lock(&self) -> (MutexGuard<'_, SimulatorState>, Timestamp) {
        let mut guard = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let inner = &mut *guard;
        while let Some((at, id)) = inner.vms.due(now) {
            if let Err(error) = inner.vms.remove(&id, at, DepartureCause::Deleted) {
                tracing::warn!(vm = id, %error, "cannot write the deletion of the VM to the state file, retrying");
                break;
            }
            inner.stats.deleted += 1;
            inner.stats.now_alive(inner.vms.len());
            self.announce(inner, &id);
        }
        (guard, now)
    }
}

#[async_trait]
impl CloudApi for CloudSimulator {
    async fn create(&self, request: &CreateVm) -> Result<VmView, CloudCallError> {
        self.create(request).await
    }

    async fn initialize(&self, id: &str) -> Result<VmView, CloudCallError> {
        self.initialize(id).await
    }

    async fn tag(&self, id: &str, tags: &TagRequest) -> Result<VmView, CloudCallError> {
        self.set_tags(id, tags)
    }

    async fn delete(&self, selector: &VmSelector) -> Result<(), CloudCallError> {
        self.delete(selector).await
    }

    async fn status(&self, selector: &VmSelector) -> Result<VmView, CloudCallError> {
        self.status(selector).await
    }

    async fn list(&self, cluster: &str) -> Result<ListedVms, CloudCallError> {
        let listed =
            |vm: VmView| VmListItem { provider_id: vm.provider_id, machine_name: vm.machine_name, owner: vm.owner };
        let list = self.list(Some(cluster)).await?;
        Ok(ListedVms { items: list.items.into_iter().map(listed).collect() })
    }

    async fn set_member(&self, balancer: &str, id: &str, is_member: bool) -> Result<(), CloudCallError> {
        self.set_member(balancer, id, is_member).await
    }
}

impl SimulatorState {
    fn everything(&self) -> BTreeSet<String> {
        self.vms.vms().map(|vm| &vm.id).chain(self.vms.departed().keys()).cloned().collect()
    }

    /// The VM that an earlier call for the same thing made.
    fn find(&self, request: &CreateVm) -> Result<Option<&VmRecord>, CloudCallError> {
        let machine = &request.machine_name;
        if request.token.is_empty() {
            return Ok(None);
        }
        let cluster = cluster_of(request);
        if let Some(vm) = self.vms.by_token(cluster, &request.token) {
            if vm.machine_name != *machine {
                let message = format!("the token of machine {machine:?} was used for machine {:?}", vm.machine_name);
                return Err(CloudCallError::new(Code::AlreadyExists, message));
            }
            if vm.gone_at.is_some() {
                let message = format!("VM {} of machine {machine:?} is being deleted: retry later", vm.id);
                return Err(CloudCallError::new(Code::Aborted, message));
            }
            return Ok(Some(vm));
        }
        let selector =
            VmSelector { cluster: Some(cluster.to_owned()), machine: Some(machine.clone()), provider_id: None };
        match self.vms.select(&selector).first() {
            None => Ok(None),
            Some(vm) => {
                let message = format!("machine {machine:?} has VM {}, created with another token", vm.id);
                Err(CloudCallError::new(Code::AlreadyExists, message))
            }
        }
    }

    /// One VM more of this kind can be had.
    fn check_room(&self, spec: &ProviderSpec) -> Result<(), CloudCallError> {
        let (zone, type_) = (&spec.zone, &spec.instance_type);
        let covers = |shape: &VmShape| shape.zone.matches(zone) && shape.instance_type.matches(type_);
        if self.control.stock_outs.iter().any(covers) {
            let message = format!("instance type {type_:?} is out of stock in zone {zone:?}");
            return Err(CloudCallError::new(Code::ResourceExhausted, message));
        }
        for quota in &self.control.quotas {
            let shape = quota.shape();
            if covers(&shape) && self.vms.count(&shape) >= quota.limit {
                let message = format!(
                    "the quota of {} VMs of instance type \"{}\" in zone \"{}\" is used up",
                    quota.limit, quota.instance_type, quota.zone
                );
                return Err(CloudCallError::new(Code::ResourceExhausted, message));
            }
        }
        Ok(())
    }
}

fn no_vm(id: &str) -> CloudCallError {
    CloudCallError::new(Code::NotFound, format!("there is no VM {id:?}"))
}

fn unwritten(error: &io::Error) -> CloudCallError {
    CloudCallError::new(Code::Unavailable, format!("cannot write the state file: {error}"))
}
