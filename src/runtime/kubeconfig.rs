//! Finds the clusters of a process and checks that they respond.
//!
//! The control cluster contains the machine objects; the nodes join the target cluster. Both may be the same cluster,
//! and there may be no target.

mod check;
mod choice;
mod error;
mod found;
mod source;
#[cfg(test)]
mod tests;

use std::{convert::Infallible, env, path::PathBuf, str::FromStr};

use http::{HeaderValue, header};
use kube::Client;
use tokio::task::spawn_blocking;

use source::ConfigSource;

use super::body;

pub use check::{ServerInfo, check, wait_until_ready};
pub use choice::ContextChoice;
pub use error::{API_VERSION, StartError};
pub use error::{address, cause, sentence};
pub use found::FoundKubeconfig;
pub use source::ClusterConfig;

/// The control cluster (`--control-kubeconfig`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlKubeconfig {
    /// The target cluster.
    SameAsTarget,
    /// The cluster this pod runs in.
    InCluster,
    /// The cluster that kubectl would use, or that this pod runs in.
    Default,
    /// The cluster of this kubeconfig.
    Path(PathBuf),
    /// The cluster of this kubeconfig, for a command whose flag is `--kubeconfig`.
    Named(PathBuf),
}

/// Of the flag `--kubeconfig`.
impl From<Option<PathBuf>> for ControlKubeconfig {
    fn from(file: Option<PathBuf>) -> Self {
        file.map_or(Self::Default, Self::Named)
    }
}

/// The target cluster (`--target-kubeconfig`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetKubeconfig {
    /// The cluster this pod runs in.
    InCluster,
    /// No target cluster: machines are created and deleted without nodes.
    None,
    /// The control cluster.
    SameAsControl,
    /// The cluster of this kubeconfig.
    Path(PathBuf),
    /// The cluster of a kubeconfig of an untrusted author.
    Found(FoundKubeconfig),
}

/// The default kubeconfig of a process outside a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeconfigFallback {
    /// Nowhere.
    None,
    /// As kubectl does: the files in `KUBECONFIG` first; outside a pod also `~/.kube/config`.
    LocalKubeconfig,
}

/// User agent of a client. API servers count and limit requests by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAgent {
    /// `mcm run`.
    Mcm,
    /// The controllers of sets and deployments.
    ControllerManager,
    /// The controllers of machines.
    MachineController,
    /// The provider for Cluster API.
    CapiManager,
    /// The update extension for Cluster API.
    CapiExtension,
    /// Leader election.
    LeaderElection,
    /// The simulated cloud, whose VMs register their Nodes.
    SimulatedCloud,
}

/// The clusters of one process.
#[derive(Clone, Debug)]
pub struct ProcessClusters {
    /// The control cluster.
    pub control: ClusterConfig,
    /// The target cluster; `None` runs without one.
    pub target: Option<ClusterConfig>,
}

impl ProcessClusters {
    /// Resolves the two flags. Makes no network calls.
    ///
    /// # Errors
    /// A file cannot be read or used, the process runs in no pod, or no control cluster is given.
    pub async fn load(
        control: &ControlKubeconfig,
        target: &TargetKubeconfig,
        fallback: KubeconfigFallback,
    ) -> Result<Self, StartError> {
        Self::load_chosen(control, target, fallback, &ContextChoice::default()).await
    }

