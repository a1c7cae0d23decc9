//! The workload clusters of Clusters with pools. Their Nodes are those of native Machines, so each is a target of the
//! cell, connected with the kubeconfig that core keeps in a Secret, from the first pool to the last.

mod apply;
mod observe;
mod plan;
mod register;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use kube::ResourceExt;

use crate::object::view::ObjectView;
use mcm_api::node::Node;
use mcm_conversion::types::Cluster;

pub(super) use apply::{ConnectionAttempts, target_of};
pub(super) use register::KIND;

/// The input of a plan for the workload cluster of a Cluster.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The Cluster.
    pub cluster: ObjectView<Cluster>,
    /// It has pools.
    pub has_pools: bool,
    /// Resource version of the Secret with its kubeconfig.
    pub kubeconfig: ObjectView<String>,
    /// Input and result of the last attempt.
    pub attempt: Option<KubeconfigAttempt>,
    /// Nodes there with our finalizer, whose native Machine does not exist any more.
    pub left: Vec<Arc<Node>>,
    /// A Node with our finalizer has a Machine that cannot be read.
    pub is_undecided: bool,
}

/// An attempt to use a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KubeconfigAttempt {
    /// Resource version of its Secret; empty if there was none.
    pub version: String,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// One operation of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Connect with the kubeconfig of this resource version, in place of an earlier one.
    Connect(String),
    /// Record that there is no kubeconfig.
    Miss,
    /// Remove our finalizer from a Node.
    ReleaseNode(Arc<Node>),
    /// Disconnect.
    Disconnect,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(version) => write!(f, "connect with the kubeconfig of version {version}"),
            Self::Miss => f.write_str("record that there is no kubeconfig"),
            Self::ReleaseNode(node) => write!(f, "remove the finalizer of Node {}", node.name_any()),
            Self::Disconnect => f.write_str("disconnect"),
        }
    }
}
