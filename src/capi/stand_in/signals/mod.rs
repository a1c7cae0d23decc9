//! What shows that core is there, besides its definitions: its entry in the inventory of clusterctl, and the Lease of its
//! manager. Both are read at the start, whenever a definition of core changes, and from time to time.

mod apply;
mod observe;
mod plan;
mod register;
#[cfg(test)]
mod tests;

use std::fmt;

use jiff::Timestamp;

pub(super) use apply::Core;
pub(super) use register::KIND;
use register::Signals;

/// The input of a plan.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// This reconcile has looked.
    pub has_looked: bool,
    /// The last look failed.
    pub has_failed: bool,
    /// The time.
    pub now: Timestamp,
}

/// One operation of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Look live.
    Look,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Look => f.write_str("look for core live"),
        }
    }
}
