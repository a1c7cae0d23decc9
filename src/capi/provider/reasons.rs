//! Types and reasons of conditions: exact strings that other programs read. Reasons of a failed cloud call are its codes.

pub(super) use crate::object::reasons::READY;

/// The MachineClass can be used in the zone of the Machine.
pub(super) const CLASS_RESOLVED: &str = "ClassResolved";
/// The bootstrap data of the VM exists.
pub(super) const BOOTSTRAP_DATA_AVAILABLE: &str = "BootstrapDataAvailable";
/// The native Machine exists and belongs to the object.
pub(super) const NATIVE_MACHINE_SYNCED: &str = "NativeMachineSynced";
/// The native deployments of a pool exist and belong to it.
pub(super) const NATIVE_DEPLOYMENT_SYNCED: &str = "NativeDeploymentSynced";
/// The Nodes of the workload cluster can be read.
pub(super) const WORKLOAD_CLUSTER_CONNECTED: &str = "WorkloadClusterConnected";
/// All machines of a pool are available and have the current template.
pub(super) const MACHINES_AVAILABLE: &str = "MachinesAvailable";
/// The VM exists.
pub(super) const VM_PROVISIONED: &str = "VMProvisioned";

/// The VM of a control plane machine is registered in the load balancer that the MCMCluster names.
pub(super) const LOAD_BALANCER_REGISTERED: &str = "LoadBalancerRegistered";

/// The VM is registered in the load balancer.
pub(super) const REGISTERED: &str = "Registered";
/// The VM has to be registered in the load balancer.
pub(super) const REGISTERING: &str = "Registering";
/// The VM is registered in the load balancer once its Node and its API server run.
pub(super) const WAITING_FOR_NODE: &str = "WaitingForNode";
/// The VM has to leave the load balancer.
pub(super) const DEREGISTERING: &str = "Deregistering";
/// The VM is no member of a load balancer any more.
pub(super) const DEREGISTERED: &str = "Deregistered";
/// The driver of the VM does not serve the load balancer.
pub(super) const LOAD_BALANCER_UNSUPPORTED: &str = "LoadBalancerUnsupported";
/// Its Machine or MachinePool is being deleted or deleted. While it is not, an admission policy refuses to
/// delete the object: core would not drain the Node any more.
pub(super) const DELETABLE: &str = "Deletable";

/// Of `Deletable`.
pub(super) const MACHINE_DELETING: &str = "MachineDeleting";
/// Of `Deletable`.
pub(super) const MACHINE_IN_USE: &str = "MachineInUse";
/// Of `Deletable`.
pub(super) const POOL_DELETING: &str = "MachinePoolDeleting";
/// Of `Deletable`.
pub(super) const POOL_IN_USE: &str = "MachinePoolInUse";
/// All prerequisites exist.
pub(super) const PROVISIONED: &str = "Provisioned";
/// A prerequisite does not exist yet.
pub(super) const NOT_PROVISIONED: &str = "NotProvisioned";
/// The object is being deleted.
pub(super) const DELETING: &str = "Deleting";
/// The infrastructure of the Cluster is not complete.
pub(super) const WAITING_FOR_CLUSTER: &str = "WaitingForClusterInfrastructureReady";
/// The Machine has no bootstrap data.
pub(super) const WAITING_FOR_BOOTSTRAP_DATA: &str = "WaitingForBootstrapData";
/// Neither the MCMCluster nor its Cluster has the address of the API server.
pub(super) const WAITING_FOR_ENDPOINT: &str = "WaitingForControlPlaneEndpoint";
/// The infrastructure of the Cluster, of another provider, lacks the subnet or security groups that the class leaves to it.
pub(super) const WAITING_FOR_NETWORK: &str = "WaitingForClusterNetwork";
/// The bootstrap data exists, or the VM boots without it.
pub(super) const AVAILABLE: &str = "Available";
/// The class exists and fits.
pub(super) const RESOLVED: &str = "Resolved";
/// The named class does not exist.
pub(super) const CLASS_MISSING: &str = "ClassMissing";
/// No class for the zone of the Machine.
pub(super) const FAILURE_DOMAIN_UNAVAILABLE: &str = "FailureDomainUnavailable";
/// The named Secret does not exist.
pub(super) const SECRET_MISSING: &str = "SecretMissing";
/// An object cannot be read at the moment.
pub(super) const UNREADABLE: &str = "Unreadable";
/// The native Machine exists and belongs to the object.
pub(super) const SYNCED: &str = "Synced";
/// Another object has the name of the native Machine or its class.
pub(super) const NAME_TAKEN: &str = "NameTaken";
/// Another native Machine has the VM.
pub(super) const VM_TAKEN: &str = "VMTaken";
/// The VM existed, and its ID was lost.
pub(super) const VM_LOST: &str = "VMLost";
/// Condition of a native Machine without a target cluster: whether its VM exists and runs.
pub(super) const VM_AVAILABLE: &str = "VMAvailable";
/// The VM is being created.
pub(super) const CREATING: &str = "Creating";
/// The ID of the VM cannot be written in the form of its Node.
pub(super) const PROVIDER_ID_UNKNOWN: &str = "ProviderIDUnknown";
/// The Nodes of the workload cluster can be read.
pub(super) const CONNECTED: &str = "Connected";
/// They cannot be read.
pub(super) const NOT_CONNECTED: &str = "NotConnected";
/// The MachinePool would set the number of machines of a deployment that it only shows.
pub(super) const REPLICAS_NOT_MANAGED: &str = "ReplicasNotManagedElsewhere";
/// Machines of a pool are being created, replaced or deleted.
pub(super) const ROLLING_OUT: &str = "RollingOut";
/// A failure without a code.
pub(super) const FAILED: &str = "Failed";
