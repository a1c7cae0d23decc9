//! The simulated cloud as a separate process.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use clap::Args;
use http::Uri;
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    cloud::Cloud,
    control::{Control, Latency, NodeSettings},
    journal::JournalError,
    kubelet::keep_nodes,
    server::router,
};
use crate::{
    api::GoDuration,
    runtime::kubeconfig::{self, Clusters, ControlKubeconfig, Fallback, StartError, TargetKubeconfig, UserAgent},
};

/// Where the API listens unless told otherwise.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:10270";

/// Flags of the simulated cloud.
#[derive(Clone, Debug, Args)]
pub struct CloudArgs {
    /// Listen address of the HTTP API. It has no authentication: keep it on loopback.
    #[arg(long, default_value = DEFAULT_ADDRESS, value_name = "HOST:PORT")]
    pub address: SocketAddr,
    /// File that stores the VMs across restarts; without it they are lost when the process ends.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Cluster in which VMs register as Nodes; without it they never do.
    #[arg(long, visible_alias = "kubeconfig", value_name = "FILE")]
    pub target_kubeconfig: Option<PathBuf>,
    /// Renewal period of each Node's Lease; 0 = never.
    #[arg(long, default_value = "10s", value_name = "DURATION")]
    pub heartbeat_period: GoDuration,
    /// How long a Node remains after its VM is deleted.
    #[arg(long, default_value = "5s", value_name = "DURATION")]
    pub node_removal_delay: GoDuration,
    /// How long after its last heartbeat the Node of a dead VM becomes Ready=Unknown.
    #[arg(long, default_value = "40s", value_name = "DURATION")]
    pub node_monitor_grace: GoDuration,
    /// Seed of everything random; a random one if absent. With a state file, VM IDs depend on it, too.
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
}

/// How the simulated cloud runs.
#[derive(Clone, Default)]
pub struct ServeOptions {
    /// Where the API listens.
    pub address: Option<SocketAddr>,
    /// File that keeps the VMs.
    pub state_file: Option<PathBuf>,
    /// Cluster in which VMs register as Nodes.
    pub target: Option<Client>,
    /// Settings at the start.
    pub control: Control,
    /// Seed of everything random; a new one if absent.
    pub seed: Option<u64>,
    /// Ends it.
    pub stop: CancellationToken,
}

/// The simulated cloud cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its state file cannot be used.
    #[error(transparent)]
    State(#[from] JournalError),
    /// Its address cannot be had.
    #[error("cannot listen on {address}: choose another --address, or stop the process that uses it")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The cluster in which VMs register cannot be used.
    #[error("use the target cluster of the simulated cloud")]
    Target(#[source] StartError),
    /// The server broke off.
    #[error("the server at {address} failed")]
    Serve {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl CloudArgs {
    /// Runs the simulated cloud until `stop`.
    ///
    /// # Errors
    /// When the kubeconfig, the state file or the address cannot be used.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ServeError> {
        let target = match self.target_kubeconfig {
            None => None,
            Some(path) => Some(Target::load(path).await.map_err(ServeError::Target)?),
        };
        let latency = |duration: GoDuration| Latency::from(duration.as_std());
        let nodes = NodeSettings {
            heartbeat_period: latency(self.heartbeat_period),
            removal_delay: latency(self.node_removal_delay),
            monitor_grace: latency(self.node_monitor_grace),
        };
        let serving = serve(ServeOptions {
            address: Some(self.address),
            state_file: self.state,
            target: target.as_ref().map(|target| target.client.clone()),
            control: Control { nodes, ..Control::default() },
            seed: self.seed,
            stop,
        });
        let Some(target) = target else { return serving.await };
        tokio::select! {
            outcome = serving => outcome,
            error = target.is_untrusted() => Err(ServeError::Target(error)),
        }
    }
}

/// The cluster in which VMs register.
struct Target {
    client: Client,
    server: Uri,
}

impl Target {
    async fn load(path: PathBuf) -> Result<Self, StartError> {
        let target = TargetKubeconfig::Path(path);
        let clusters = Clusters::load(&ControlKubeconfig::SameAsTarget, &target, Fallback::None).await?;
        let client = kubeconfig::client(&clusters.control, UserAgent::SimulatedCloud).await?;
        Ok(Self { client, server: clusters.control.config.cluster_url })
    }

    /// Returns if no later try can succeed, for the certificate of the server. A cluster that is away may come.
    async fn is_untrusted(&self) -> StartError {
        match kubeconfig::wait_until_ready(&self.client, &self.server).await {
            Err(error @ (StartError::OldCertificate { .. } | StartError::Untrusted { .. })) => error,
            _ => std::future::pending().await,
        }
    }
}

/// Runs a simulated cloud with its HTTP API, and with Nodes if there is a target, until it is told to stop.
///
/// # Errors
/// When the state file or the address cannot be used, or the server breaks off.
pub async fn serve(options: ServeOptions) -> Result<(), ServeError> {
    let ServeOptions { address, state_file, target, control, seed, stop } = options;
    let address = address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 10270)));
    let seed = seed.unwrap_or_else(rand::random);
    let cloud = match &state_file {
        Some(path) => Cloud::open(path, seed, control)?,
        None => Cloud::new(seed, control),
    };
    let cloud = Arc::new(cloud);
    let listener = TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })?;
    let vms = cloud.stats().alive;
    tracing::info!(%address, seed, vms, nodes = target.is_some(), "simulated cloud started");
    let kept = target.map(|client| tokio::spawn(keep_nodes(Arc::clone(&cloud), client, stop.clone())));
    // Running calls are cancelled: the operations they began are completed in time, even across a restart.
    let outcome = tokio::select! {
        outcome = axum::serve(listener, router(cloud)).into_future() => outcome,
        () = stop.cancelled() => Ok(()),
    };
    if let Some(kept) = kept {
        kept.abort();
    }
    outcome.map_err(|source| ServeError::Serve { address, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kubeconfig_with_a_certificate_of_version_1_is_explained_in_one_sentence() {
        let testdata = concat!(env!("CARGO_MANIFEST_DIR"), "/src/runtime/kubeconfig/testdata");
        let kubeconfig = format!(
            r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "it",
                "contexts": [{{"name": "it", "context": {{"cluster": "it", "user": "it"}}}}],
                "clusters": [{{"name": "it", "cluster": {{"server": "https://one.example:6443"}}}}],
                "users": [{{"name": "it", "user":
                    {{"client-certificate": "{testdata}/x509-v1.pem", "client-key": "{testdata}/x509-v1-key.pem"}}}}]}}"#
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, kubeconfig).unwrap();
        let arguments = CloudArgs {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            state: None,
            target_kubeconfig: Some(path),
            heartbeat_period: GoDuration::from_secs(10),
            node_removal_delay: GoDuration::from_secs(5),
            node_monitor_grace: GoDuration::from_secs(40),
            seed: Some(1),
        };
        let error = anyhow::Error::from(arguments.run(CancellationToken::new()).await.unwrap_err());
        assert_eq!(
            format!("{error:#}"),
            "use the target cluster of the simulated cloud: trust the API server https://one.example:6443: one of the \
             certificates in use is of X.509 version 1, which is not supported"
        );
        assert!(error.chain().any(|layer| layer.is::<StartError>()), "the command line looks for its hint");
    }
}
