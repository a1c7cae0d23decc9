//! A driver for tests of the catalogue and the wrappers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;

use crate::{
    capacity::VmCapacity,
    code::Code,
    error::DriverError,
    interface::{Driver, DriverCapabilities, MachineRequest, SecretData},
    spec::ClassProblems,
    vm::{Vm, VmsByProviderId},
};
use mcm_api::{
    load_balancer::{LoadBalancer, LoadBalancerKind},
    machine::MachineClass,
};

/// Returns the same result for every call.
pub struct FakeDriver {
    name: &'static str,
    latency: Duration,
    failure: Option<DriverError>,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl FakeDriver {
    /// A driver of this name that succeeds at once.
    pub fn named(name: &'static str) -> Self {
        Self { name, latency: Duration::ZERO, failure: None, running: AtomicUsize::new(0), most: AtomicUsize::new(0) }
    }

    /// Each call takes this long.
    pub fn taking(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }

    /// Each call fails with this code.
    pub fn failing(self, code: Code) -> Self {
        Self { failure: Some(DriverError::new(code, "as told")), ..self }
    }

    /// Each call fails with this message.
    pub fn saying(self, message: String) -> Self {
        Self { failure: Some(DriverError::new(Code::Internal, message)), ..self }
    }

    /// Each call has to be repeated later.
    pub fn never_done(self) -> Self {
        Self { failure: Some(DriverError::not_done("as told", Duration::from_secs(1))), ..self }
    }

    /// The most calls that ran at the same time.
    pub fn most_at_once(&self) -> usize {
        self.most.load(SeqCst)
    }

    /// An empty request.
    pub fn request() -> MachineRequest {
        let secret = SecretData::default();
        MachineRequest {
            machine: Arc::default(),
            class: Arc::default(),
            secret,
            owner: String::new(),
            may_pause: false,
        }
    }

    async fn answer<T: Default>(&self) -> Result<T, DriverError> {
        self.most.fetch_max(self.running.fetch_add(1, SeqCst) + 1, SeqCst);
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        self.running.fetch_sub(1, SeqCst);
        self.failure.clone().map_or_else(|| Ok(T::default()), Err)
    }
}

#[async_trait]
impl Driver for FakeDriver {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities::default()
    }

    fn validate(&self, _: &MachineClass) -> ClassProblems {
        ClassProblems::default()
    }

    async fn create(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        self.answer().await
    }

    async fn initialize(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        self.answer().await
    }

    async fn delete(&self, _: &MachineRequest) -> Result<Option<String>, DriverError> {
        self.answer().await
    }

    async fn status(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        self.answer().await
    }

    async fn list(&self, _: &MachineClass, _: &SecretData) -> Result<VmsByProviderId, DriverError> {
        self.answer().await
    }

    async fn capacity(&self, _: &MachineClass, _: &SecretData) -> Result<VmCapacity, DriverError> {
        self.answer().await
    }

    fn load_balancers(&self) -> Option<LoadBalancerKind> {
        Some(LoadBalancerKind::Simulated)
    }

    async fn register(&self, _: &MachineRequest, _: &LoadBalancer) -> Result<(), DriverError> {
        self.answer().await
    }

    async fn deregister(&self, _: &MachineRequest, _: &LoadBalancer) -> Result<(), DriverError> {
        self.answer().await
    }

    async fn volume_ids(&self, _: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        self.answer().await
    }
}
