use std::path::Path;

use anyhow::Result;
use kube::Client;

use super::{connect::ConnectedClusters, options::ProcessOptions};
use mcm_runtime::{
    body::ResponseLimits,
    budget::{BudgetLayer, BudgetPurpose, RequestBudgets},
    client,
    connections::ConnectionRegistry,
    kubeconfig::{ClusterConfig, ControlKubeconfig, KubeconfigFallback, ProcessClusters, TargetKubeconfig, UserAgent},
    limiter::RequestRate,
    metrics::MetricsRegistry,
    reload::ClientError,
    separate::SeparateRuntime,
    server_clock::ServerClock,
    target::TargetClients,
};

/// Rate limit of the event client, so that events do not delay other requests.
const EVENT_RATE: RequestRate = RequestRate { qps: 50.0, burst: 100 };

/// Rate limit of the client that authorizes readers of diagnostics. Unauthenticated clients cause its requests.
const REVIEW_RATE: RequestRate = RequestRate { qps: 5.0, burst: 10 };

/// Of all cells together at one server, as a multiple of the limit of one client.
const SHARED: u32 = 4;

/// Renewals of Leases of all cells together at one server. Each cell needs one a second.
const LEASE_RATE: RequestRate = RequestRate { qps: 1000.0, burst: 2000 };

/// A cell that shares API servers with other cells.
pub(super) struct CellBudgets {
    pub budgets: RequestBudgets,
    pub cell: String,
}

impl CellBudgets {
    fn of_requests(&self, cluster: &ClusterConfig, options: &ProcessOptions) -> BudgetLayer {
        let RequestRate { qps, burst } = options.rate;
        let rate = RequestRate { qps: qps * f64::from(SHARED), burst: burst.saturating_mul(SHARED) };
        self.budgets.share(&cluster.config.cluster_url, BudgetPurpose::Requests, rate, &self.cell)
    }

    fn of_leases(&self, cluster: &ClusterConfig) -> BudgetLayer {
        self.budgets.share(&cluster.config.cluster_url, BudgetPurpose::Leases, LEASE_RATE, &self.cell)
    }
}

/// Clients with separate limits, so that events and Leases do not wait for other requests.
pub(super) struct CellClients {
    pub control: Client,
    pub target: Option<TargetClients>,
    pub events: Client,
    pub leases: Client,
    /// The time of the control cluster.
    pub clock: ServerClock,
}

impl CellClients {
    /// The client for Leases belongs to a separate runtime. Cells with the same credentials share connections to the control
    /// cluster.
    pub fn new(
        connection: &ConnectedClusters,
        options: &ProcessOptions,
        sharing: Option<&CellBudgets>,
        metrics: &MetricsRegistry,
        elections: &SeparateRuntime,
        shared: &ConnectionRegistry,
    ) -> Result<Self> {
        let (agent, clusters) = (options.agent.as_str(), &connection.clusters);
        let connections = shared.for_requests(&clusters.control)?;
        let limited = |rate| {
            let share = sharing.map(|sharing| sharing.of_requests(&clusters.control, options));
            client::client(&connections, agent, ResponseLimits::CONTROL, rate, share, metrics.requests())
        };
        let target = clusters.target.as_ref().map(|cluster| of_target(cluster, options, sharing, metrics));
        let share = sharing.map(|sharing| sharing.of_leases(&clusters.control));
        let of_leases = || {
            let connections = shared.for_leases(&clusters.control)?;
            client::lease_client(&connections, UserAgent::LeaderElection.as_str(), share, metrics.requests())
        };
        Ok(Self {
            control: limited(options.rate)?,
            target: target.transpose()?,
            events: limited(EVENT_RATE)?,
            clock: metrics.requests().clock(&clusters.control.config.cluster_url),
            leases: elections.within(of_leases)?,
        })
    }
}

/// The client that authorizes readers of diagnostics in the control cluster.
pub(super) fn of_reviews(
    connection: &ConnectedClusters,
    options: &ProcessOptions,
    metrics: &MetricsRegistry,
) -> Result<Client> {
    Ok(client::client(
        &client::connections(&connection.clusters.control)?,
        options.agent.as_str(),
        ResponseLimits::SMALL,
        REVIEW_RATE,
        None,
        metrics.requests(),
    )?)
}

/// The client that finds control planes.
pub(super) fn of_discovery(
    control: &ClusterConfig,
    options: &ProcessOptions,
    metrics: &MetricsRegistry,
    shared: &ConnectionRegistry,
) -> Result<Client> {
    let (connections, agent) = (shared.for_requests(control)?, options.agent.as_str());
    Ok(client::client(&connections, agent, ResponseLimits::CONTROL, options.rate, None, metrics.requests())?)
}

/// The client of the membership in a fleet. It belongs to the runtime of elections, and waits for no Lease of a cell.
pub(super) fn of_membership(
    control: &ClusterConfig,
    metrics: &MetricsRegistry,
    elections: &SeparateRuntime,
) -> Result<Client> {
    let agent = UserAgent::LeaderElection.as_str();
    let made = || client::lease_client(&client::lease_connections(control)?, agent, None, metrics.requests());
    Ok(elections.within(made)?)
}

/// Each with the limits of the flags: in the Go programs, too, every client has these for itself. They share connections.
/// Evictions take turns at the same rate.
pub(super) fn of_target(
    cluster: &ClusterConfig,
    options: &ProcessOptions,
    sharing: Option<&CellBudgets>,
    metrics: &MetricsRegistry,
) -> Result<TargetClients, ClientError> {
    let (connections, agent) = (client::connections(cluster)?, options.agent.as_str());
    let limited = || {
        let share = sharing.map(|sharing| sharing.of_requests(cluster, options));
        client::client(&connections, agent, ResponseLimits::TARGET, options.rate, share, metrics.requests())
    };
    let clock = Some(metrics.requests().clock(&cluster.config.cluster_url));
    Ok(TargetClients { requests: limited()?, drains: limited()?, evictions: options.rate, clock })
}

/// The clients for one of several targets.
pub(super) async fn target(
    path: &Path,
    options: &ProcessOptions,
    sharing: Option<&CellBudgets>,
    metrics: &MetricsRegistry,
) -> Result<TargetClients> {
    let target = TargetKubeconfig::Path(path.to_owned());
    let clusters = ProcessClusters::load(&ControlKubeconfig::SameAsTarget, &target, KubeconfigFallback::None).await?;
    Ok(of_target(&clusters.control, options, sharing, metrics)?)
}
