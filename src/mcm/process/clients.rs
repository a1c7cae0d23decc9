use std::path::Path;

use anyhow::Result;
use kube::Client;

use super::{connect::Connection, options::ProcessOptions};
use mcm_runtime::{
    body::Limits,
    budget::{Budgets, Purpose, Share},
    client,
    kubeconfig::{Cluster, Clusters, ControlKubeconfig, Fallback, TargetKubeconfig, UserAgent},
    limiter::Rate,
    metrics::Metrics,
    reload::ClientError,
    separate::SeparateRuntime,
    server_clock::ServerClock,
    target::TargetClients,
};

/// Rate limit of the event client, so that events do not delay other requests.
const EVENT_RATE: Rate = Rate { qps: 50.0, burst: 100 };

/// Rate limit of the client that authorizes readers of diagnostics. Unauthenticated clients cause its requests.
const REVIEW_RATE: Rate = Rate { qps: 5.0, burst: 10 };

/// Of all cells together at one server, as a multiple of the limit of one client.
const SHARED: u32 = 4;

/// Renewals of Leases of all cells together at one server. Each cell needs one a second.
const LEASE_RATE: Rate = Rate { qps: 1000.0, burst: 2000 };

/// A cell that shares API servers with other cells.
pub(super) struct Sharing {
    pub budgets: Budgets,
    pub cell: String,
}

impl Sharing {
    fn of_requests(&self, cluster: &Cluster, options: &ProcessOptions) -> Share {
        let Rate { qps, burst } = options.rate;
        let rate = Rate { qps: qps * f64::from(SHARED), burst: burst.saturating_mul(SHARED) };
        self.budgets.share(&cluster.config.cluster_url, Purpose::Requests, rate, &self.cell)
    }

    fn of_leases(&self, cluster: &Cluster) -> Share {
        self.budgets.share(&cluster.config.cluster_url, Purpose::Leases, LEASE_RATE, &self.cell)
    }
}

/// Clients with separate limits, so that events and Leases do not wait for other requests.
pub(super) struct Clients {
    pub control: Client,
    pub target: Option<TargetClients>,
    pub events: Client,
    pub leases: Client,
    /// The time of the control cluster.
    pub clock: ServerClock,
}

impl Clients {
    /// The client for Leases belongs to a separate runtime.
    pub fn new(
        connection: &Connection,
        options: &ProcessOptions,
        sharing: Option<&Sharing>,
        metrics: &Metrics,
        elections: &SeparateRuntime,
    ) -> Result<Self> {
        let (agent, clusters) = (options.agent.as_str(), &connection.clusters);
        let limited = |rate| {
            let share = sharing.map(|sharing| sharing.of_requests(&clusters.control, options));
            client::client(&clusters.control, agent, Limits::CONTROL, rate, share, metrics.requests())
        };
        let target = clusters.target.as_ref().map(|cluster| of_target(cluster, options, sharing, metrics));
        let share = sharing.map(|sharing| sharing.of_leases(&clusters.control));
        let agent = UserAgent::LeaderElection.as_str();
        Ok(Self {
            control: limited(options.rate)?,
            target: target.transpose()?,
            events: limited(EVENT_RATE)?,
            clock: metrics.requests().clock(&clusters.control.config.cluster_url),
            leases: elections.within(|| client::lease_client(&clusters.control, agent, share, metrics.requests()))?,
        })
    }
}

/// The client that authorizes readers of diagnostics in the control cluster.
pub(super) fn of_reviews(connection: &Connection, options: &ProcessOptions, metrics: &Metrics) -> Result<Client> {
    Ok(client::client(
        &connection.clusters.control,
        options.agent.as_str(),
        Limits::SMALL,
        REVIEW_RATE,
        None,
        metrics.requests(),
    )?)
}

/// Each with the limits of the flags: in the Go programs, too, every client has these for itself. Evictions take turns at
/// the same rate.
pub(super) fn of_target(
    cluster: &Cluster,
    options: &ProcessOptions,
    sharing: Option<&Sharing>,
    metrics: &Metrics,
) -> Result<TargetClients, ClientError> {
    let limited = || {
        let share = sharing.map(|sharing| sharing.of_requests(cluster, options));
        client::client(cluster, options.agent.as_str(), Limits::TARGET, options.rate, share, metrics.requests())
    };
    let clock = Some(metrics.requests().clock(&cluster.config.cluster_url));
    Ok(TargetClients { requests: limited()?, drains: limited()?, evictions: options.rate, clock })
}

/// The clients for one of several targets.
pub(super) async fn target(
    path: &Path,
    options: &ProcessOptions,
    sharing: Option<&Sharing>,
    metrics: &Metrics,
) -> Result<TargetClients> {
    let target = TargetKubeconfig::Path(path.to_owned());
    let clusters = Clusters::load(&ControlKubeconfig::SameAsTarget, &target, Fallback::None).await?;
    Ok(of_target(&clusters.control, options, sharing, metrics)?)
}
