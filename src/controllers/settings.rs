//! The roles of the kinds, and their settings.

use std::sync::Arc;

use super::{machine, machine_deployment, node, orphans, overshoot};
use mcm_driver_host::Catalogue;
use mcm_rules::safety::api_server::Probing;
use mcm_runtime::{cell, role::Role};

/// A kind that a cell can reconcile.
pub type Kind = cell::Kind<Settings>;

/// Sets and deployments: the kinds of the Go program `machine-controller-manager`.
pub const SETS: Role = Role { name: "sets", lease: "machine-controller-manager" };

/// Machines, with their classes, Secrets and Nodes: the kinds of the Go program `machine-controller`.
pub const MACHINES: Role = Role { name: "machines", lease: "machine-controller" };

/// Settings from the flags, by kind.
#[derive(Clone)]
pub struct Settings {
    /// For Machines.
    pub machine: machine::Policy,
    /// For MachineDeployments.
    pub deployment: machine_deployment::Policy,
    /// For the overshoot freeze.
    pub overshoot: overshoot::Policy,
    /// For Nodes.
    pub node: node::Policy,
    /// For the probes of API servers.
    pub probing: Probing,
    /// For the orphan collector.
    pub orphans: orphans::Policy,
    /// The drivers.
    pub drivers: Arc<Catalogue>,
    /// Slots per account, for creations and for deletions each.
    pub slots: usize,
}
