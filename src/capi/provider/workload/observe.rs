use super::{
    Snapshot,
    apply::{WorkloadClusters, kubeconfig_of},
};
use crate::{
    capi::{
        object::{observe::view, view::View},
        provider::mcm_machine_pool,
    },
    runtime::cache::Key,
};

impl WorkloadClusters {
    /// Reads the caches into a snapshot.
    pub(super) fn snapshot(&self, cluster: &Key) -> Snapshot {
        let kubeconfig = match view(&self.kubeconfigs.cache, &kubeconfig_of(cluster)) {
            View::Present(secret) => View::Present(secret.metadata.resource_version.clone().unwrap_or_default().into()),
            View::Missing => View::Missing,
            View::Unknown => View::Unknown,
        };
        Snapshot {
            cluster: view(&self.clusters.cache, cluster),
            has_pools: self.pools.cache.with(mcm_machine_pool::BY_CLUSTER, cluster, |pools| !pools.is_empty()),
            kubeconfig,
            attempt: self.workloads.attempt(cluster),
        }
    }
}
