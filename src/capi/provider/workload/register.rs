use std::sync::Arc;

use super::{
    Action, Snapshot,
    apply::{self, WorkloadClusters, cluster_of},
    plan,
};
use crate::{
    capi::{
        provider::{
            observe::cluster_name,
            settings::{ROLE_NAME, Settings},
        },
        types::{Cluster, MCMMachinePool},
    },
    controllers::secret::MetadataOfSecret,
    plan::{Plan, Step},
    runtime::{
        cache::Key,
        cell::{Builder, Kind},
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, Turn},
        secrets::Secrets,
        worker::ReconcileError,
    },
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

impl Reconciler for WorkloadClusters {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = ();
    type Session = ();

    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        Some(self.snapshot(key))
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<Action> {
        plan::plan(snapshot)
    }

    async fn apply(
        &self,
        _: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        apply::apply(self, turn.key, steps).await?;
        Ok(Next::Plan)
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let kubeconfigs = builder.objects::<MetadataOfSecret>();
    let reconciler = WorkloadClusters {
        clusters: builder.objects(),
        pools: builder.objects(),
        secrets: Secrets::new(Arc::clone(&kubeconfigs.cache), &builder.config().control),
        kubeconfigs,
        targets: Arc::clone(&builder.config().targets),
        workloads: builder.shared(),
        connect: Arc::clone(&settings.connect),
    };
    let queue = Queue::new("workloadcluster", Pacing::default());
    builder.reconciler(reconciler, &queue, &Arc::default(), settings.concurrency);

    let of_cluster = Arc::clone(&queue);
    builder.on_change::<Cluster>(move |change| of_cluster.add(change.key.clone()));
    let of_pool = Arc::clone(&queue);
    builder.on_change::<MCMMachinePool>(move |change| {
        let before = change.old.as_ref().and_then(|old| cluster_name(&old.metadata));
        for name in before.into_iter().chain(cluster_name(&change.meta)) {
            of_pool.add(Key::new(&change.key.namespace, name));
        }
    });
    builder.on_change::<MetadataOfSecret>(move |change| {
        cluster_of(&change.key).into_iter().for_each(|cluster| queue.add(cluster));
    });
}
