//! Machine Controller Managers beside the provider. A Go MCM takes every native Machine of its namespace for its own, so the
//! provider touches nothing in a namespace whose Leases one holds. `mcm run` leaves what belongs to the provider alone.
//!
//! Whether a Lease is held is seen from its renewals, with the own clock: times in a Lease are for people.

mod apply;
mod leases;
#[cfg(test)]
mod tests;

pub(super) use apply::{KIND, Managers};

/// Why nothing may be done in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// What has to happen; completes "waiting for".
    pub on: String,
    /// It is known, and worth telling. At the start it is only not known yet whether there is one.
    pub is_certain: bool,
}
