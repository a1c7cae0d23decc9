//! A cloud that counts.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use parking_lot::Mutex;
use tokio::time::sleep;

use mcm_api::machine::MachineClass;
use mcm_driver::{
    Code, Driver, DriverCapabilities, DriverError, DriverGuards, ListedVm, MachineRequest, SecretData, Vm,
    VmsByProviderId, spec::ClassProblems,
};
use mcm_driver_host::DriverCatalogue;

/// A cloud whose VMs exist once their creation has ended.
#[derive(Default)]
pub(super) struct CountingCloud {
    latency: Duration,
    /// Look-ups do not find its VMs, as in a cloud whose lists are late.
    is_late: bool,
    /// Names of the Machines, by provider ID.
    vms: Mutex<BTreeMap<String, String>>,
    /// Calls that change something, from their beginning.
    calls: AtomicUsize,
    created: AtomicUsize,
    deleted: AtomicUsize,
}

impl CountingCloud {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Each creation takes so long.
    pub fn taking(latency: Duration) -> Arc<Self> {
        Arc::new(Self { latency, ..Self::default() })
    }

    /// The same, and look-ups do not find the VMs.
    pub fn taking_with_late_lists(latency: Duration) -> Arc<Self> {
        Arc::new(Self { latency, is_late: true, ..Self::default() })
    }

    pub fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    pub fn created(&self) -> usize {
        self.created.load(SeqCst)
    }

    pub fn deleted(&self) -> usize {
        self.deleted.load(SeqCst)
    }

    pub fn names(&self) -> Vec<String> {
        self.vms.lock().values().cloned().collect()
    }

    fn id(request: &MachineRequest) -> (String, String) {
        let name = request.machine.metadata.name.clone().unwrap();
        (format!("cloud:///{name}"), name)
    }
}

/// For settings.
pub(super) fn drivers_of(cloud: &Arc<CountingCloud>) -> Arc<DriverCatalogue> {
    let driver: Arc<dyn Driver> = Arc::clone(cloud) as _;
    Arc::new(DriverCatalogue::from_drivers([driver], &DriverGuards::unobserved()))
}

#[async_trait]
impl Driver for CountingCloud {
    fn name(&self) -> &'static str {
        "cloud"
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities { list: true, ..DriverCapabilities::default() }
    }

    fn validate(&self, _: &MachineClass) -> ClassProblems {
        ClassProblems::default()
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.calls.fetch_add(1, SeqCst);
        sleep(self.latency).await;
        let (provider_id, name) = Self::id(request);
        if self.vms.lock().insert(provider_id.clone(), name.clone()).is_none() {
            self.created.fetch_add(1, SeqCst);
        }
        Ok(Vm { provider_id, node_name: name, ..Vm::default() })
    }

    async fn initialize(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        Err(DriverError::new(Code::Unimplemented, "not needed"))
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        self.calls.fetch_add(1, SeqCst);
        self.deleted.fetch_add(usize::from(self.vms.lock().remove(&Self::id(request).0).is_some()), SeqCst);
        Ok(None)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let (provider_id, name) = Self::id(request);
        match self.vms.lock().contains_key(&provider_id) && !self.is_late {
            true => Ok(Vm { provider_id, node_name: name, ..Vm::default() }),
            false => Err(DriverError::new(Code::NotFound, "no VM")),
        }
    }

    async fn list(&self, _: &MachineClass, _: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let vms = self.vms.lock();
        Ok(vms.iter().map(|(id, name)| (id.clone(), ListedVm::unmarked(name))).collect())
    }

    async fn volume_ids(&self, _: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Ok(Vec::new())
    }
}
