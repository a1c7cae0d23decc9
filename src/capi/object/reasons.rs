//! Types and reasons of conditions that several kinds have: exact strings that other programs read.

/// Summary of the others. Core mirrors it as `InfrastructureReady`.
pub(crate) const READY: &str = "Ready";
/// Reconciliation of the object is paused.
pub(crate) const PAUSED: &str = "Paused";

/// Of `Paused`.
pub(crate) const NOT_PAUSED: &str = "NotPaused";
/// Core has not made its object an owner, or the owner cannot be read or does not exist.
pub(crate) const WAITING_FOR_OWNER: &str = "WaitingForOwner";
/// The Cluster does not exist.
pub(crate) const WAITING_FOR_CLUSTER_OBJECT: &str = "WaitingForCluster";
/// After a pause of the Cluster, or a start, the native objects have not been read.
pub(crate) const WAITING_FOR_NATIVE_OBJECTS: &str = "WaitingForMCMObjects";
/// A Go Machine Controller Manager would reconcile the native Machines.
pub(crate) const NATIVE_MANAGER: &str = "MachineControllerManagerActive";
