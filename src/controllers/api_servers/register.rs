use std::sync::Arc;

use super::{
    Action, Snapshot,
    apply::{ApiServers, Probes, Session},
    plan,
};
use crate::{
    api::machine::Machine,
    controllers::{self, Kind, Settings},
    plan::{Plan, Step},
    runtime::{
        cell::{Builder, Scope},
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, Turn},
        worker::ReconcileError,
    },
};

pub(crate) const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

/// There is one key: all API servers are probed at the same time.
const ALL: &str = "api servers";

impl Reconciler for Probes {
    type Key = &'static str;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = ();
    type Session = Session;

    fn observe(&self, _: &&'static str, (): &(), session: &Session) -> Option<Snapshot> {
        Some(self.snapshot(session))
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<Action> {
        plan(snapshot, &self.probing)
    }

    async fn apply(
        &self,
        _: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        self.execute(steps, &mut turn.session).await;
        Ok(Next::Plan)
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let (servers, machines) = (builder.shared::<ApiServers>(), builder.objects::<Machine>());
    let config = builder.config();
    let namespace = match &config.scope {
        Scope::Namespace(namespace) => namespace.clone(),
        Scope::All => "default".to_owned(),
    };
    let probes = Probes {
        servers: Arc::clone(&servers),
        machines,
        namespace,
        targets: Arc::clone(&config.targets),
        probing: settings.probing,
        clock: Arc::clone(&config.shared.clock),
    };
    let queue = Queue::new("machinesafetyapiserver", Pacing::default());
    builder.reconciler(probes, &queue, &Arc::default(), 1);
    builder.on_start(move || {
        servers.forget();
        queue.add(ALL);
    });
}
