//! Which clusters to talk to, and whether they answer.
//!
//! The control cluster holds the machine objects, the target cluster gets the nodes. They may be one, and there may be no target.

mod check;
mod error;
#[cfg(test)]
mod tests;

use std::{
    convert::Infallible,
    env,
    path::{Path, PathBuf},
    str::FromStr,
};

use http::{HeaderValue, Uri, header};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

pub use check::{API_VERSION, ServerInfo, check, wait_until_ready};
pub use error::StartError;

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
    /// Watches of machine objects.
    ControlMachineInformers,
    /// Watches of everything else in the control cluster.
    ControlCoreInformers,
    /// Watches in the target cluster.
    TargetCoreInformers,
    /// The lease.
    LeaderElection,
    /// What the control cluster serves.
    Discovery,
}

/// The clusters of one process.
#[derive(Clone, Debug)]
pub struct Clusters {
    /// Holds the machine objects.
    pub control: Config,
    /// Gets the nodes; `None` is the mode without a target.
    pub target: Option<Config>,
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
            TargetKubeconfig::InCluster => Some(own_cluster(TARGET, fallback).await?),
            TargetKubeconfig::None => None,
            TargetKubeconfig::Path(path) => Some(from_file(TARGET, path).await?),
        };
        let control = match control {
            ControlKubeconfig::SameAsTarget => target.clone().ok_or(StartError::NoControlCluster)?,
            ControlKubeconfig::InCluster => in_pod(CONTROL)?,
            ControlKubeconfig::Path(path) => from_file(CONTROL, path).await?,
        };
        Ok(Self { control, target })
    }
}

/// A client for one purpose. Must be called inside an async runtime.
///
/// # Errors
/// When the credentials or certificates cannot be used.
pub fn client(config: &Config, agent: UserAgent) -> Result<Client, StartError> {
    let mut config = config.clone();
    config.headers.push((header::USER_AGENT, HeaderValue::from_static(agent.as_str())));
    let server = config.cluster_url.clone();
    Client::try_from(config).map_err(|error| StartError::from_client(&server, &error))
}

impl UserAgent {
    /// As it stands in requests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mcm => concat!("mcm/", env!("CARGO_PKG_VERSION")),
            Self::ControllerManager => "machine-controller-manager",
            Self::MachineController => "machine-controller",
            Self::ControlMachineInformers => "control-machine-shared-informers",
            Self::ControlCoreInformers => "control-core-shared-informers",
            Self::TargetCoreInformers => "target-core-shared-informers",
            Self::LeaderElection => "machine-leader-election",
            Self::Discovery => "controller-discovery",
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

async fn own_cluster(flag: &'static str, fallback: Fallback) -> Result<Config, StartError> {
    if fallback == Fallback::None {
        return in_pod(flag);
    }
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    if is_set("KUBECONFIG") {
        let kubeconfig = Kubeconfig::read().map_err(|error| StartError::from_kubeconfig("KUBECONFIG", None, error))?;
        return from_kubeconfig("KUBECONFIG", None, kubeconfig).await;
    }
    if is_set("KUBERNETES_SERVICE_HOST") {
        return in_pod(flag);
    }
    match env::home_dir().map(|home| home.join(".kube").join("config")) {
        Some(path) if path.exists() => from_file("the default kubeconfig", &path).await,
        _ => Err(StartError::NoCluster),
    }
}

fn in_pod(flag: &'static str) -> Result<Config, StartError> {
    let config =
        Config::incluster().map_err(|error| StartError::NotInPod { origin: flag, cause: error.to_string() })?;
    Ok(with_our_retries(config))
}

async fn from_file(origin: &'static str, path: &Path) -> Result<Config, StartError> {
    let kubeconfig =
        Kubeconfig::read_from(path).map_err(|error| StartError::from_kubeconfig(origin, Some(path), error))?;
    from_kubeconfig(origin, Some(path), kubeconfig).await
}

async fn from_kubeconfig(
    origin: &'static str,
    path: Option<&Path>,
    kubeconfig: Kubeconfig,
) -> Result<Config, StartError> {
    let is_proxy_from_environment = !kubeconfig
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref())
        .any(|cluster| cluster.proxy_url.is_some());
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| StartError::from_kubeconfig(origin, path, error))?;
    if is_proxy_from_environment && is_loopback(&config.cluster_url) {
        config.proxy_url = None;
    }
    Ok(with_our_retries(config))
}

/// The client would repeat a create whose answer was lost, and an eviction that a budget forbids.
/// What may be repeated, and when, is known only to the caller.
fn with_our_retries(mut config: Config) -> Config {
    config.default_retry = false;
    config
}

/// As in Go, a proxy named by the environment is never used for this host itself.
fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
