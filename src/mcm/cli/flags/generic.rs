//! Flags that every running command has.

use std::{net::IpAddr, time::Duration};

use clap::{ArgAction, Args, ValueEnum};

use super::value;
use mcm_runtime::kubeconfig::{ControlKubeconfig, TargetKubeconfig};

/// Flags of endpoints, clusters, leader election and logs.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Clusters")]
pub struct GenericOptions {
    /// Kubeconfig of the control cluster, which contains the machine objects: a file, "inClusterConfig" for the
    /// credentials of this pod, or empty for the target cluster
    #[arg(long, default_value = "", value_name = "FILE")]
    pub control_kubeconfig: ControlKubeconfig,

    /// Kubeconfig of the target cluster, which the nodes join: a file, "none" to run without one, or empty for
    /// the credentials of this pod
    #[arg(long, default_value = "", value_name = "FILE")]
    pub target_kubeconfig: TargetKubeconfig,

    /// Control namespace: the namespace of the machine objects
    #[arg(long, default_value = "default", value_parser = value::namespace)]
    pub namespace: String,

    /// Requests per second to each cluster
    #[arg(long, default_value = "20", value_name = "RATE", value_parser = value::rate)]
    pub kube_api_qps: f32,

    /// Burst of requests above that rate
    #[arg(long, default_value = "30", value_name = "COUNT", value_parser = value::count)]
    pub kube_api_burst: u32,

    /// Nodes of one target cluster, with 8 KiB of memory each on average. The Nodes of a cluster that has more are unknown,
    /// and other clusters are not affected
    #[arg(long, default_value = "20000", value_name = "COUNT", value_parser = value::nodes)]
    pub max_nodes_per_target: usize,

    /// Accepted and ignored: objects are reconciled when they change and when a wait ends
    #[arg(long, default_value = "12h", value_parser = value::duration)]
    pub min_resync_period: Duration,

    /// Leader election.
    #[command(flatten)]
    pub leader_election: LeaderElectionOptions,

    /// Listen address of the HTTP endpoints
    #[arg(
        help_heading = "HTTP endpoints",
        long,
        default_value = "0.0.0.0",
        value_name = "IP",
        value_parser = value::address
    )]
    pub address: IpAddr,

    /// Serve profiles under /debug/pprof/
    #[arg(
        help_heading = "HTTP endpoints",
        long,
        default_value = "false",
        action = ArgAction::Set,
        value_parser = value::boolean
    )]
    pub profiling: bool,

    /// Serve /explain and /configz to every caller, and not only on the loopback address. Their texts name objects and quote
    /// messages of the cloud
    #[arg(
        help_heading = "HTTP endpoints",
        long,
        default_value = "false",
        action = ArgAction::Set,
        value_parser = value::boolean
    )]
    pub explain_to_all: bool,

    /// Logs.
    #[command(flatten)]
    pub log: LogOptions,

    /// Flags without effect.
    #[command(flatten)]
    pub compatibility: CompatibilityFlags,
}

/// Leader election, with the defaults and rules of client-go.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderElectionOptions {
    /// Elect a leader, so that only one of several replicas is active
    #[arg(long = "leader-elect", default_value = "true", action = ArgAction::Set, value_parser = value::boolean)]
    pub enabled: bool,

    /// Time without a renewal after which a standby takes over
    #[arg(long = "leader-elect-lease-duration", default_value = "15s", value_parser = value::duration)]
    pub lease_duration: Duration,

    /// Time during which the leader retries a renewal before it stops
    #[arg(long = "leader-elect-renew-deadline", default_value = "10s", value_parser = value::duration)]
    pub renew_deadline: Duration,

    /// Pause between two attempts to acquire or renew the lease
    #[arg(long = "leader-elect-retry-period", default_value = "2s", value_parser = value::duration)]
    pub retry_period: Duration,

    /// Kind of the lock object; only "leases"
    #[arg(long = "leader-elect-resource-lock", default_value = "leases", value_name = "KIND")]
    pub(super) resource_lock: String,
}

/// Flags of the logs on standard error.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Logging")]
pub struct LogOptions {
    /// Log level: 0 to 2 info, 3 and 4 debug, 5 and more trace; RUST_LOG overrides it
    #[arg(short = 'v', long = "v", default_value = "0", value_name = "LEVEL", value_parser = value::level)]
    pub verbosity: i32,

    /// Log format: text, json or klog
    #[arg(long = "log-format", default_value = "text", value_name = "FORMAT", hide_possible_values = true)]
    pub format: LogFormat,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
    /// The format of the Go programs.
    Klog,
}

/// Flags that existing manifests contain and that have no effect here. They are validated as in the Go programs.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Accepted for compatibility, no effect")]
pub struct CompatibilityFlags {
    /// Ignored: each MachineClass names its driver
    #[arg(long, default_value = "", value_name = "NAME")]
    cloud_provider: String,

    /// Ignored: custom resources are always sent as JSON
    #[arg(
        long,
        default_value = "application/vnd.kubernetes.protobuf",
        value_name = "TYPE",
        value_parser = value::media_type
    )]
    kube_api_content_type: String,

    /// Ignored: all controllers start immediately
    #[arg(long, default_value = "0s", value_parser = value::duration)]
    controller_start_interval: Duration,

    /// Ignored: there are no lock profiles; still requires --profiling
    #[arg(long, default_value = "false", action = ArgAction::Set, value_parser = value::boolean)]
    pub(super) contention_profiling: bool,

    /// Ignored: set levels per module with RUST_LOG
    #[arg(long, default_value = "", value_name = "PATTERN=LEVEL,…")]
    vmodule: String,

    /// Ignored: logs are written immediately
    #[arg(long, default_value = "5s", value_parser = value::duration)]
    log_flush_frequency: Duration,
}
