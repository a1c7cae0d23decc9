//! Reasons and condition types: exact strings that other programs read.

/// Declares an enum with a fixed string for each variant.
macro_rules! strings {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vmeta])* #[doc = concat!("`", $text, "`")] $variant),+ }
        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The exact text.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// The variant with a text.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str { self.as_str() }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.as_str()) }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

strings! {
    /// Condition types of MachineSets and MachineDeployments.
    ConditionType { Available = "Available", Progressing = "Progressing", ReplicaFailure = "ReplicaFailure", Frozen = "Frozen", Invalid = "Invalid", Paused = "Paused",
        SelectorsOverlap = "SelectorsOverlap", InSync = "InSync" }
}

strings! {
    /// Reasons of conditions on MachineSets and MachineDeployments.
    ConditionReason {
        FailedCreate = "FailedCreate", FailedDelete = "FailedDelete",
        OverShootingReplicaCount = "OverShootingReplicaCount", MachineDeploymentStateSync = "MachineDeploymentStateSync",
        MinimumReplicasAvailable = "MinimumReplicasAvailable", MinimumReplicasUnavailable = "MinimumReplicasUnavailable",
        NewMachineSetCreated = "NewMachineSetCreated", FoundNewMachineSet = "FoundNewMachineSet",
        MachineSetUpdated = "MachineSetUpdated", NewMachineSetAvailable = "NewMachineSetAvailable",
        MachineSetCreateError = "MachineSetCreateError", ProgressDeadlineExceeded = "ProgressDeadlineExceeded",
        DeploymentPaused = "DeploymentPaused", DeploymentResumed = "DeploymentResumed",
        InvalidSpec = "InvalidSpec", SelectorsOverlap = "SelectorsOverlap", Unsupported = "Unsupported", Migrating = "Migrating", VmKept = "VMKept", WriteUndone = "WriteUndone",
    }
}

strings! {
    /// Reasons of events.
    EventReason {
        SuccessfulCreate = "SuccessfulCreate", FailedCreate = "FailedCreate",
        SuccessfulDelete = "SuccessfulDelete", FailedDelete = "FailedDelete",
        ScalingMachineSet = "ScalingMachineSet", ReplicasRestored = "ReplicasRestored", MachineSetCreateError = "MachineSetCreateError",
        FrozeMachineSet = "FrozeMachineSet", UnfrozeMachineSet = "UnfrozeMachineSet",
        SelectingAll = "SelectingAll", SelectorsOverlap = "SelectorsOverlap", DeploymentRollback = "DeploymentRollback",
        DeploymentRollbackRevisionNotFound = "DeploymentRollbackRevisionNotFound",
        DeploymentRollbackTemplateUnchanged = "DeploymentRollbackTemplateUnchanged",
        InvalidSpec = "InvalidSpec", Unreadable = "Unreadable", Waiting = "Waiting",
        Created = "Created", CreateFailed = "CreateFailed", Joined = "Joined", Unhealthy = "Unhealthy", Recovered = "Recovered",
        Failed = "Failed", Draining = "Draining", DrainBlocked = "DrainBlocked", Drained = "Drained", Deleted = "Deleted", DeleteFailed = "DeleteFailed",
        InPlaceUpdating = "InPlaceUpdating", InPlaceUpdated = "InPlaceUpdated", InPlaceUpdateFailed = "InPlaceUpdateFailed",
        NodeRenamed = "NodeRenamed", NodeWriteRefused = "NodeWriteRefused", WriteUndone = "WriteUndone",
        Preserved = "Preserved", PreservationStopped = "PreservationStopped",
        OrphanFound = "OrphanFound", OrphanDeleted = "OrphanDeleted", OrphanKept = "OrphanKept",
        OrphanDraining = "OrphanDraining", VmMissing = "VMMissing",
        VmUnidentified = "VMUnidentified",
        LeaderElection = "LeaderElection",
        Provisioned = "Provisioned", NotProvisioned = "NotProvisioned", Creating = "Creating", Deleting = "Deleting", RollingOut = "RollingOut",
        WaitingForOwner = "WaitingForOwner", WaitingForCluster = "WaitingForCluster",
        WaitingForMCMObjects = "WaitingForMCMObjects",
        WaitingForClusterInfrastructureReady = "WaitingForClusterInfrastructureReady",
        WaitingForClusterNetwork = "WaitingForClusterNetwork",
        WaitingForBootstrapData = "WaitingForBootstrapData", WaitingForControlPlaneEndpoint = "WaitingForControlPlaneEndpoint",
        ClassMissing = "ClassMissing", FailureDomainUnavailable = "FailureDomainUnavailable", SecretMissing = "SecretMissing",
        NameTaken = "NameTaken", MachineControllerManagerActive = "MachineControllerManagerActive", VmTaken = "VMTaken", VmLost = "VMLost",
        Registering = "Registering", LoadBalancerUnsupported = "LoadBalancerUnsupported",
        VmNotFound = "VMNotFound", VmNotRunning = "VMNotRunning",
        ProviderIdUnknown = "ProviderIDUnknown", NotConnected = "NotConnected",
        ReplicasNotManagedElsewhere = "ReplicasNotManagedElsewhere",
    }
}

