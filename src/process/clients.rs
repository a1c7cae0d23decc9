use std::path::Path;

use anyhow::Result;
use kube::Client;

use super::{connect::Connection, options::ProcessOptions};
use crate::runtime::{
    client,
    kubeconfig::{Cluster, Clusters, ControlKubeconfig, Fallback, TargetKubeconfig, UserAgent},
    limiter::Rate,
    metrics::Metrics,
    reload::ClientError,
    server_clock::ServerClock,
    target::TargetClients,
};

/// Rate limit of the event client, so that events do not delay other requests.
const EVENT_RATE: Rate = Rate { qps: 50.0, burst: 100 };

/// Rate limit of the client that asks who may read diagnostics. Strangers cause its requests.
const REVIEW_RATE: Rate = Rate { qps: 5.0, burst: 10 };

/// Clients with limits of their own, so that events and Leases do not wait for other requests.
pub(super) struct Clients {
    pub control: Client,
    pub target: Option<TargetClients>,
    pub events: Client,
    pub leases: Client,
    /// The time of the control cluster.
    pub clock: ServerClock,
}

impl Clients {
    pub fn new(connection: &Connection, options: &ProcessOptions, metrics: &Metrics) -> Result<Self> {
        let agent = options.agent.as_str();
        let limited = |cluster: &Cluster, rate| client::client(cluster, agent, rate, metrics.requests());
        let clusters = &connection.clusters;
        Ok(Self {
            control: limited(&clusters.control, options.rate)?,
            target: clusters.target.as_ref().map(|cluster| of_target(cluster, options, metrics)).transpose()?,
            events: limited(&clusters.control, EVENT_RATE)?,
            clock: metrics.requests().clock(&clusters.control.config.cluster_url),
            leases: client::lease_client(&clusters.control, UserAgent::LeaderElection.as_str(), metrics.requests())?,
        })
    }
}

/// The client that asks the control cluster who may read diagnostics.
pub(super) fn of_reviews(connection: &Connection, options: &ProcessOptions, metrics: &Metrics) -> Result<Client> {
    Ok(client::client(&connection.clusters.control, options.agent.as_str(), REVIEW_RATE, metrics.requests())?)
}

/// Each with the limits of the flags: in the Go programs, too, every client has these for itself. Evictions take turns at
/// the same rate.
pub(super) fn of_target(
    cluster: &Cluster,
    options: &ProcessOptions,
    metrics: &Metrics,
) -> Result<TargetClients, ClientError> {
    let limited = || client::client(cluster, options.agent.as_str(), options.rate, metrics.requests());
    let clock = Some(metrics.requests().clock(&cluster.config.cluster_url));
    Ok(TargetClients { requests: limited()?, drains: limited()?, evictions: options.rate, clock })
}

/// The clients for one of several targets.
pub(super) async fn target(path: &Path, options: &ProcessOptions, metrics: &Metrics) -> Result<TargetClients> {
    let target = TargetKubeconfig::Path(path.to_owned());
    let clusters = Clusters::load(&ControlKubeconfig::SameAsTarget, &target, Fallback::None).await?;
    Ok(of_target(&clusters.control, options, metrics)?)
}
