use std::sync::Arc;

use super::{
    Action, Snapshot,
    apply::{self, Clusters},
    plan,
};
use crate::{
    capi::{
        object::apply::read,
        stand_in::{
            observe::{Ground, add_those_of, keys},
            settings::{ROLE_NAME, Settings},
        },
        types::Cluster,
    },
    plan::{Plan, Step},
    runtime::{
        cache::Key,
        cell::{Builder, Kind},
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, Turn, UnresolvedWrite},
        worker::ReconcileError,
    },
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

impl Reconciler for Clusters {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = ();
    type Session = ();

    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        self.snapshot(key)
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<Action> {
        plan::plan(snapshot)
    }

    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        apply::apply(self, &snapshot, steps, turn).await?;
        Ok(Next::Plan)
    }

    async fn resolve(&self, key: &Key, _: &UnresolvedWrite) -> Result<(), ReconcileError> {
        read(&self.objects, key).await.map(drop)
    }

    fn is_status(_: &Action) -> bool {
        true
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let objects = builder.objects::<Cluster>();
    let ground = Ground::new(builder);
    let reconciler = Clusters {
        objects: Arc::clone(&objects),
        ground: ground.clone(),
        watch_filter: settings.watch_filter.clone(),
        clock: Arc::clone(&builder.config().shared.clock),
    };
    let queue = Queue::new("standincluster", Pacing::default());
    builder.controller::<Cluster, _>(reconciler, &queue, &Arc::default(), settings.concurrency, |_| true);
    ground.on_change(builder, move |namespace| {
        add_those_of(namespace, keys(&objects), &queue);
    });
}
