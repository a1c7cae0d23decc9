//! Flags of the controllers of machines and classes.

use std::{convert::Infallible, str::FromStr, time::Duration};

use clap::{ArgAction, Args};

use super::value;
use mcm_rules::safety::meltdown::ReplacementLimit;
use mcm_runtime::metrics::MachineSeries;

/// Defaults for machines, which a machine can override in its spec.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Machines")]
pub struct MachineOptions {
    /// Time for a new machine to join, after which it fails
    #[arg(long, default_value = "20m", value_parser = value::duration)]
    pub machine_creation_timeout: Duration,

    /// Time for which a machine may be unhealthy before it fails
    #[arg(long, default_value = "10m", value_parser = value::duration)]
    pub machine_health_timeout: Duration,

    /// Time limit of a drain, after which it is forced
    #[arg(long, default_value = "2h", value_parser = value::duration)]
    pub machine_drain_timeout: Duration,

    /// Time limit of an in-place update, after which it fails
    #[arg(long = "machine-inplace-update-timeout", default_value = "20m", value_parser = value::duration)]
    pub machine_in_place_update_timeout: Duration,

    /// Number of periods of 20s in which a pod is evicted before it is deleted
    #[arg(long, default_value = "360", value_name = "COUNT", value_parser = value::count)]
    pub machine_max_evict_retries: u32,

    /// Time limit for the volumes of an evicted pod to be detached, after its grace period
    #[arg(long, default_value = "2m", value_parser = value::duration)]
    pub machine_pv_detach_timeout: Duration,

    /// Time limit for the volumes of an evicted pod to be attached to another Node
    #[arg(long, default_value = "90s", value_parser = value::duration)]
    pub machine_pv_reattach_timeout: Duration,

    /// Time for which a machine is preserved
    #[arg(long, default_value = "96h", value_parser = value::duration)]
    pub machine_preserve_timeout: Duration,

    /// Time for which an API server may be unreachable before machines are frozen
    #[arg(long = "machine-safety-apiserver-statuscheck-timeout", default_value = "30s", value_parser = value::duration)]
    pub api_server_check_timeout: Duration,

    /// Period of the checks of API servers; not less than the timeout
    #[arg(long = "machine-safety-apiserver-statuscheck-period", default_value = "1m", value_parser = value::duration)]
    pub api_server_check_period: Duration,

    /// Period of the collection of orphan VMs
    #[arg(long = "machine-safety-orphan-vms-period", default_value = "15m", value_parser = value::duration)]
    pub orphan_vms_period: Duration,

    /// Time for which a VM must have had no machine before it is deleted; at least one period
    #[arg(long = "machine-safety-orphan-vms-minimum-age", default_value = "10m", value_parser = value::duration)]
    pub orphan_vms_minimum_age: Duration,

    /// Report orphan VMs without deleting them
    #[arg(
        long = "machine-safety-orphan-vms-dry-run",
        default_value = "false",
        action = ArgAction::Set,
        value_parser = value::boolean
    )]
    pub orphan_vms_dry_run: bool,

    /// Delete orphan VMs without a marker although the MachineClasses of other namespaces may not be listed: no other
    /// namespace has classes with the cluster tags of this one
    #[arg(
        long = "machine-safety-orphan-vms-sole-user",
        default_value = "false",
        action = ArgAction::Set,
        value_parser = value::boolean
    )]
    pub orphan_vms_sole_user: bool,

    /// Number or percentage of a deployment's machines out of service at which no further unhealthy machine is replaced
    #[arg(long = "machine-safety-max-unhealthy-replacements", default_value = "1", value_name = "NUMBER|PERCENTAGE")]
    pub max_unhealthy_replacements: ReplacementLimit,

    /// The same limit for the machines of all deployments in a zone (label topology.kubernetes.io/zone of the node template);
    /// no limit by default
    #[arg(long = "machine-safety-max-unhealthy-replacements-per-zone", value_name = "NUMBER|PERCENTAGE")]
    pub max_unhealthy_replacements_per_zone: Option<ReplacementLimit>,

    /// Node conditions that make a machine unhealthy when true, separated by commas without spaces
    #[arg(
        long,
        default_value = "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable",
        value_name = "TYPE,…"
    )]
    pub node_conditions: NodeConditions,

    /// Value of the field auth-extra-groups of bootstrap tokens
    #[arg(long, default_value = "", value_name = "GROUP,…")]
    pub bootstrap_token_auth_extra_groups: String,

    /// Longest time between two attempts after a stock-out or an exhausted quota; 0 means 10m
    #[arg(long, default_value = "10m", value_parser = value::exhausted_retry)]
    pub resource_exhausted_retry: Duration,

    /// Metrics of each machine, API server and cache: always, never, or auto (for several namespaces aggregates above
    /// 1,000 machines and 50 clusters)
    #[arg(long, default_value = "auto", value_name = "CHOICE", value_parser = value::machine_series)]
    pub machine_series: MachineSeries,
}

/// Types of node conditions that are unhealthy when true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConditions(Vec<String>);

impl NodeConditions {
    /// In the given order.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}

/// Spaces and empty parts are kept, as in Go; they match no condition.
impl FromStr for NodeConditions {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.split(',').map(str::to_owned).collect()))
    }
}
