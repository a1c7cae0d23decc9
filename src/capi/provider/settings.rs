use std::sync::Arc;

use mcm_controllers as controllers;
use mcm_runtime::{kubeconfig, reload::ClientError, target::TargetClients};

/// Creates the clients of a cluster.
pub(crate) type TargetClientFactory =
    Arc<dyn Fn(&kubeconfig::ClusterConfig) -> Result<TargetClients, ClientError> + Send + Sync>;

/// The role of all kinds: one Lease, as users of Cluster API expect.
pub(super) const ROLE_NAME: &str = "provider";
/// Source of events.
pub(super) const COMPONENT: &str = "capmcm-manager";

/// Settings from the flags.
#[derive(Clone)]
pub struct Settings {
    /// Settings of the native kinds.
    pub native: controllers::Settings,
    /// Only objects with this value of the label `cluster.x-k8s.io/watch-filter`.
    pub watch_filter: Option<String>,
    /// Concurrent reconciles of each kind.
    pub concurrency: usize,
    /// This provider replaces a native manager in the same namespace, which is therefore no obstacle.
    pub replaces_native_manager: bool,
    /// Makes the clients of a workload cluster.
    pub connect: TargetClientFactory,
}
