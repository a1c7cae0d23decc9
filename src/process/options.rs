use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use crate::{
    controllers::{machine, machine_deployment, node},
    runtime::{
        cell::{Role, Scope},
        kubeconfig::{ControlKubeconfig, Fallback, TargetKubeconfig, UserAgent},
        leader::Timing,
        limiter::Rate,
    },
};

/// What the operator chose for the process.
#[derive(Clone)]
pub(crate) struct ProcessOptions {
    /// How the API servers see us.
    pub agent: UserAgent,
    /// Where a kubeconfig comes from if none is given.
    pub fallback: Fallback,
    /// What this process reconciles.
    pub roles: Vec<Role>,
    /// Where the HTTP endpoints listen.
    pub listen: SocketAddr,
    /// Serve profiles.
    pub profiling: bool,
    /// The limit of each client for work.
    pub rate: Rate,
    /// When leases are taken and lost; `None` works without leases.
    pub leases: Option<Timing>,
    /// For Machines.
    pub machine: machine::Policy,
    /// For MachineDeployments; whether there is a target is the cell's.
    pub deployment: machine_deployment::Policy,
    /// For Nodes.
    pub node: node::Policy,
    /// How many Machines may call the cloud at once, for creations and deletions each.
    pub slots: usize,
    /// The clouds; `None` if this process calls none.
    pub drivers: Option<DriverChoice>,
    /// The cells.
    pub cells: Cells,
}

/// Which clouds a process serves.
#[derive(Clone, Debug)]
pub(crate) struct DriverChoice {
    /// Only the classes of this provider.
    pub provider: Option<String>,
    /// Where the simulated cloud is; inside this process if not given.
    pub simulated_cloud: Option<String>,
}

/// The cells of a process.
#[derive(Clone)]
pub(crate) enum Cells {
    /// One, and the process ends with it.
    One(CellOptions),
    /// Those of a file, which is read again when it changes.
    File(PathBuf),
}

/// One control namespace and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CellOptions {
    /// Its name in logs.
    pub name: String,
    /// The control namespace, or all of them.
    pub scope: Scope,
    /// The namespace of its leases.
    pub leases: String,
    /// How the control cluster is reached.
    pub control: ControlKubeconfig,
    /// How the target clusters are reached.
    pub targets: TargetKubeconfigs,
}

/// The target clusters of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetKubeconfigs {
    /// At most one, for all Machines.
    Same(TargetKubeconfig),
    /// One for each value of a label of Machines.
    ByLabel {
        /// The label.
        label: String,
        /// Paths of kubeconfigs, by the value of the label.
        paths: BTreeMap<String, PathBuf>,
    },
}
