use super::{
    Snapshot,
    apply::{WorkloadClusters, kubeconfig_of},
};
use crate::{
    object::{observe::view, view::ObjectView},
    provider::mcm_machine_pool,
};
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

impl SnapshotReader for WorkloadClusters {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = ();

    fn observe(&self, cluster: &Key, (): &(), (): &()) -> Option<Snapshot> {
        let kubeconfig = match view(&self.kubeconfigs.cache, &kubeconfig_of(cluster)) {
            ObjectView::Present(secret) => {
                ObjectView::Present(secret.metadata.resource_version.clone().unwrap_or_default().into())
            }
            ObjectView::Missing => ObjectView::Missing,
            ObjectView::Unknown => ObjectView::Unknown,
        };
        Some(Snapshot {
            cluster: view(&self.clusters.cache, cluster),
            has_pools: self.pools.cache.with(mcm_machine_pool::BY_CLUSTER, cluster, |pools| !pools.is_empty()),
            kubeconfig,
            attempt: self.workloads.attempt(cluster),
        })
    }
}
