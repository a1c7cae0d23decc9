//! Everything that Machines are reconciled with.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{freed::FreedResources, lanes::ReconcileSlots, permits::ReplacementPermits};
use mcm_api::machine::{Machine, MachineClass};
use mcm_driver::{CloudAccount, cloud::LookupCoalescer};
use mcm_driver_host::DriverCatalogue;
use mcm_runtime::{
    cache::Key,
    cell::CellBuilder,
    clock::TimeSource,
    events::EventRecorder,
    hold_check::HoldCheck,
    objects::CachedApi,
    owners::VmOwners,
    queue::WorkQueue,
    secrets::SecretCache,
    target::{CellTargets, TargetCluster, TargetOf},
};
use {
    crate as controllers,
    crate::{
        Settings,
        api_servers::ApiServers,
        machine::{
            MachinePolicy, Snapshot,
            metrics::{CellFreeze, MachineMetrics},
            watch_vm,
        },
        machine_deployment::RolloutNodes,
        object,
        secret::MetadataOfSecret,
    },
};

/// The context of the Machine reconciler.
pub(crate) struct MachineContext {
    pub machines: Arc<CachedApi<Machine>>,
    pub classes: Arc<CachedApi<MachineClass>>,
    pub secrets: SecretCache,
    pub owners: Arc<VmOwners>,
    pub targets: Arc<CellTargets>,
    pub drivers: Arc<DriverCatalogue>,
    pub lanes: Arc<ReconcileSlots>,
    pub queue: Arc<WorkQueue<Key>>,
    pub permits: Arc<ReplacementPermits>,
    pub servers: Arc<ApiServers>,
    pub holds: Arc<HoldCheck>,
    /// The Nodes that rollouts of this cell annotate.
    pub rollouts: Arc<RolloutNodes>,
    pub policy: Arc<MachinePolicy>,
    /// Checks of VMs of one account that wait for each other.
    pub checks: LookupCoalescer<CloudAccount, ()>,
    pub freed: Arc<FreedResources>,
    pub events: EventRecorder,
    pub measured: Arc<MachineMetrics>,
    pub freeze: Arc<CellFreeze>,
    pub clock: Arc<dyn TimeSource>,
}

impl MachineContext {
    pub fn new(builder: &mut CellBuilder<'_>, settings: &Settings, queue: &Arc<WorkQueue<Key>>) -> Self {
        let secrets = builder.objects::<MetadataOfSecret>();
        let (permits, servers) = (builder.shared::<ReplacementPermits>(), builder.shared::<ApiServers>());
        let (holds, freed) = (object::holds(builder), builder.shared::<FreedResources>());
        let (owners, rollouts) = (VmOwners::of_cell(builder), builder.shared());
        let (machines, classes) = (builder.objects(), builder.objects());
        let config = builder.config();
        let measured = config.shared.metrics.collector::<MachineMetrics>();
        Self {
            machines,
            classes,
            secrets: SecretCache::new(Arc::clone(&secrets.cache), &config.control),
            owners,
            targets: Arc::clone(&config.targets),
            drivers: Arc::clone(&settings.drivers),
            lanes: Arc::new(ReconcileSlots::new(settings.slots, Arc::clone(queue))),
            queue: Arc::clone(queue),
            permits,
            servers,
            holds,
            rollouts,
            policy: Arc::new(settings.machine.clone()),
            checks: LookupCoalescer::new(
                Duration::try_from(watch_vm::gathering(&settings.machine)).unwrap_or_default(),
            ),
            freed,
            events: config.events.with_component(controllers::MACHINES.lease),
            freeze: measured.freeze_of(&config.name),
            measured,
            clock: Arc::clone(&config.shared.clock),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The cluster of a Machine's Node, or the reason why the Machine has no target cluster.
    pub fn target_of(&self, snapshot: &Snapshot) -> Result<Arc<TargetCluster>, &'static str> {
        match self.targets.target_for(&snapshot.machine.metadata) {
            TargetOf::Known(target) => Ok(target),
            TargetOf::NoTarget => Err("this process has no target cluster"),
            TargetOf::Unknown => Err("the target cluster of the machine is not connected"),
        }
    }
}
