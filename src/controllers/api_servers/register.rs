use std::sync::Arc;

use super::apply::{ApiServers, Probes};
use mcm_runtime::{
    cell::{Builder, Scope},
    queue::{Pacing, Queue},
};
use {
    crate as controllers,
    crate::{Kind, Settings},
};

pub const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

/// There is one key: all API servers are probed at the same time.
const ALL: &str = "api servers";

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let servers = builder.shared::<ApiServers>();
    let machines = builder.objects();
    let config = builder.config();
    let namespace = match &config.scope {
        Scope::Namespace(namespace) => namespace.clone(),
        Scope::All => "default".to_owned(),
    };
    let probes = Arc::new(Probes {
        servers: Arc::clone(&servers),
        machines,
        namespace,
        targets: Arc::clone(&config.targets),
        probing: settings.probing,
        clock: Arc::clone(&config.shared.clock),
    });
    let queue = Queue::new("machinesafetyapiserver", Pacing::default());
    builder.reconciler(&probes, &queue, &Arc::default(), 1);
    builder.on_start(move || {
        servers.forget();
        queue.add(ALL);
    });
}
