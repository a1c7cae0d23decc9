//! Everything that Machines are reconciled with.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{freed::FreedResources, lanes::Lanes, permits::Permits};
use mcm_api::machine::{Machine, MachineClass};
use mcm_driver::{Account, cloud::Coalescer};
use mcm_driver_host::Catalogue;
use mcm_runtime::{
    cache::Key,
    cell::Builder,
    clock::Clock,
    events::Events,
    hold_check::HoldCheck,
    objects::Objects,
    owners::Owners,
    queue::Queue,
    secrets::Secrets,
    target::{Target, TargetOf, Targets},
};
use {
    crate as controllers,
    crate::{
        Settings,
        api_servers::ApiServers,
        machine::{Policy, Snapshot, metrics::MachineMetrics, watch_vm},
        object,
        secret::MetadataOfSecret,
    },
};

/// The context of the Machine reconciler.
pub(crate) struct Ports {
    pub machines: Arc<Objects<Machine>>,
    pub classes: Arc<Objects<MachineClass>>,
    pub secrets: Secrets,
    pub owners: Arc<Owners>,
    pub targets: Arc<Targets>,
    pub drivers: Arc<Catalogue>,
    pub lanes: Arc<Lanes>,
    pub queue: Arc<Queue<Key>>,
    pub permits: Arc<Permits>,
    pub servers: Arc<ApiServers>,
    pub holds: Arc<HoldCheck>,
    pub policy: Arc<Policy>,
    /// Checks of VMs of one account that wait for each other.
    pub checks: Coalescer<Account, ()>,
    pub freed: Arc<FreedResources>,
    pub events: Events,
    pub measured: Arc<MachineMetrics>,
    pub clock: Arc<dyn Clock>,
}

impl Ports {
    pub fn new(builder: &mut Builder<'_>, settings: &Settings, queue: &Arc<Queue<Key>>) -> Self {
        let secrets = builder.objects::<MetadataOfSecret>();
        let (permits, servers) = (builder.shared::<Permits>(), builder.shared::<ApiServers>());
        let (holds, freed) = (object::holds(builder), builder.shared::<FreedResources>());
        let owners = Owners::of_cell(builder);
        let (machines, classes) = (builder.objects(), builder.objects());
        let config = builder.config();
        Self {
            machines,
            classes,
            secrets: Secrets::new(Arc::clone(&secrets.cache), &config.control),
            owners,
            targets: Arc::clone(&config.targets),
            drivers: Arc::clone(&settings.drivers),
            lanes: Arc::new(Lanes::new(settings.slots, Arc::clone(queue))),
            queue: Arc::clone(queue),
            permits,
            servers,
            holds,
            policy: Arc::new(settings.machine.clone()),
            checks: Coalescer::new(Duration::try_from(watch_vm::gathering(&settings.machine)).unwrap_or_default()),
            freed,
            events: config.events.with_component(controllers::MACHINES.lease),
            measured: config.shared.metrics.of(),
            clock: Arc::clone(&config.shared.clock),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The cluster of a Machine's Node, or the reason why it has none.
    pub fn target_of(&self, snapshot: &Snapshot) -> Result<Arc<Target>, &'static str> {
        match self.targets.of(&snapshot.machine.metadata) {
            TargetOf::Known(target) => Ok(target),
            TargetOf::NoTarget => Err("this process has no target cluster"),
            TargetOf::Unknown => Err("the target cluster of the machine is not connected"),
        }
    }
}
