use std::sync::Arc;

use super::{
    Action, Snapshot,
    apply::{self, MCMClusters},
    plan,
};
use crate::{
    api::machine::MachineClass,
    capi::{
        provider::settings::{COMPONENT, ROLE_NAME, Settings},
        types::{Cluster, INFRASTRUCTURE_GROUP, MCMCluster},
    },
    controllers::secret::MetadataOfSecret,
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

impl Reconciler for MCMClusters {
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
        apply::apply(self, &snapshot, steps, turn).await
    }

    async fn resolve(&self, key: &Key, _: &UnresolvedWrite) -> Result<(), ReconcileError> {
        let read = self.objects.read_again(key).await;
        read.map(drop).map_err(|source| ReconcileError::read(format!("MCMCluster {key}"), source))
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus(_))
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let objects = builder.objects::<MCMCluster>();
    let reconciler = MCMClusters {
        objects: Arc::clone(&objects),
        clusters: builder.objects(),
        classes: builder.objects(),
        secrets: builder.objects(),
        watch_filter: settings.watch_filter.clone(),
        events: builder.config().events.with_component(COMPONENT),
        clock: Arc::clone(&builder.config().shared.clock),
    };
    let queue = Queue::new("mcmcluster", Pacing::default());
    builder.controller::<MCMCluster, _>(reconciler, &queue, &Arc::default(), settings.concurrency, |_| true);

    let owned = Arc::clone(&queue);
    builder.on_change::<Cluster>(move |change| {
        for cluster in change.old.iter().chain(&change.new) {
            let reference = &cluster.spec.infrastructure_ref;
            if reference.kind == "MCMCluster" && reference.api_group == INFRASTRUCTURE_GROUP {
                owned.add(Key::beside(&change.meta, &reference.name));
            }
        }
    });
    let (all, of_class) = (Arc::clone(&objects), Arc::clone(&queue));
    builder.on_change::<MachineClass>(move |change| {
        let names = |object: &Arc<MCMCluster>| {
            let domains = &object.spec.failure_domains;
            domains.iter().any(|domain| domain.machine_class_overrides.values().any(|name| *name == change.key.name))
        };
        if change.old.is_none() || change.new.is_none() {
            all.cache.all().iter().filter(|one| names(one)).for_each(|one| of_class.add(Key::of(&one.metadata)));
        }
    });
    builder.on_change::<MetadataOfSecret>(move |change| {
        let names = |object: &Arc<MCMCluster>| {
            object.spec.credentials_secret_ref.as_ref().is_some_and(|secret| secret.name == change.key.name)
        };
        if change.old.is_none() || change.new.is_none() {
            objects.cache.all().iter().filter(|one| names(one)).for_each(|one| queue.add(Key::of(&one.metadata)));
        }
    });
}