strings! {
    /// Conditions of a Machine that mcm adds to those of its Node.
    MachineConditionType { DrainBlocked = "DrainBlocked", Paused = "Paused", NodeInSync = "NodeInSync", VmAvailable = "VMAvailable" }
}

strings! {
    /// Reasons of the condition `VMAvailable` of a Machine without a target cluster.
    VmReason { NotFound = "VMNotFound", NotRunning = "VMNotRunning" }
}

strings! {
    /// Node conditions that mcm writes.
    NodeConditionType { Terminating = "Terminating", InPlaceUpdate = "InPlaceUpdate", Preserved = "Preserved" }
}

strings! {
    /// Reasons of the node condition `InPlaceUpdate`: the progress of an update. The agent on the Node begins at
    /// `ReadyForUpdate`.
    InPlaceUpdateReason {
        CandidateForUpdate = "CandidateForUpdate", SelectedForUpdate = "SelectedForUpdate",
        DrainSuccessful = "DrainSuccessful", ReadyForUpdate = "ReadyForUpdate",
        UpdateSuccessful = "UpdateSuccessful", UpdateFailed = "UpdateFailed",
    }
}

strings! {
    /// Reasons of the node condition `Preserved`, with the dots and spaces of the reference.
    PreservedReason {
        ByMcm = "Preserved by MCM.", ByUser = "Preserved by user.", Stopped = "Preservation stopped.",
    }
}

strings! {
    /// Types of the conditions that the provider of Cluster API sets on its objects.
    ProviderCondition {
        /// Summary of the others. Core mirrors it as `InfrastructureReady`.
        Ready = "Ready",
        /// Reconciliation of the object is paused.
        Paused = "Paused",
        /// The MachineClass can be used in the zone of the Machine.
        ClassResolved = "ClassResolved",
        /// The bootstrap data of the VM exists.
        BootstrapDataAvailable = "BootstrapDataAvailable",
        /// The MCM Machine exists and belongs to the object.
        MachineSynced = "NativeMachineSynced",
        /// The MCM MachineDeployments of a pool exist and belong to it.
        DeploymentSynced = "NativeDeploymentSynced",
        /// The Nodes of the workload cluster can be read.
        WorkloadClusterConnected = "WorkloadClusterConnected",
        /// All machines of a pool are available and have the current template.
        MachinesAvailable = "MachinesAvailable",
        /// The VM exists.
        VmProvisioned = "VMProvisioned",
        /// The VM of a control plane machine is registered in the load balancer that the MCMCluster names.
        LoadBalancerRegistered = "LoadBalancerRegistered",
        /// Its Machine or MachinePool is being deleted or deleted. While it is not, an admission policy refuses to
        /// delete the object: core would not drain the Node any more.
        Deletable = "Deletable",
    }
}

strings! {
    /// Reasons for which a condition of the provider is True.
    FulfilledReason {
        /// All prerequisites exist.
        Provisioned = "Provisioned",
        /// The bootstrap data exists, or the VM boots without it.
        Available = "Available",
        /// The class exists and fits.
        Resolved = "Resolved",
        /// The MCM object exists and belongs to the object.
        Synced = "Synced",
        /// The Nodes of the workload cluster can be read.
        Connected = "Connected",
        /// The VM is registered in the load balancer.
        Registered = "Registered",
    }
}

