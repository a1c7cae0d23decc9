//! Types and reasons of conditions that several kinds have: exact strings that other programs read.

/// Summary of the others. Core mirrors it as `InfrastructureReady`.
pub(in crate::capi) const READY: &str = "Ready";
/// Whether reconciliation of the object is paused.
pub(in crate::capi) const PAUSED: &str = "Paused";

/// Of `Paused`.
pub(in crate::capi) const NOT_PAUSED: &str = "NotPaused";
/// Core has not made its object an owner, or the owner cannot be read or does not exist.
pub(in crate::capi) const WAITING_FOR_OWNER: &str = "WaitingForOwner";
/// The Cluster does not exist.
pub(in crate::capi) const WAITING_FOR_CLUSTER_OBJECT: &str = "WaitingForCluster";
/// After a pause of the Cluster, or a start, the native objects have not been read.
pub(in crate::capi) const WAITING_FOR_NATIVE_OBJECTS: &str = "WaitingForMCMObjects";
/// A Go Machine Controller Manager would reconcile the native Machines.
pub(in crate::capi) const NATIVE_MANAGER: &str = "MachineControllerManagerActive";