    /// The same with a context and a user for the control cluster. They are also those of the target cluster, unless it has a
    /// kubeconfig.
    ///
    /// # Errors
    /// As for [`Self::load`], or there is no such context.
    pub async fn load_chosen(
        control: &ControlKubeconfig,
        target: &TargetKubeconfig,
        fallback: KubeconfigFallback,
        choice: &ContextChoice,
    ) -> Result<Self, StartError> {
        const TARGET: &str = "--target-kubeconfig";
        const CONTROL: &str = "--control-kubeconfig";
        const ONLY: &str = "--kubeconfig";
        let load = async |source| ClusterConfig::load(source, choice).await;
        let apart = match target {
            TargetKubeconfig::InCluster => Some(load(own_cluster(TARGET, fallback, choice)?).await?),
            TargetKubeconfig::None | TargetKubeconfig::SameAsControl => None,
            TargetKubeconfig::Path(path) => {
                Some(ClusterConfig::load(ConfigSource::file(TARGET, path), &ContextChoice::default()).await?)
            }
            TargetKubeconfig::Found(found) => Some(ClusterConfig::of_found(found).await?),
        };
        let control = match control {
            ControlKubeconfig::SameAsTarget => apart.clone().ok_or(StartError::NoControlCluster)?,
            ControlKubeconfig::InCluster => load(ConfigSource::Pod { origin: CONTROL }).await?,
            ControlKubeconfig::Default => load(own_cluster(ONLY, fallback, choice)?).await?,
            ControlKubeconfig::Path(path) => load(ConfigSource::file(CONTROL, path)).await?,
            ControlKubeconfig::Named(path) => load(ConfigSource::file(ONLY, path)).await?,
        };
        let target = if *target == TargetKubeconfig::SameAsControl { Some(control.clone()) } else { apart };
        Ok(Self { control, target })
    }
}

/// A client to check a cluster. Must be called inside an async runtime.
///
/// # Errors
/// The credentials or certificates cannot be used.
pub async fn client(cluster: &ClusterConfig, agent: UserAgent) -> Result<Client, StartError> {
    let mut config = cluster.config.clone();
    config.headers.push((header::USER_AGENT, HeaderValue::from_static(agent.as_str())));
    let server = config.cluster_url.clone();
    // A credential plugin may be slow.
    match spawn_blocking(move || Client::try_from(config)).await {
        Ok(client) => client
            .map(|client| body::within(client, body::ResponseLimits::COMMAND))
            .map_err(|error| StartError::from_client(&server, &error)),
        Err(_) => {
            Err(StartError::Client { server: address(&server), cause: "the process is shutting down".to_owned() })
        }
    }
}

impl UserAgent {
    /// Its value in requests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mcm => concat!("mcm/", env!("CARGO_PKG_VERSION")),
            Self::ControllerManager => "machine-controller-manager",
            Self::MachineController => "machine-controller",
            Self::CapiManager => concat!("mcm-capi-manager/", env!("CARGO_PKG_VERSION")),
            Self::CapiExtension => concat!("mcm-capi-extension/", env!("CARGO_PKG_VERSION")),
            Self::LeaderElection => "machine-leader-election",
            Self::SimulatedCloud => concat!("mcm-simulated-cloud/", env!("CARGO_PKG_VERSION")),
        }
    }
}

impl FromStr for ControlKubeconfig {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "" => Self::SameAsTarget,
            "inClusterConfig" => Self::InCluster,
            path => Self::Path(path.into()),
        })
    }
}

impl FromStr for TargetKubeconfig {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "" => Self::InCluster,
            "none" => Self::None,
            path => Self::Path(path.into()),
        })
    }
}

fn own_cluster(
    flag: &'static str,
    fallback: KubeconfigFallback,
    choice: &ContextChoice,
) -> Result<ConfigSource, StartError> {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    if fallback == KubeconfigFallback::None {
        return Ok(ConfigSource::Pod { origin: flag });
    }
    if is_set("KUBECONFIG") {
        return Ok(ConfigSource::Environment);
    }
    // The credentials of a pod have no contexts.
    if is_set("KUBERNETES_SERVICE_HOST") && choice.context.is_none() {
        return Ok(ConfigSource::Pod { origin: flag });
    }
    match env::home_dir().map(|home| home.join(".kube").join("config")) {
        Some(path) if path.exists() => Ok(ConfigSource::file("the default kubeconfig", &path)),
        _ => Err(StartError::NoCluster { flag }),
    }
}
