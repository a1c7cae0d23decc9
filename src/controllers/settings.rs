//! The roles of the kinds, and their settings.

use std::sync::Arc;

use super::{machine, machine_deployment, node, orphans, overshoot};
use mcm_driver_host::DriverCatalogue;
use mcm_rules::safety::api_server::ProbeTiming;
use mcm_runtime::{cell, role::ControllerRole};

/// A kind that a cell can reconcile.
pub type Kind = cell::Kind<Settings>;

/// Sets and deployments: the kinds of the Go program `machine-controller-manager`.
pub const SETS: ControllerRole = ControllerRole { name: "sets", lease: "machine-controller-manager" };

/// Machines, with their classes, Secrets and Nodes: the kinds of the Go program `machine-controller`.
pub const MACHINES: ControllerRole = ControllerRole { name: "machines", lease: "machine-controller" };

/// Settings from the flags, by kind.
#[derive(Clone)]
pub struct Settings {
    /// For Machines.
    pub machine: machine::MachinePolicy,
    /// For MachineDeployments.
    pub deployment: machine_deployment::DeploymentPolicy,
    /// For the overshoot freeze.
    pub overshoot: overshoot::OvershootPolicy,
    /// For Nodes.
    pub node: node::NodePolicy,
    /// For the probes of API servers.
    pub probing: ProbeTiming,
    /// For the orphan collector.
    pub orphans: orphans::OrphanPolicy,
    /// The drivers.
    pub drivers: Arc<DriverCatalogue>,
    /// Slots per account, for creations and for deletions each.
    pub slots: usize,
}
