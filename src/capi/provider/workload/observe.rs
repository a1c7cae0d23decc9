use super::{
    Snapshot,
    apply::{WorkloadClusters, kubeconfig_of},
};
use crate::{
    object::{observe::view, view::View},
    provider::mcm_machine_pool,
};
use mcm_runtime::{cache::Key, reconcile::Observe};

impl Observe for WorkloadClusters {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = ();

    fn observe(&self, cluster: &Key, (): &(), (): &()) -> Option<Snapshot> {
        let kubeconfig = match view(&self.kubeconfigs.cache, &kubeconfig_of(cluster)) {
            View::Present(secret) => View::Present(secret.metadata.resource_version.clone().unwrap_or_default().into()),
            View::Missing => View::Missing,
            View::Unknown => View::Unknown,
        };
        Some(Snapshot {
            cluster: view(&self.clusters.cache, cluster),
            has_pools: self.pools.cache.with(mcm_machine_pool::BY_CLUSTER, cluster, |pools| !pools.is_empty()),
            kubeconfig,
            attempt: self.workloads.attempt(cluster),
        })
    }
}
