//! Flags of the provider for Cluster API, with the names and defaults that its users expect.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgAction, Args};

use super::{DriverOptions, LeaderElectionOptions, LogOptions, value};
use mcm_runtime::{http::CertificateFiles, metrics::MachineSeries};

/// All flags of `capi-manager`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct CapiManagerOptions {
    /// Kubeconfig of the management cluster; if absent, KUBECONFIG, the credentials of this pod, or ~/.kube/config
    #[arg(help_heading = "Clusters", long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace to watch; all namespaces if empty
    #[arg(help_heading = "Clusters", long, default_value = "", value_parser = value::namespace_or_all)]
    pub namespace: String,

    /// Reconcile only objects whose label cluster.x-k8s.io/watch-filter has this value; all objects if empty
    #[arg(help_heading = "Clusters", long, default_value = "", value_name = "VALUE")]
    pub watch_filter: String,

    /// Run the stand-in for Cluster API core instead of the provider, for namespaces labelled machine.mcm/stand-in=enabled
    #[arg(
        help_heading = "Clusters",
        long,
        default_value = "false",
        action = ArgAction::Set,
        value_parser = value::boolean
    )]
    pub stand_in: bool,

    /// Also act in namespaces where a Go Machine Controller Manager holds its Leases, because this provider replaces it
    #[arg(
        help_heading = "Clusters",
        long,
        default_value = "false",
        action = ArgAction::Set,
        value_parser = value::boolean
    )]
    pub replaces_machine_controller_manager: bool,

    /// Concurrent reconciles of each kind, and concurrent creations and deletions of VMs per account
    #[arg(help_heading = "Clusters", long, default_value = "50", value_name = "COUNT", value_parser = value::workers)]
    pub concurrency: usize,

    /// How often VMs of MCMMachines are checked: one that was deleted or stopped, and changed addresses, show after this time.
    /// All VMs of an account are checked together
    #[arg(help_heading = "Clusters", long, default_value = "5m", value_parser = value::period)]
    pub vm_check_period: Duration,

    /// Requests per second to the management cluster
    #[arg(help_heading = "Clusters", long, default_value = "100", value_name = "RATE", value_parser = value::rate)]
    pub kube_api_qps: f32,

    /// Burst of requests above that rate
    #[arg(help_heading = "Clusters", long, default_value = "200", value_name = "COUNT", value_parser = value::count)]
    pub kube_api_burst: u32,

    /// Nodes of one workload cluster, with 8 KiB of memory each on average. The Nodes of a cluster that has more are unknown,
    /// and other clusters are not affected
    #[arg(help_heading = "Clusters", long, default_value = "20000", value_name = "COUNT", value_parser = value::nodes)]
    pub max_nodes_per_target: usize,

    /// Accepted and ignored: objects are reconciled when they change and when a wait ends
    #[arg(help_heading = "Clusters", long, default_value = "10m", value_parser = value::duration)]
    pub sync_period: Duration,

    /// Listen address of /healthz and /readyz
    #[arg(
        help_heading = "HTTP endpoints",
        long,
        default_value = ":9440",
        value_name = "ADDRESS",
        value_parser = value::listen_address
    )]
    pub health_addr: SocketAddr,

    /// Listen address of /metrics: over TLS, for users whom the management cluster authorizes to get that path
    #[arg(
        help_heading = "HTTP endpoints",
        long,
        default_value = ":8443",
        value_name = "ADDRESS",
        value_parser = value::listen_address
    )]
    pub diagnostics_address: SocketAddr,

    /// Serve metrics over plain HTTP without authorization
    #[arg(
        help_heading = "HTTP endpoints",
        long,
        default_value = "false",
        action = ArgAction::Set,
        value_parser = value::boolean
    )]
    pub insecure_diagnostics: bool,

    /// Metrics of each machine, API server and cache: auto (up to 1,000 machines and 50 clusters, aggregates above),
    /// always or never
    #[arg(
        help_heading = "HTTP endpoints",
        long,
        default_value = "auto",
        value_name = "CHOICE",
        value_parser = value::machine_series
    )]
    pub machine_series: MachineSeries,

    /// Certificate chain of /metrics in PEM form, reloaded when it changes; self-signed if absent
    #[arg(help_heading = "HTTP endpoints", long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// Key of that certificate
    #[arg(help_heading = "HTTP endpoints", long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,

    /// Flags of Cluster API Operator.
    #[command(flatten)]
    pub operator: OperatorOptions,

    /// Drivers.
    #[command(flatten)]
    pub driver: DriverOptions,

    /// Leader election.
    #[command(flatten)]
    pub leader_election: LeaderElectionOptions,

    /// Logs.
    #[command(flatten)]
    pub log: LogOptions,
}

impl CapiManagerOptions {
    /// The files of the certificate, if they are given.
    pub fn certificate(&self) -> Option<CertificateFiles> {
        let (cert, key) = (self.tls_cert_file.clone()?, self.tls_private_key_file.clone()?);
        Some(CertificateFiles { cert, key })
    }
}

/// Flags that Cluster API Operator passes to each provider whose object sets them. A flag that is not known would end the pod.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Cluster API Operator")]
pub struct OperatorOptions {
    /// Accepted and ignored: metrics are at --diagnostics-address
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_bind_addr: Option<String>,

    /// Accepted and ignored: there is no profiler
    #[arg(long, value_name = "ADDRESS")]
    pub profiler_address: Option<String>,

    /// Accepted and ignored: there are no feature gates
    #[arg(long, value_name = "LIST")]
    pub feature_gates: Option<String>,

    /// Accepted and ignored: there are no webhooks
    #[arg(long, value_name = "HOST")]
    pub webhook_host: Option<String>,

    /// Accepted and ignored: there are no webhooks
    #[arg(long, value_name = "PORT")]
    pub webhook_port: Option<String>,

    /// Accepted and ignored: there are no webhooks
    #[arg(long, value_name = "FOLDER")]
    pub webhook_cert_dir: Option<String>,

    /// Accepted and ignored: the Lease has a fixed name
    #[arg(long, value_name = "NAME")]
    pub leader_election_id: Option<String>,

    /// Accepted and ignored: set --concurrency
    #[arg(long, value_name = "COUNT")]
    pub max_concurrent_reconciles: Option<String>,

    /// Accepted and ignored: set --concurrency
    #[arg(long, value_name = "COUNT")]
    pub mcmcluster_concurrency: Option<String>,

    /// Accepted and ignored: set --concurrency
    #[arg(long, value_name = "COUNT")]
    pub mcmmachine_concurrency: Option<String>,

    /// Accepted and ignored: set --concurrency
    #[arg(long, value_name = "COUNT")]
    pub mcmmachinepool_concurrency: Option<String>,

    /// Accepted and ignored: set --concurrency
    #[arg(long, value_name = "COUNT")]
    pub mcmmachinetemplate_concurrency: Option<String>,
}
