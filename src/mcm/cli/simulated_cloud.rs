//! The simulated cloud as a service for several processes.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use http::Uri;
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::flags::LogOptions;
use crate::{
    api::GoDuration,
    simulated_cloud::{DEFAULT_ADDRESS, LatencyDuration, NodeSettings, ServeOptions, SimulationSettings, serve},
};
use mcm_runtime::{
    kubeconfig::{
        self, ControlKubeconfig, KubeconfigFallback, ProcessClusters, StartError, TargetKubeconfig, UserAgent,
    },
    shutdown,
};

/// The attempt that fails if the cluster in which VMs register cannot be used.
const NO_TARGET: &str = "use the target cluster of the simulated cloud";

/// Flags of `mcm simulated-cloud`.
#[derive(Args, Clone, Debug)]
pub struct SimulatedCloudOptions {
    /// The cloud.
    #[command(flatten)]
    pub cloud: CloudArgs,

    /// Logs.
    #[command(flatten)]
    pub log: LogOptions,
}

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

/// Serves until the process is told to stop.
///
/// # Errors
/// When it cannot listen, or its state file or kubeconfig cannot be used.
pub async fn run(options: SimulatedCloudOptions) -> Result<()> {
    let stop = shutdown::on_signal().context("listen for signals")?;
    options.cloud.run(stop).await?;
    Ok(())
}

impl CloudArgs {
    /// Runs the simulated cloud until `stop`.
    ///
    /// # Errors
    /// When the kubeconfig, the state file or the address cannot be used.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let target = match self.target_kubeconfig {
            None => None,
            Some(path) => Some(RegistrationCluster::load(path).await.context(NO_TARGET)?),
        };
        let latency = |duration: GoDuration| LatencyDuration::from(duration.as_std());
        let nodes = NodeSettings {
            heartbeat_period: latency(self.heartbeat_period),
            removal_delay: latency(self.node_removal_delay),
            monitor_grace: latency(self.node_monitor_grace),
        };
        let serving = serve(ServeOptions {
            address: Some(self.address),
            state_file: self.state,
            target: target.as_ref().map(|target| target.client.clone()),
            control: SimulationSettings { nodes, ..SimulationSettings::default() },
            seed: self.seed,
            stop,
        });
        let Some(target) = target else { return Ok(serving.await?) };
        tokio::select! {
            outcome = serving => Ok(outcome?),
            error = target.is_untrusted() => Err(error).context(NO_TARGET),
        }
    }
}

/// The cluster in which VMs register.
struct RegistrationCluster {
    client: Client,
    server: Uri,
}

impl RegistrationCluster {
    async fn load(path: PathBuf) -> Result<Self, StartError> {
        let target = TargetKubeconfig::Path(path);
        let clusters =
            ProcessClusters::load(&ControlKubeconfig::SameAsTarget, &target, KubeconfigFallback::None).await?;
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
        let error = arguments.run(CancellationToken::new()).await.unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "use the target cluster of the simulated cloud: trust the API server https://one.example:6443: one of the \
             certificates in use is of X.509 version 1, which is not supported"
        );
        assert!(error.chain().any(|layer| layer.is::<StartError>()), "the command line looks for its hint");
    }
}
