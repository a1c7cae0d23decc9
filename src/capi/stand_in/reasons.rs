//! Types and reasons of conditions: exact strings that other programs read.

/// The stand-in serves the object.
pub(super) const STAND_IN: &str = "StandIn";
/// The other side matches the side with the authority.
pub(super) const SYNCHRONIZED: &str = "Synchronized";
/// Enough machines of an owner are available, or the Machine is.
pub(super) const AVAILABLE: &str = "Available";
/// Machines with an old template are being replaced.
pub(super) const ROLLING_OUT: &str = "RollingOut";
/// There are fewer machines than desired.
pub(super) const SCALING_UP: &str = "ScalingUp";
/// There are more machines than desired.
pub(super) const SCALING_DOWN: &str = "ScalingDown";
/// The object is being deleted.
pub(super) const DELETING: &str = "Deleting";
/// The Machine is ready.
pub(super) const READY: &str = "Ready";
/// The VM exists.
pub(super) const INFRASTRUCTURE_READY: &str = "InfrastructureReady";
/// The Node is healthy.
pub(super) const NODE_HEALTHY: &str = "NodeHealthy";
/// The Machine has the current template.
pub(super) const UP_TO_DATE: &str = "UpToDate";

/// Of `StandIn`: the stand-in serves the object.
pub(super) const SERVING: &str = "Serving";
/// Of `StandIn`: Cluster API core is installed.
pub(super) const CORE_PROVIDER_PRESENT: &str = "CoreProviderPresent";
/// Of `StandIn`: it could not be read whether Cluster API core is installed.
pub(super) const CORE_PROVIDER_UNKNOWN: &str = "CoreProviderUnknown";
/// Of `StandIn`: the MachineDeployment vanished, and the native one stays.
pub(super) const MACHINE_DEPLOYMENT_MISSING: &str = "MachineDeploymentMissing";
/// Of `StandIn`: the object needs a ClusterClass.
pub(super) const TOPOLOGY_UNSUPPORTED: &str = "TopologyUnsupported";
/// Of `StandIn`: the object needs a control plane provider.
pub(super) const CONTROL_PLANE_UNSUPPORTED: &str = "ControlPlaneUnsupported";
/// Of `StandIn`: only objects of a MachineDeployment are served.
pub(super) const UNOWNED_UNSUPPORTED: &str = "UnownedUnsupported";
/// Of `Synchronized`.
pub(super) const RESOURCE_SYNCHRONIZED: &str = "ResourceSynchronized";
/// Of `Synchronized`: the message has the paths.
pub(super) const FAILED_TO_CONVERT_TO_NATIVE: &str = "FailedToConvertToNative";
/// Of `Synchronized`: the message has the paths.
pub(super) const FAILED_TO_CONVERT_TO_CAPI: &str = "FailedToConvertToCAPI";
/// Of `Synchronized`: template, class or Secret is missing.
pub(super) const FAILED_TO_READ_INFRASTRUCTURE: &str = "FailedToReadInfrastructure";
/// Of `Synchronized`: the native object of the name belongs to another client.
pub(super) const NAME_TAKEN: &str = "NameTaken";
/// The VM exists.
pub(super) const PROVISIONED: &str = "Provisioned";
/// The VM does not exist yet.
pub(super) const NOT_PROVISIONED: &str = "NotProvisioned";
/// A failure without a code.
pub(super) const FAILED: &str = "Failed";
/// The Node is healthy.
pub(super) const HEALTHY: &str = "Healthy";
/// The Node is not healthy, or does not exist.
pub(super) const NOT_HEALTHY: &str = "NotHealthy";

/// The reason of a condition that only confirms or denies its type.
pub(super) fn whether(type_: &str, is_true: bool) -> String {
    if is_true { type_.to_owned() } else { format!("Not{type_}") }
}
