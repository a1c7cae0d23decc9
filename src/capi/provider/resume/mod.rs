//! Clusters whose native objects may be touched again after a pause.
//!
//! The end of a pause and the objects of the Cluster come by different watches. `clusterctl move` creates objects and
//! then ends the pause; a set that learned of the end before it learned of its Machines would create others. So native
//! objects of pools stay untouched until all of them were read live once after the end of the pause was seen.

mod apply;
mod observe;
mod plan;
mod register;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt};

pub(super) use apply::ResumedClusters;
pub(super) use register::KIND;

/// The input of a plan.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// UIDs of Clusters with pools that are not paused, and whose objects were not read since the pause.
    pub unread: BTreeSet<String>,
}

/// One operation of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Read all native objects live; then those of the Clusters with these UIDs are known.
    Read(BTreeSet<String>),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(clusters) => write!(f, "read all MCM objects live, for {} Clusters", clusters.len()),
        }
    }
}
