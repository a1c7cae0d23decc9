use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

/// Something that has to happen before the object can progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// For programs.
    pub kind: WaitKind,
    /// Text for users; completes "waiting for".
    pub text: String,
    /// When to reconcile again even if nothing changes.
    #[serde(rename = "nextAttempt", skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// When the controllers end it by force, such as a drain at the end of its timeout.
    #[serde(rename = "forcedAt", skip_serializing_if = "Option::is_none")]
    pub forced_at: Option<Timestamp>,
}

impl Wait {
    /// A wait that nothing ends by force.
    pub const fn new(kind: WaitKind, text: String, until: Option<Timestamp>) -> Self {
        Self { kind, text, until, forced_at: None }
    }
}

/// Kind of a [`Wait`]. Logs and JSON contain the names of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum WaitKind {
    /// The next probe of the API servers.
    ApiServers,
    /// A bootstrap token that cannot be created yet.
    BootstrapToken,
    /// Caches that may be stale.
    CacheUntrusted,
    /// A MachineClass that is missing, not served, invalid or without its finalizer.
    Class,
    /// A MachineClass that cannot be decoded, or the MachineClasses, which have not been read.
    ClassUnknown,
    /// Work of the cloud that a driver call began.
    CloudOperation,
    /// The next attempt of a failed driver call.
    DriverRetry,
    /// Pods whose eviction is refused or fails.
    Eviction,
    /// Finalizers of other controllers.
    Finalizers,
    /// A cluster or namespace to be unpaused, or another controller that has the object or its namespace.
    Hold,
    /// The in-place update of a Node.
    InPlaceUpdate,
    /// Infrastructure of Cluster API, or a VM.
    Infrastructure,
    /// Machines to become available.
    MachineAvailability,
    /// Fewer Machines, or the next time they are counted.
    MachineCount,
    /// Machines to be deleted.
    MachineDeletion,
    /// The API server to accept a write of a Machine that it refused.
    MachineWrite,
    /// A manager that renews its Lease.
    Manager,
    /// The Machine of a Node.
    NodeClaim,
    /// A Node to become healthy again.
    NodeHealth,
    /// A Node to join and to become healthy.
    NodeJoin,
    /// A user to correct the node template.
    NodeTemplate,
    /// A Node to which writes fail.
    NodeWrite,
    /// A Node to which the API server refuses a write.
    NodeWriteRefused,
    /// The Nodes of a target cluster whose cache is not trusted or not filled.
    NodesUnknown,
    /// A list of VMs, or the next one.
    OrphanCheck,
    /// An owner of the object, or its cluster.
    Owner,
    /// A paused deployment to be resumed.
    Paused,
    /// The pods of a Node, which could not be listed.
    PodList,
    /// Pods that terminate.
    PodTermination,
    /// The preservation of failed Machines to end.
    Preservation,
    /// A MachineSet to replace a failed Machine.
    Replacement,
    /// The meltdown guard to allow one more replacement.
    ReplacementPermit,
    /// Machines that have to be created, become available or be deleted before a rollout continues.
    Rollout,
    /// A MachineSet to be unfrozen or allowed to grow.
    ScaleUpBlocked,
    /// A Secret that is missing, unreadable or incomplete.
    Secret,
    /// A user to correct the spec.
    SpecCorrection,
    /// Objects that cannot be decoded.
    Unreadable,
    /// A feature that this version does not have.
    Unsupported,
    /// The objects that use this one to be deleted.
    Users,
    /// The next look at a VM that runs.
    VmCheck,
    /// The driver to find a VM that should exist.
    VmLookup,
    /// Volumes to be attached to another Node.
    VolumeAttachment,
    /// Volumes to be detached from a Node.
    VolumeDetachment,
    /// The turn of a pod whose volumes move.
    VolumeTurn,
    /// The volumes of pods, which could not be read.
    VolumesUnknown,
    /// The API server, or another client, to keep a write instead of changing it.
    WriteUndone,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waiting for {}", self.text)?;
        match self.until {
            Some(until) => write!(f, ", until {until:.0}"),
            None => Ok(()),
        }
    }
}
