//! Executes plans for MCMMachineTemplates.

use std::{future::Future, sync::Arc};

use kube::ResourceExt;

use super::{
    Action, Snapshot,
    capacity::{CapacityKey, CapacityReading, VmType},
};
use mcm_api::machine::MachineClass;
use mcm_controllers::machine::secrets_of_class;
use mcm_conversion::types::{Cluster, MCMCluster, MCMMachineTemplate};
use mcm_driver::{
    Code, DriverError, VmCapacity,
    cloud::{LookupCoalescer, LruCache},
};
use mcm_driver_host::DriverCatalogue;
use mcm_rules::plan::Step;
use mcm_runtime::{
    cache::Key,
    clock::TimeSource,
    objects::{CachedApi, chain},
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun, UnresolvedWrite},
    secrets::SecretCache,
    worker::ReconcileError,
};

/// Types whose capacity is remembered.
const MOST_TYPES: usize = 1000;

/// Reconciles MCMMachineTemplates.
pub(super) struct MCMMachineTemplates {
    pub objects: Arc<CachedApi<MCMMachineTemplate>>,
    pub clusters: Arc<CachedApi<Cluster>>,
    pub infrastructures: Arc<CachedApi<MCMCluster>>,
    pub classes: Arc<CachedApi<MachineClass>>,
    pub drivers: Arc<DriverCatalogue>,
    /// The data of Secrets, for calls of drivers.
    pub credentials: SecretCache,
    pub capacities: CapacityReader,
    pub watch_filter: Option<String>,
    pub clock: Arc<dyn TimeSource>,
}

impl PlanExecutor for MCMMachineTemplates {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        for Step { action, .. } in steps {
            match action {
                Action::WriteStatus(status) => {
                    let (meta, before) = (&snapshot.object.metadata, &snapshot.object.status);
                    turn.write_status(&self.objects, meta, before, &Some(*status)).await?;
                }
                Action::ReadCapacity => {
                    let Some(VmType { class, key }) = &snapshot.vm_type else { continue };
                    let (class, drivers, credentials) =
                        (Arc::clone(class), Arc::clone(&self.drivers), self.credentials.clone());
                    self.capacities.read(key, move || read_capacity(class, drivers, credentials)).await;
                }
            }
        }
        Ok(LoopContinuation::Plan)
    }

    async fn resolve(&self, key: &Key, _: &UnresolvedWrite) -> Result<(), ReconcileError> {
        let read = self.objects.read_again(key).await;
        read.map(drop).map_err(|source| ReconcileError::read(format!("MCMMachineTemplate {key}"), source))
    }
}

/// Reads the capacity of the VMs of a class with the data of its Secrets.
async fn read_capacity(
    class: Arc<MachineClass>,
    drivers: Arc<DriverCatalogue>,
    credentials: SecretCache,
) -> Result<VmCapacity, DriverError> {
    let name = class.name_any();
    let driver = drivers.get(&class).map_err(|error| DriverError::new(Code::Unimplemented, error.to_string()))?;
    let merged = secrets_of_class(&class, &credentials).await.map_err(|error| {
        DriverError::new(Code::Unavailable, format!("the Secrets of class {name} cannot be read: {}", chain(&error)))
    })?;
    let secret = merged
        .complete()
        .map_err(|missing| DriverError::new(Code::FailedPrecondition, format!("class {name} needs {missing}")))?;
    driver.capacity(&class, &secret).await
}

/// The readings of all types. Reads of one type at the same time share a call.
pub(super) struct CapacityReader {
    readings: Arc<LruCache<CapacityKey, CapacityReading>>,
    calls: LookupCoalescer<CapacityKey, ()>,
    clock: Arc<dyn TimeSource>,
}

impl CapacityReader {
    /// No readings.
    pub fn new(clock: Arc<dyn TimeSource>) -> Self {
        Self { readings: Arc::new(LruCache::new(MOST_TYPES)), calls: LookupCoalescer::of_facts(), clock }
    }

    /// The last reads of a type.
    pub fn reading(&self, key: &CapacityKey) -> Option<CapacityReading> {
        self.readings.get(key)
    }

    /// Reads a type and stores the answer.
    pub async fn read<F>(&self, key: &CapacityKey, call: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = Result<VmCapacity, DriverError>> + Send + 'static,
    {
        let (readings, clock, stored) = (Arc::clone(&self.readings), Arc::clone(&self.clock), key.clone());
        let read = move |_| async move {
            let answer = call().await;
            let reading = CapacityReading::after(readings.get(&stored), answer, clock.now());
            readings.put(stored, reading);
        };
        self.calls.look_up(key.clone(), String::new(), read).await;
    }
}
