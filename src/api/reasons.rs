//! Reasons and condition types: exact strings that other programs read.

/// Declares an enum with a fixed string for each variant.
macro_rules! strings {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vmeta])* #[doc = concat!("`", $text, "`")] $variant),+ }
        impl $name {
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
