//! Flags that every running command has.

use std::{net::IpAddr, time::Duration};

use clap::{ArgAction, Args, ValueEnum};

use super::value;
use crate::runtime::kubeconfig::{ControlKubeconfig, TargetKubeconfig};

/// Where to listen, which clusters to talk to and how fast.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Clusters")]
pub struct GenericOptions {
    /// Kubeconfig of the cluster that holds the machine objects: a file, "inClusterConfig" for the pod's own
    /// credentials, or empty for the target cluster
    #[arg(long, default_value = "", value_name = "FILE")]
    pub control_kubeconfig: ControlKubeconfig,

    /// Kubeconfig of the cluster that the nodes join: a file, "none" if there is no such cluster, or empty for
    /// the pod's own credentials
    #[arg(long, default_value = "", value_name = "FILE")]
    pub target_kubeconfig: TargetKubeconfig,

    /// The namespace of the control cluster to work in
    #[arg(long, default_value = "default", value_parser = value::namespace)]
    pub namespace: String,

    /// Requests per second to each cluster
    #[arg(long, default_value = "20", value_name = "RATE", value_parser = value::rate)]
    pub kube_api_qps: f32,

    /// Requests above that rate that may go out at once
    #[arg(long, default_value = "30", value_name = "COUNT", value_parser = value::count)]
    pub kube_api_burst: u32,

    /// How often every object is looked at again without a change
    #[arg(long, default_value = "12h", value_name = "DURATION", value_parser = value::duration)]
    pub min_resync_period: Duration,

    /// Leader election.
    #[command(flatten)]
    pub leader_election: LeaderElectionOptions,

    /// The address the HTTP endpoints listen on
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
        value_name = "BOOL",
        default_value = "false",
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set,
        value_parser = value::boolean
    )]
    pub profiling: bool,

    /// Logs.
    #[command(flatten)]
    pub log: LogOptions,

    /// Flags without effect.
    #[command(flatten)]
    pub compatibility: CompatibilityFlags,
}

/// Which replica works. The defaults and rules are those of client-go.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderElectionOptions {
    /// Let one of several replicas work at a time
    #[arg(
        long = "leader-elect",
        value_name = "BOOL",
        default_value = "true",
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set,
        value_parser = value::boolean
    )]
    pub enabled: bool,

    /// How long the others wait before they take over from a silent leader
    #[arg(
        long = "leader-elect-lease-duration",
        default_value = "15s",
        value_name = "DURATION",
        value_parser = value::duration
    )]
    pub lease_duration: Duration,

    /// How long the leader tries to renew before it gives up
    #[arg(
        long = "leader-elect-renew-deadline",
        default_value = "10s",
        value_name = "DURATION",
        value_parser = value::duration
    )]
    pub renew_deadline: Duration,

    /// The pause between two attempts to get or renew the lease
    #[arg(
        long = "leader-elect-retry-period",
        default_value = "2s",
        value_name = "DURATION",
        value_parser = value::duration
    )]
    pub retry_period: Duration,

    /// What holds the lock; "leases" is the only kind there is
    #[arg(long = "leader-elect-resource-lock", default_value = "leases", value_name = "KIND")]
    pub(super) resource_lock: String,
}

/// What is written to standard error, and how.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Logging")]
pub struct LogOptions {
    /// How much is logged: 0 to 2 info, 3 and 4 debug, from 5 trace; RUST_LOG overrides it
    #[arg(short = 'v', long = "v", default_value = "0", value_name = "LEVEL", value_parser = value::level)]
    pub verbosity: i32,

    /// How a log line is written: text or json
    #[arg(long = "log-format", default_value = "text", value_name = "FORMAT", hide_possible_values = true)]
    pub format: LogFormat,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Flags that existing manifests carry and that change nothing here. They are still checked as the Go programs do.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Accepted for compatibility, no effect")]
pub struct CompatibilityFlags {
    /// The drivers are chosen by each MachineClass
    #[arg(long, default_value = "", value_name = "NAME")]
    cloud_provider: String,

    /// Custom resources are always sent as JSON
    #[arg(
        long,
        default_value = "application/vnd.kubernetes.protobuf",
        value_name = "TYPE",
        value_parser = value::media_type
    )]
    kube_api_content_type: String,

    /// All controllers start at once
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = value::duration)]
    controller_start_interval: Duration,

    /// There are no lock profiles; it still needs --profiling
    #[arg(
        long,
        value_name = "BOOL",
        default_value = "false",
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set,
        value_parser = value::boolean
    )]
    pub(super) contention_profiling: bool,

    /// Levels per module are set with RUST_LOG
    #[arg(long, default_value = "", value_name = "PATTERN=LEVEL,…")]
    vmodule: String,

    /// Logs are written at once
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = value::duration)]
    log_flush_frequency: Duration,
}