strings! {
    /// Reasons for which a condition of the provider is not True. Reasons of a failed cloud call are its codes.
    ProviderReason {
        /// Core has not made its object an owner, or the owner cannot be read or does not exist.
        WaitingForOwner = "WaitingForOwner",
        /// The Cluster does not exist.
        WaitingForCluster = "WaitingForCluster",
        /// After a pause of the Cluster, or a start, the MCM objects have not been read.
        WaitingForMCMObjects = "WaitingForMCMObjects",
        /// The infrastructure of the Cluster is not complete.
        WaitingForClusterInfrastructure = "WaitingForClusterInfrastructureReady",
        /// The infrastructure of the Cluster, of another provider, lacks the subnet or security groups that the class leaves to it.
        WaitingForClusterNetwork = "WaitingForClusterNetwork",
        /// Neither the MCMCluster nor its Cluster has the address of the API server.
        WaitingForEndpoint = "WaitingForControlPlaneEndpoint",
        /// The Machine has no bootstrap data.
        WaitingForBootstrapData = "WaitingForBootstrapData",
        /// The VM is registered in the load balancer once its Node and its API server run.
        WaitingForNode = "WaitingForNode",
        /// A Go Machine Controller Manager would reconcile the MCM Machines.
        OtherManagerActive = "MachineControllerManagerActive",
        /// The MachinePool would set the number of machines of a deployment that it only shows.
        ReplicasNotManaged = "ReplicasNotManagedElsewhere",
        /// The named class does not exist.
        ClassMissing = "ClassMissing",
        /// No class for the zone of the Machine.
        FailureDomainUnavailable = "FailureDomainUnavailable",
        /// The named Secret does not exist.
        SecretMissing = "SecretMissing",
        /// The ID of the VM cannot be written in the form of its Node.
        ProviderIdUnknown = "ProviderIDUnknown",
        /// An object cannot be read at the moment.
        Unreadable = "Unreadable",
        /// Another object has the name of the MCM Machine or its class.
        NameTaken = "NameTaken",
        /// Another MCM Machine has the VM.
        VmTaken = "VMTaken",
        /// The VM existed, and its ID was lost.
        VmLost = "VMLost",
        /// The description was changed in place, and only another VM can be as it says.
        NewVmRequired = "NewVMRequired",
        /// The Nodes of the workload cluster cannot be read.
        NotConnected = "NotConnected",
        /// The driver of the VM does not serve the load balancer.
        LoadBalancerUnsupported = "LoadBalancerUnsupported",
        /// The VM has to be registered in the load balancer.
        Registering = "Registering",
        /// The VM has to leave the load balancer.
        Deregistering = "Deregistering",
        /// The VM is no member of a load balancer any more.
        Deregistered = "Deregistered",
        /// A prerequisite does not exist yet.
        NotProvisioned = "NotProvisioned",
        /// The VM is being created.
        Creating = "Creating",
        /// Machines of a pool are being created, replaced or deleted.
        RollingOut = "RollingOut",
        /// The object is being deleted.
        Deleting = "Deleting",
        /// A failure without a code.
        Failed = "Failed",
    }
}

strings! {
    /// Reasons of the condition `Deletable`.
    DeletableReason {
        MachineDeleting = "MachineDeleting", MachineInUse = "MachineInUse",
        PoolDeleting = "MachinePoolDeleting", PoolInUse = "MachinePoolInUse",
    }
}

strings! {
    /// Reasons of the condition `Paused` of objects of Cluster API.
    PauseReason { Paused = "Paused", NotPaused = "NotPaused" }
}

strings! {
    /// Types of the conditions that the stand-in for Cluster API core sets.
    StandInCondition {
        /// The stand-in serves the object.
        StandIn = "StandIn",
        /// The other side matches the side with the authority.
        Synchronized = "Synchronized",
        /// Enough machines of an owner are available, or the Machine is.
        Available = "Available",
        /// Machines with an old template are being replaced.
        RollingOut = "RollingOut",
        /// There are fewer machines than desired.
        ScalingUp = "ScalingUp",
        /// There are more machines than desired.
        ScalingDown = "ScalingDown",
        /// The object is being deleted.
        Deleting = "Deleting",
        /// The Machine is ready.
        Ready = "Ready",
        /// The VM exists.
        InfrastructureReady = "InfrastructureReady",
        /// The Node is healthy.
        NodeHealthy = "NodeHealthy",
        /// The Machine has the current template.
        UpToDate = "UpToDate",
    }
}

impl StandInCondition {
    /// The reason of a condition that only confirms or denies its type.
    pub fn reason(self, is_true: bool) -> String {
        if is_true { self.to_string() } else { format!("Not{self}") }
    }
}

strings! {
    /// Reasons of the conditions that the stand-in for Cluster API core sets.
    StandInReason {
        /// The stand-in serves the object.
        Serving = "Serving",
        /// Cluster API core is installed.
        CoreProviderPresent = "CoreProviderPresent",
        /// It could not be read whether Cluster API core is installed.
        CoreProviderUnknown = "CoreProviderUnknown",
        /// The MachineDeployment vanished, and that of MCM stays.
        MachineDeploymentMissing = "MachineDeploymentMissing",
        /// The object needs a ClusterClass.
        TopologyUnsupported = "TopologyUnsupported",
        /// The object needs a control plane provider.
        ControlPlaneUnsupported = "ControlPlaneUnsupported",
        /// Only objects of a MachineDeployment are served.
        UnownedUnsupported = "UnownedUnsupported",
        /// Both sides match.
        ResourceSynchronized = "ResourceSynchronized",
        /// The message has the paths.
        FailedToConvertToMcm = "FailedToConvertToNative",
        /// The message has the paths.
        FailedToConvertToCapi = "FailedToConvertToCAPI",
        /// Template, class or Secret is missing.
        FailedToReadInfrastructure = "FailedToReadInfrastructure",
        /// The MCM object of the name belongs to another client.
        NameTaken = "NameTaken",
        /// The MCM object is being deleted.
        Deleting = "Deleting",
        /// The VM exists.
        Provisioned = "Provisioned",
        /// The VM does not exist yet.
        NotProvisioned = "NotProvisioned",
        /// A failure without a code.
        Failed = "Failed",
        /// The Node is healthy.
        Healthy = "Healthy",
        /// The Node is not healthy, or does not exist.
        NotHealthy = "NotHealthy",
    }
}
