use std::path::Path;

use anyhow::Result;
use kube::Client;

use super::{connect::Connection, options::ProcessOptions};
use crate::runtime::{
    client,
    kubeconfig::{Cluster, Clusters, ControlKubeconfig, Fallback, TargetKubeconfig, UserAgent},
    limiter::Rate,
    metrics::Metrics,
};

/// Rate limit of the event client, so that events do not delay other requests.
const EVENT_RATE: Rate = Rate { qps: 50.0, burst: 100 };

/// Clients with limits of their own, so that events and Leases do not wait for other requests.
pub(super) struct Clients {
    pub control: Client,
    pub target: Option<Client>,
    pub events: Client,
    pub leases: Client,
}

impl Clients {
    pub fn new(connection: &Connection, options: &ProcessOptions, metrics: &Metrics) -> Result<Self> {
        let agent = options.agent.as_str();
        let limited = |cluster: &Cluster, rate| client::client(cluster, agent, rate, metrics.requests());
        let clusters = &connection.clusters;
        Ok(Self {
            control: limited(&clusters.control, options.rate)?,
            target: clusters.target.as_ref().map(|cluster| limited(cluster, options.rate)).transpose()?,
            events: limited(&clusters.control, EVENT_RATE)?,
            leases: client::lease_client(&clusters.control, UserAgent::LeaderElection.as_str(), metrics.requests())?,
        })
    }
}

/// A client for one of several targets.
pub(super) async fn target(path: &Path, options: &ProcessOptions, metrics: &Metrics) -> Result<Client> {
    let target = TargetKubeconfig::Path(path.to_owned());
    let clusters = Clusters::load(&ControlKubeconfig::SameAsTarget, &target, Fallback::None).await?;
    Ok(client::client(&clusters.control, options.agent.as_str(), options.rate, metrics.requests())?)
}
