use std::sync::Arc;

use super::apply::{ApiServerProber, ApiServers};
use mcm_runtime::{
    cell::{CellBuilder, CellScope},
    queue::{QueuePacing, WorkQueue},
};
use {
    crate as controllers,
    crate::{Kind, Settings},
};

pub const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

/// There is one key: all API servers are probed at the same time.
const ALL: &str = "api servers";

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let servers = builder.shared::<ApiServers>();
    let machines = builder.objects();
    let config = builder.config();
    let namespace = match &config.scope {
        CellScope::Namespace(namespace) => namespace.clone(),
        CellScope::All => "default".to_owned(),
    };
    let probes = Arc::new(ApiServerProber {
        servers: Arc::clone(&servers),
        machines,
        namespace,
        targets: Arc::clone(&config.targets),
        probing: settings.probing,
        clock: Arc::clone(&config.shared.clock),
    });
    let queue = WorkQueue::new("machinesafetyapiserver", QueuePacing::default());
    builder.reconciler(&probes, &queue, &Arc::default(), 1);
    builder.on_start(move || {
        servers.forget();
        queue.add(ALL);
    });
}
