//! Clusters: only their condition `StandIn` is written. The stand-in supports neither control planes nor topologies.

mod apply;
mod observe;
mod plan;
mod register;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use jiff::Timestamp;

use super::standing::StandInStatus;
use crate::object::conditions;
use mcm_conversion::types::{Cluster, ClusterStatus};

pub(super) use register::KIND;

/// The input of a plan for a Cluster.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The right of the stand-in to act.
    pub standing: StandInStatus,
    /// The object.
    pub object: Arc<Cluster>,
    /// Value of `--watch-filter`.
    pub watch_filter: Option<String>,
    /// The time.
    pub now: Timestamp,
}

/// One operation of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Write its status.
    WriteStatus(Box<ClusterStatus>),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteStatus(status) => {
                f.write_str("write status")?;
                conditions::told(f, &status.conditions)
            }
        }
    }
}
