use super::{Snapshot, WorkloadClusters};
use crate::{
    capi::provider::{
        observe::{POOLS_BY_CLUSTER, view},
        view::View,
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
            has_pools: self.pools.cache.with(POOLS_BY_CLUSTER, cluster, |pools| !pools.is_empty()),
            kubeconfig,
            attempt: self.workloads.attempt(cluster),
        }
    }
}

/// What follows the name of a Cluster in the name of the Secret with its kubeconfig.
const SUFFIX: &str = "-kubeconfig";

/// The Secret with the kubeconfig of a Cluster.
pub(super) fn kubeconfig_of(cluster: &Key) -> Key {
    Key::new(&cluster.namespace, format!("{}{SUFFIX}", cluster.name))
}

/// The Cluster whose kubeconfig a Secret has, by its name.
pub(super) fn cluster_of(secret: &Key) -> Option<Key> {
    secret.name.strip_suffix(SUFFIX).map(|name| Key::new(&secret.namespace, name))
}
