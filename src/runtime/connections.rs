//! The connections of a process that its clients share: those with the same credentials for the same API server.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{
    client,
    kubeconfig::ClusterConfig,
    reload::{ClientError, ServerConnections, WeakConnections},
};

/// The connections of a process. Clones share them.
#[derive(Clone, Default)]
pub struct ConnectionRegistry {
    for_requests: SharedConnections,
    for_leases: SharedConnections,
}

type SharedConnections = Arc<Mutex<Vec<WeakConnections>>>;

impl ConnectionRegistry {
    /// The connections to a cluster for requests and watches.
    ///
    /// # Errors
    /// The configuration names certificates, credentials or a proxy that cannot be used.
    pub fn for_requests(&self, cluster: &ClusterConfig) -> Result<ServerConnections, ClientError> {
        shared(&self.for_requests, cluster, client::connections)
    }

    /// The connections to a cluster for Leases.
    ///
    /// # Errors
    /// As for [`Self::for_requests`].
    pub fn for_leases(&self, cluster: &ClusterConfig) -> Result<ServerConnections, ClientError> {
        shared(&self.for_leases, cluster, client::lease_connections)
    }
}

/// The connections that a client already uses, or new ones.
fn shared(
    known: &Mutex<Vec<WeakConnections>>,
    cluster: &ClusterConfig,
    make: fn(&ClusterConfig) -> Result<ServerConnections, ClientError>,
) -> Result<ServerConnections, ClientError> {
    let mut known = known.lock();
    let used: Vec<ServerConnections> = known.iter().filter_map(WeakConnections::upgrade).collect();
    let found = used.iter().find(|connections| connections.cluster().follows(cluster)).cloned();
    let connections = found.map_or_else(|| make(cluster), Ok)?;
    known.retain(|weak| weak.upgrade().is_some());
    if !used.iter().any(|one| one.is(&connections)) {
        known.push(connections.downgrade());
    }
    Ok(connections)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::kubeconfig::{ControlKubeconfig, KubeconfigFallback, ProcessClusters, TargetKubeconfig};

    async fn load(path: &Path, server: &str) -> ClusterConfig {
        let text = format!(
            r#"{{"current-context": "it", "contexts": [{{"name": "it", "context": {{"cluster": "it", "user": "it"}}}}],
                "clusters": [{{"name": "it", "cluster": {{"server": "{server}"}}}}], "users": [{{"name": "it", "user": {{}}}}]}}"#
        );
        fs::write(path, text).unwrap();
        let control = ControlKubeconfig::Path(path.to_owned());
        ProcessClusters::load(&control, &TargetKubeconfig::None, KubeconfigFallback::None).await.unwrap().control
    }

    #[tokio::test]
    async fn clients_with_one_kubeconfig_share_their_connections_while_one_of_them_is_used() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("config");
        let registry = ConnectionRegistry::default();
        let cluster = load(&path, "http://127.0.0.1:1").await;
        let first = registry.for_requests(&cluster).unwrap();
        assert!(registry.for_requests(&load(&path, "http://127.0.0.1:1").await).unwrap().is(&first));
        assert!(!registry.for_leases(&cluster).unwrap().is(&first));
        let others =
            [load(&folder.path().join("other"), "http://127.0.0.1:1").await, load(&path, "http://127.0.0.1:2").await];
        for other in &others {
            assert!(!registry.for_requests(other).unwrap().is(&first), "another user, or another server");
        }
        // Only their owner gives them other credentials, so their source is unknown.
        let fixed = ClusterConfig::from(cluster.config.clone());
        let one = registry.for_requests(&fixed).unwrap();
        assert!(!registry.for_requests(&fixed).unwrap().is(&one));

        drop(first);
        assert_eq!(registry.for_requests.lock().iter().filter(|weak| weak.upgrade().is_some()).count(), 1);
        registry.for_requests(&cluster).unwrap();
        assert_eq!(registry.for_requests.lock().len(), 2, "those of a client that is gone are not kept");
    }
}
