//! MCMClusters: the endpoint and the failure domains of a Cluster. A whole cluster has no infrastructure, so it is
//! provisioned once the named objects exist.

mod apply;
mod cache;
pub(super) use cache::CACHE;
mod observe;
mod plan;
mod register;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

use crate::object::{conditions, view::ObjectView};
use mcm_conversion::types::{Cluster, MCMCluster, MCMClusterStatus};

pub(super) use register::KIND;

/// The input of a plan for an MCMCluster.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The object.
    pub object: Arc<MCMCluster>,
    /// The Cluster that owns it; `None` if no owner reference names one.
    pub cluster: Option<ObjectView<Cluster>>,
    /// The Secret with credentials; `None` if none is named.
    pub credentials: Option<ObjectView<()>>,
    /// The classes that failure domains name.
    pub classes: BTreeMap<String, ObjectView<()>>,
    /// Value of `--watch-filter`.
    pub watch_filter: Option<String>,
    /// The time.
    pub now: Timestamp,
}

/// One operation of a plan. Patches are JSON merge patches with the resource version as precondition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Patch of the MCMCluster.
    PatchSelf(Value),
    /// Write its status.
    WriteStatus(Box<MCMClusterStatus>),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PatchSelf(patch) => write!(f, "patch {patch}"),
            Self::WriteStatus(status) => {
                write!(f, "write status")?;
                if status.initialization.provisioned == Some(true) {
                    write!(f, ", provisioned")?;
                }
                conditions::told(f, &status.conditions)
            }
        }
    }
}
