//! One struct per running command.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use super::{DriverOptions, GenericOptions, MachineOptions, RolloutOptions, value};
use crate::process::{NamespaceSelector, PlaneSource};

/// Default of workers per queue of sets and deployments.
const DEFAULT_SET_WORKERS: usize = 10;
/// Default of workers per queue of machines.
const DEFAULT_MACHINE_WORKERS: usize = 50;

/// All flags of `machine-controller-manager`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(mut_arg("format", |format| format.default_value("klog")))]
pub struct ControllerManagerOptions {
    /// Port of the HTTP endpoints
    #[arg(help_heading = "HTTP endpoints", long, default_value = "10258", value_parser = value::port)]
    pub port: u16,

    /// Sets and deployments.
    #[command(flatten)]
    pub rollout: RolloutOptions,

    /// Workers per queue
    #[arg(
        help_heading = "Sets and deployments",
        long,
        default_value = "10",
        value_name = "COUNT",
        value_parser = value::workers
    )]
    pub concurrent_syncs: usize,

    /// Clusters, endpoints, leader election, logs.
    #[command(flatten)]
    pub generic: GenericOptions,
}

/// All flags of `machine-controller`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(mut_arg("format", |format| format.default_value("klog")))]
pub struct MachineControllerOptions {
    /// Port of the HTTP endpoints
    #[arg(help_heading = "HTTP endpoints", long, default_value = "10259", value_parser = value::port)]
    pub port: u16,

    /// Machines and classes.
    #[command(flatten)]
    pub machine: MachineOptions,

    /// Workers per queue
    #[arg(help_heading = "Machines", long, default_value = "50", value_name = "COUNT", value_parser = value::workers)]
    pub concurrent_syncs: usize,

    /// Drivers.
    #[command(flatten)]
    pub driver: DriverOptions,

    /// Clusters, endpoints, leader election, logs.
    #[command(flatten)]
    pub generic: GenericOptions,
}

/// All flags of `run`, which is both of the others in one process.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct RunOptions {
    /// Port of the HTTP endpoints
    #[arg(help_heading = "HTTP endpoints", long, default_value = "10258", value_parser = value::port)]
    pub port: u16,

    /// Workers per queue, for all controllers [default: 10 for sets and deployments, 50 for machines]
    #[arg(help_heading = "Clusters", long, value_name = "COUNT", value_parser = value::workers)]
    pub concurrent_syncs: Option<usize>,

    /// YAML file with the control namespaces to serve and their target clusters; it is reloaded when it changes
    #[arg(help_heading = "Clusters", long, value_name = "FILE")]
    pub cells: Option<PathBuf>,

    /// Serve the control planes that are found: gardener, cluster-api, or folder=DIR (a kubeconfig per namespace)
    #[arg(
        help_heading = "Clusters",
        long,
        value_name = "SOURCE",
        conflicts_with = "cells",
        value_parser = value::fleet
    )]
    pub fleet: Option<PlaneSource>,

    /// Labels of the namespaces that --fleet serves, such as env=test,!example.com/other
    #[arg(help_heading = "Clusters", long, value_name = "LABELS", requires = "fleet", value_parser = value::selector)]
    pub fleet_selector: Option<NamespaceSelector>,

    /// Replicas with the same name share the control planes of --fleet [default: default]
    #[arg(help_heading = "Clusters", long, value_name = "NAME", requires = "fleet", value_parser = value::fleet_name)]
    pub fleet_name: Option<String>,

    /// Namespace of the Leases with which replicas of --fleet know each other [default: that of this pod]
    #[arg(help_heading = "Clusters", long, value_name = "NAMESPACE", requires = "fleet",
        value_parser = value::namespace)]
    pub fleet_namespace: Option<String>,

    /// Sets and deployments.
    #[command(flatten)]
    pub rollout: RolloutOptions,

    /// Machines and classes.
    #[command(flatten)]
    pub machine: MachineOptions,

    /// Drivers.
    #[command(flatten)]
    pub driver: DriverOptions,

    /// Clusters, endpoints, leader election, logs.
    #[command(flatten)]
    pub generic: GenericOptions,
}

/// The flags of a Go program, as a manifest has them.
pub struct GoFlags {
    /// Number of flags.
    pub count: usize,
    /// Flags that we do not have.
    pub unknown: Vec<String>,
    /// Flags that we accept and ignore.
    pub without_effect: Vec<String>,
    /// Their meaning, or the error in them.
    pub options: Result<Box<GenericOptions>, String>,
}

/// Reads the arguments of the Go program of a name; `None` for any other name.
pub type ReadFlags = fn(&str, &[String]) -> Option<GoFlags>;

impl ControllerManagerOptions {
    /// Listen address of the HTTP endpoints.
    pub fn listen(&self) -> SocketAddr {
        SocketAddr::new(self.generic.address, self.port)
    }
}

impl MachineControllerOptions {
    /// Listen address of the HTTP endpoints.
    pub fn listen(&self) -> SocketAddr {
        SocketAddr::new(self.generic.address, self.port)
    }
}

impl RunOptions {
    /// Listen address of the HTTP endpoints.
    pub fn listen(&self) -> SocketAddr {
        SocketAddr::new(self.generic.address, self.port)
    }

    /// Workers per queue of sets and deployments.
    pub fn set_workers(&self) -> usize {
        self.concurrent_syncs.unwrap_or(DEFAULT_SET_WORKERS)
    }

    /// Workers per queue of machines and classes.
    pub fn machine_workers(&self) -> usize {
        self.concurrent_syncs.unwrap_or(DEFAULT_MACHINE_WORKERS)
    }
}
