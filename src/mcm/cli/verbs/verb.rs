//! Changes that a user can ask for.

/// A change of one object, or the steps of one.
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
    /// Ends a rollout that is under way by returning to the set whose machines are available.
    Abort,
    /// Changes the number of machines.
    Scale(ScaleTarget),
    /// Replaces one machine. `is_given_up` ends that and keeps the machine.
    Replace {
        /// The machine is kept.
        is_given_up: bool,
    },
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

impl ChangeVerb {
    /// Its decision or its plan reads MachineClasses.
    pub const fn needs_classes(self) -> bool {
        match self {
            Self::Pause | Self::Freeze | Self::Unfreeze | Self::ForceDrain | Self::Preserve(_) => false,
            Self::Resume
            | Self::Restart
            | Self::Undo(_)
            | Self::Abort
            | Self::Scale(_)
            | Self::Replace { .. }
            | Self::Forget { .. } => true,
        }
    }
}

/// A number of machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleTarget {
    /// The number.
    pub replicas: i32,
    /// The present number on which the change depends.
    pub current: Option<i32>,
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
