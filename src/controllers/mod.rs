//! One folder per kind. Each observes into a snapshot, plans (pure), and applies; the loop is the runtime's.

pub mod machine;
pub mod machine_class;
pub mod machine_deployment;
pub mod machine_set;
pub mod node;
pub mod object;
pub mod secret;

#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;

use crate::{
    driver::Catalogue,
    runtime::cell::{self, Role},
};

/// A kind of this project.
pub(crate) type Kind = cell::Kind<Settings>;

/// Sets and deployments: what the Go program `machine-controller-manager` does.
pub(crate) const SETS: Role = Role { name: "sets", lease: "machine-controller-manager" };
/// Machines, with their classes, Secrets and Nodes: what the Go program `machine-controller` does.
pub(crate) const MACHINES: Role = Role { name: "machines", lease: "machine-controller" };

/// Every kind there is. Order does not matter.
pub(crate) const KINDS: &[Kind] =
    &[machine_deployment::KIND, machine_set::KIND, machine::KIND, machine_class::KIND, secret::KIND, node::KIND];

/// What the operator chose, kind by kind.
#[derive(Clone)]
pub(crate) struct Settings {
    /// For Machines.
    pub machine: machine::Policy,
    /// For MachineDeployments.
    pub deployment: machine_deployment::Policy,
    /// For Nodes.
    pub node: node::Policy,
    /// The clouds.
    pub drivers: Arc<Catalogue>,
    /// How many Machines of one account may call the cloud at once, for creations and deletions each.
    pub slots: usize,
}
