//! From flags to clients that have been tried.

use kube::Client;

use super::flags::GenericOptions;
use crate::runtime::kubeconfig::{self, Clusters, Fallback, ServerInfo, StartError, UserAgent};

/// Both clusters, reached.
pub struct Connection {
    /// How to reach them, for more clients.
    pub clusters: Clusters,
    /// A client for the control cluster.
    pub control: Client,
    /// A client for the target cluster; `None` is the mode without a target.
    pub target: Option<Client>,
    /// What the control cluster runs.
    pub control_info: ServerInfo,
}

/// Reads the kubeconfigs and waits until both API servers answer.
///
/// # Errors
/// When that does not come true within some 10 s for each.
pub async fn connect(options: &GenericOptions, fallback: Fallback, agent: UserAgent) -> Result<Connection, StartError> {
    let clusters = Clusters::load(&options.control_kubeconfig, &options.target_kubeconfig, fallback).await?;
    let control = kubeconfig::client(&clusters.control, agent)?;
    let control_info = kubeconfig::check(&control, &clusters.control.cluster_url).await?;
    let target = match &clusters.target {
        Some(config) => {
            let client = kubeconfig::client(config, agent)?;
            kubeconfig::wait_until_ready(&client, &config.cluster_url).await?;
            Some(client)
        }
        None => None,
    };
    Ok(Connection { clusters, control, target, control_info })
}
