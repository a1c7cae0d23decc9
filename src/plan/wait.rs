use std::fmt;

use jiff::Timestamp;

/// Something that has to happen elsewhere first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What programs match on.
    pub kind: WaitKind,
    /// What people read; completes "waits for".
    pub text: String,
    /// When to reconcile again even if nothing changes.
    pub until: Option<Timestamp>,
}

/// What a [`Wait`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitKind {
    /// A bootstrap token that cannot be made yet.
    BootstrapToken,
    /// A MachineClass that is missing, not served, invalid or without its finalizer.
    Class,
    /// The MachineClasses, which have not been read.
    ClassUnknown,
    /// The next try of a driver call that failed.
    DriverRetry,
    /// Pods that refuse their eviction, for a disruption budget or an error.
    Eviction,
    /// Finalizers of other controllers.
    Finalizers,
    /// Machines to become available.
    MachineAvailability,
    /// Machines to be deleted.
    MachineDeletion,
    /// Which Machine a Node belongs to.
    NodeClaim,
    /// A Node to become healthy again.
    NodeHealth,
    /// A Node to join and to become healthy.
    NodeJoin,
    /// A Node that refuses a write.
    NodeWrite,
    /// The Nodes of a target cluster whose API server cannot be trusted or was not read.
    NodesUnknown,
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
    /// Machines that a rollout needs before its next step.
    Rollout,
    /// A MachineSet to be unfrozen or allowed to grow.
    ScaleUpBlocked,
    /// A Secret that is missing, unreadable or incomplete.
    Secret,
    /// A user to correct the spec.
    SpecCorrection,
    /// Objects that cannot be decoded.
    Unreadable,
    /// Something that this version does not do.
    Unsupported,
    /// The objects that use this one to be gone.
    Users,
    /// The driver to find a VM that should exist.
    VmLookup,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waits for {}", self.text)?;
        match self.until {
            Some(until) => write!(f, ", until {until}"),
            None => Ok(()),
        }
    }
}
