//! The roles of a process.

/// The Lease of the provider for Cluster API, under the name that users of Cluster API expect.
pub const PROVIDER_LEASE: &str = "controller-leader-election-capmcm";

/// A role: kinds that are reconciled under one Lease, that of the corresponding Go program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerRole {
    /// Its name in [`Kind::role`](super::cell::Kind::role).
    pub name: &'static str,
    /// The name of its lease.
    pub lease: &'static str,
}
