use std::sync::Arc;

use super::apply::{WorkloadClusters, cluster_of};
use crate::provider::{
    observe::cluster_name,
    settings::{ROLE_NAME, Settings},
};
use mcm_controllers::secret::MetadataOfSecret;
use mcm_conversion::types::{Cluster, MCMMachinePool};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::{CellBuilder, Kind},
    enqueue::EnqueueMapper,
    queue::{QueuePacing, WorkQueue},
    secrets::SecretCache,
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let kubeconfigs = builder.objects::<MetadataOfSecret>();
    let workloads = Arc::new(WorkloadClusters {
        clusters: builder.objects(),
        pools: builder.objects(),
        natives: builder.objects(),
        secrets: SecretCache::new(Arc::clone(&kubeconfigs.cache), &builder.config().control),
        kubeconfigs,
        targets: Arc::clone(&builder.config().targets),
        workloads: builder.shared(),
        connect: Arc::clone(&settings.connect),
    });
    let queue = WorkQueue::new("workloadcluster", QueuePacing::default());
    builder.reconciler(&workloads, &queue, &Arc::default(), settings.concurrency);
    let enqueue = EnqueueMapper::new(&workloads, &queue);
    builder.on_change(enqueue.on(|_, change: &ObjectChange<Cluster>| vec![change.key.clone()]));
    builder.on_change(enqueue.on(of_pool));
    builder.on_change(
        enqueue.on(|_, change: &ObjectChange<MetadataOfSecret>| cluster_of(&change.key).into_iter().collect()),
    );
}

/// The Clusters of a pool, before and after the change.
fn of_pool<C>(_: &C, change: &ObjectChange<MCMMachinePool>) -> Vec<Key> {
    let before = change.old.as_ref().and_then(|old| cluster_name(&old.metadata));
    let names = before.into_iter().chain(cluster_name(&change.meta));
    names.map(|name| Key::new(&change.key.namespace, name)).collect()
}
