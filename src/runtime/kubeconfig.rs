//! Which clusters to talk to, and whether they answer.
//!
//! The control cluster holds the machine objects, the target cluster gets the nodes. They may be one, and there may be no target.

mod check;
mod error;
mod source;
#[cfg(test)]
mod tests;

use std::{convert::Infallible, env, path::PathBuf, str::FromStr};

use http::{HeaderValue, header};
use kube::Client;
use tokio::task::spawn_blocking;

use source::Source;

pub use check::{ServerInfo, check, wait_until_ready};
pub use error::{API_VERSION, StartError};
pub(crate) use error::{address, cause};
pub use source::Cluster;

/// Where the machine objects are (`--control-kubeconfig`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlKubeconfig {
    /// In the target cluster.
    SameAsTarget,
    /// In the cluster this pod runs in.
    InCluster,
    /// In the cluster of this kubeconfig.
    Path(PathBuf),
}

/// Which cluster the nodes join (`--target-kubeconfig`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetKubeconfig {
    /// The cluster this pod runs in.
    InCluster,
    /// There is no such cluster: machines are made and deleted, nodes are never looked at.
    None,
    /// The cluster of this kubeconfig.
    Path(PathBuf),
}

/// What "in cluster" may also mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Nothing else.
    None,
    /// As for kubectl: the files of `KUBECONFIG` come first, `~/.kube/config` counts outside a pod.
    LocalKubeconfig,
}

/// How a client calls itself. API servers count and limit requests by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAgent {
    /// All controllers in one process.
    Mcm,
    /// The controllers of sets and deployments.
    ControllerManager,
    /// The controllers of machines.
    MachineController,
    /// The lease.
    LeaderElection,
    /// The simulated cloud, whose VMs register their Nodes.
    SimulatedCloud,
}

/// The clusters of one process.
#[derive(Clone, Debug)]
pub struct Clusters {
    /// Holds the machine objects.
    pub control: Cluster,
    /// Gets the nodes; `None` is the mode without a target.
    pub target: Option<Cluster>,
}

impl Clusters {
    /// Reads what the two flags stand for. Nothing is asked over the network.
    ///
    /// # Errors
    /// When a file cannot be read or used, when there is no pod, or when nothing says where the machine objects are.
    pub async fn load(
        control: &ControlKubeconfig,
        target: &TargetKubeconfig,
        fallback: Fallback,
    ) -> Result<Self, StartError> {
        const TARGET: &str = "--target-kubeconfig";
        const CONTROL: &str = "--control-kubeconfig";
        let target = match target {
            TargetKubeconfig::InCluster => Some(Cluster::load(own_cluster(TARGET, fallback)?).await?),
            TargetKubeconfig::None => None,
            TargetKubeconfig::Path(path) => Some(Cluster::load(Source::file(TARGET, path)).await?),
        };
        let control = match control {
            ControlKubeconfig::SameAsTarget => target.clone().ok_or(StartError::NoControlCluster)?,
            ControlKubeconfig::InCluster => Cluster::load(Source::Pod { origin: CONTROL }).await?,
            ControlKubeconfig::Path(path) => Cluster::load(Source::file(CONTROL, path)).await?,
        };
        Ok(Self { control, target })
    }
}

/// A client to try a cluster with. Must be called inside an async runtime.
///
/// # Errors
/// When the credentials or certificates cannot be used.
pub async fn client(cluster: &Cluster, agent: UserAgent) -> Result<Client, StartError> {
    let mut config = cluster.config.clone();
    config.headers.push((header::USER_AGENT, HeaderValue::from_static(agent.as_str())));
    let server = config.cluster_url.clone();
    // A credential plugin may take its time.
    match spawn_blocking(move || Client::try_from(config)).await {
        Ok(client) => client.map_err(|error| StartError::from_client(&server, &error)),
        Err(_) => Err(StartError::Client { server: address(&server), cause: "the process ends".to_owned() }),
    }
}

impl UserAgent {
    /// As it stands in requests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mcm => concat!("mcm/", env!("CARGO_PKG_VERSION")),
            Self::ControllerManager => "machine-controller-manager",
            Self::MachineController => "machine-controller",
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

fn own_cluster(flag: &'static str, fallback: Fallback) -> Result<Source, StartError> {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    if fallback == Fallback::None {
        return Ok(Source::Pod { origin: flag });
    }
    if is_set("KUBECONFIG") {
        return Ok(Source::Environment);
    }
    if is_set("KUBERNETES_SERVICE_HOST") {
        return Ok(Source::Pod { origin: flag });
    }
    match env::home_dir().map(|home| home.join(".kube").join("config")) {
        Some(path) if path.exists() => Ok(Source::file("the default kubeconfig", &path)),
        _ => Err(StartError::NoCluster),
    }
}
