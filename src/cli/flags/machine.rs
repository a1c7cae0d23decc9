//! Flags of the controllers of machines and classes.

use std::{convert::Infallible, str::FromStr, time::Duration};

use clap::{ArgAction, Args};

use super::value;
use crate::safety::meltdown::Limit;

/// Defaults for machines, which a machine can override in its spec.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Machines")]
pub struct MachineOptions {
    /// How long a new machine may take to join before it fails
    #[arg(long, default_value = "20m", value_name = "DURATION", value_parser = value::duration)]
    pub machine_creation_timeout: Duration,

    /// How long a machine may be unhealthy before it fails
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = value::duration)]
    pub machine_health_timeout: Duration,

    /// How long a drain may take before it is forced
    #[arg(long, default_value = "2h", value_name = "DURATION", value_parser = value::duration)]
    pub machine_drain_timeout: Duration,

    /// How long an in-place update may take before it fails
    #[arg(
        long = "machine-inplace-update-timeout",
        default_value = "20m",
        value_name = "DURATION",
        value_parser = value::duration
    )]
    pub machine_in_place_update_timeout: Duration,

    /// For how many periods of 20s a pod is evicted before it is deleted
    #[arg(long, default_value = "360", value_name = "COUNT", value_parser = value::count)]
    pub machine_max_evict_retries: u32,

    /// How long the volumes of one evicted pod may take to detach, on top of its grace period
    #[arg(long, default_value = "2m", value_name = "DURATION", value_parser = value::duration)]
    pub machine_pv_detach_timeout: Duration,

    /// How long the volumes of one evicted pod may take to attach elsewhere
    #[arg(long, default_value = "90s", value_name = "DURATION", value_parser = value::duration)]
    pub machine_pv_reattach_timeout: Duration,

    /// How long a preserved machine is kept
    #[arg(long, default_value = "96h", value_name = "DURATION", value_parser = value::duration)]
    pub machine_preserve_timeout: Duration,

    /// How long an API server may be unreachable before machines are frozen
    #[arg(
        long = "machine-safety-apiserver-statuscheck-timeout",
        default_value = "30s",
        value_name = "DURATION",
        value_parser = value::duration
    )]
    pub api_server_check_timeout: Duration,

    /// How often the API servers are checked; not less than the timeout
    #[arg(
        long = "machine-safety-apiserver-statuscheck-period",
        default_value = "1m",
        value_name = "DURATION",
        value_parser = value::duration
    )]
    pub api_server_check_period: Duration,

    /// How often orphan VMs are collected
    #[arg(
        long = "machine-safety-orphan-vms-period",
        default_value = "15m",
        value_name = "DURATION",
        value_parser = value::duration
    )]
    pub orphan_vms_period: Duration,

    /// How long a VM must have been without a machine before it is deleted; at least one period
    #[arg(
        long = "machine-safety-orphan-vms-minimum-age",
        default_value = "10m",
        value_name = "DURATION",
        value_parser = value::duration
    )]
    pub orphan_vms_minimum_age: Duration,

    /// Report orphan VMs and delete none
    #[arg(
        long = "machine-safety-orphan-vms-dry-run",
        value_name = "BOOL",
        default_value = "false",
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set,
        value_parser = value::boolean
    )]
    pub orphan_vms_dry_run: bool,

    /// How many machines of a deployment may be out of service before no further unhealthy one is replaced; a number, or a
    /// percentage of its machines
    #[arg(long = "machine-safety-max-unhealthy-replacements", default_value = "1", value_name = "NUMBER|PERCENTAGE")]
    pub max_unhealthy_replacements: Limit,

    /// The same for the machines in a zone, of all deployments (label topology.kubernetes.io/zone of the node template); no
    /// limit by default
    #[arg(long = "machine-safety-max-unhealthy-replacements-per-zone", value_name = "NUMBER|PERCENTAGE")]
    pub max_unhealthy_replacements_per_zone: Option<Limit>,

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

    /// Retry period after a stock-out or an exhausted quota; 0 means 10m
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = value::exhausted_retry)]
    pub resource_exhausted_retry: Duration,
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
