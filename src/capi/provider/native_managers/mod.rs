//! Machine Controller Managers beside the provider. A Go MCM takes every native Machine of its namespace for its own, so the
//! provider touches nothing in a namespace whose Leases one holds. `mcm run` leaves what belongs to the provider alone.
//!
//! Whether a Lease is held is seen from its renewals, with the own clock: times in a Lease are for people.

mod apply;
mod leases;
mod observe;
mod plan;
mod register;
#[cfg(test)]
mod tests;

use std::fmt;

use jiff::{SignedDuration, Timestamp};

pub(super) use apply::Managers;
pub(super) use register::KIND;
use register::NativeManagers;

/// Why nothing may be done in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// What has to happen; completes "waiting for".
    pub on: String,
    /// It is known, and worth telling. At the start it is only not known yet whether there is one.
    pub is_certain: bool,
}

/// The input of a plan.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// This reconcile has looked.
    pub has_looked: bool,
    /// The last look failed.
    pub has_failed: bool,
    /// How long the Leases that seem to be held are valid without a renewal, at least.
    pub validity: Option<SignedDuration>,
    /// The time.
    pub now: Timestamp,
}

/// One operation of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Read the Leases live.
    Look,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Look => f.write_str("read the Leases of native managers live"),
        }
    }
}
