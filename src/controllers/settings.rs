//! The roles of the kinds, and their settings.

use std::sync::Arc;

use super::{machine, machine_deployment, node, orphans, overshoot};
use crate::{driver_host::Catalogue, runtime::cell::{self, Role}, safety::api_server::Probing};

/// A kind that a cell can reconcile.
pub(crate) type Kind = cell::Kind<Settings>;

/// Sets and deployments: the kinds of the Go program `machine-controller-manager`.
pub(crate) const SETS: Role = Role { name: "sets", lease: "machine-controller-manager" };

/// Machines, with their classes, Secrets and Nodes: the kinds of the Go program `machine-controller`.
pub(crate) const MACHINES: Role = Role { name: "machines", lease: "machine-controller" };

/// Settings from the flags, by kind.
#[derive(Clone)]
pub(crate) struct Settings {
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
