//! The controllers, one folder per kind. Each one observes, plans (pure) and applies; `crate::runtime` contains the
//! loop.

pub mod api_servers;
pub mod machine;
pub mod machine_class;
pub mod machine_deployment;
pub mod machine_set;
pub mod node;
pub mod object;
pub mod orphans;
pub mod overshoot;
pub mod secret;

#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;

use crate::{
    driver::Catalogue,
    runtime::cell::{self, Role},
    safety::api_server::Probing,
};

/// A kind that a cell can reconcile.
pub(crate) type Kind = cell::Kind<Settings>;

/// Sets and deployments: what the Go program `machine-controller-manager` does.
pub(crate) const SETS: Role = Role { name: "sets", lease: "machine-controller-manager" };
/// Machines, with their classes, Secrets and Nodes: what the Go program `machine-controller` does.
pub(crate) const MACHINES: Role = Role { name: "machines", lease: "machine-controller" };

/// All kinds. The order does not matter.
pub(crate) const KINDS: &[Kind] = &[
    machine_deployment::KIND,
    machine_set::KIND,
    overshoot::KIND,
    machine::KIND,
    machine_class::KIND,
    secret::KIND,
    node::KIND,
    orphans::KIND,
    api_servers::KIND,
];

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
