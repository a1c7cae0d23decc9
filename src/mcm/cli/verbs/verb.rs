//! Changes that a user can ask for.

/// A change of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeVerb {
    /// Pauses a rollout.
    Pause,
    /// Resumes it.
    Resume,
    /// Replaces all machines.
    Restart,
    /// Returns to a revision; `None` is the revision before the current one.
    Undo(Option<i64>),
    /// Forbids a set to create machines.
    Freeze,
    /// Ends a freeze.
    Unfreeze,
    /// Forces the drain of a machine.
    ForceDrain,
    /// Keeps a machine.
    Preserve(PreserveTrigger),
    /// Removes the finalizer of a machine. `leaves_vm` allows that its VM stays.
    Forget {
        /// The VM may stay.
        leaves_vm: bool,
    },
}

/// When a machine is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreserveTrigger {
    /// From now on.
    Now,
    /// When it fails.
    WhenFailed,
    /// No longer.
    Never,
}
