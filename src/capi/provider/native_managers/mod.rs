//! Machine Controller Managers beside the provider. A Go MCM considers every native Machine of its namespace its own,
//! so the provider touches nothing in a namespace whose Leases a Go MCM holds. `mcm run` does not touch the provider's
//! objects.
//!
//! The holder of a Lease is decided from its renewals, by our clock: times in a Lease are for users.

mod apply;
mod leases;
#[cfg(test)]
mod tests;

pub(super) use apply::{KIND, ManagerRegistry};
