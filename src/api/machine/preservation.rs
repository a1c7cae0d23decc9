//! Preservation: failed Machines that are kept for inspection.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Machine, MachinePhase};
use crate::labels;

/// Value of the annotation [`labels::PRESERVE`] on a Machine that its set preserves automatically.
pub const AUTO_PRESERVED: &str = "auto-preserved";
/// Value of the annotation [`labels::PRESERVE`] on a Machine that must not be preserved.
pub const NOT_PRESERVED: &str = "false";

/// Value of the annotation [`labels::PRESERVE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreserveMode {
    /// `now`: in any phase.
    Now,
    /// `when-failed`: once it is Failed.
    WhenFailed,
    /// `auto-preserved`: chosen by the set.
    Auto,
    /// `false`: it is replaced when it failed.
    Never,
}

impl PreserveMode {
    /// `None` if the value is unknown; such values have no effect.
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            "now" => Some(Self::Now),
            "when-failed" => Some(Self::WhenFailed),
            AUTO_PRESERVED => Some(Self::Auto),
            NOT_PRESERVED => Some(Self::Never),
            _ => None,
        }
    }

    /// The value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::WhenFailed => "when-failed",
            Self::Auto => AUTO_PRESERVED,
            Self::Never => NOT_PRESERVED,
        }
    }
}

/// [`Machine::is_auto_preserved`] of a Machine of which only the metadata can be decoded.
pub fn is_auto_preserved(meta: &ObjectMeta) -> bool {
    meta.annotations.as_ref().and_then(|all| all.get(labels::PRESERVE)).is_some_and(|mode| mode == AUTO_PRESERVED)
}

impl Machine {
    /// The mode in the annotation of the Machine.
    pub fn preserve_mode(&self) -> Option<PreserveMode> {
        PreserveMode::parse(self.annotation(labels::PRESERVE)?)
    }

    /// The mode in the annotation of its Node when the machine controller last copied it.
    pub fn copied_preserve_mode(&self) -> Option<PreserveMode> {
        PreserveMode::parse(self.annotation(labels::LAST_NODE_PRESERVE)?)
    }

    /// The end of the preservation, also if it has passed; `None` if no preservation began.
    pub fn preserve_expiry(&self) -> Option<Timestamp> {
        Some(self.status.as_ref()?.current_status.preserve_expiry_time.as_ref()?.0)
    }

    /// Until when the Machine is preserved; `None` if it is not, or no longer.
    pub fn preserved_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.preserve_expiry().filter(|expiry| *expiry > now)
    }

    /// It counts in `preservedFailedReplicas`: failed and preserved, also if the preservation has expired. A
    /// Machine that is being deleted does not count, as in the reference, where a deletion changes the phase.
    pub fn is_preserved_failed(&self) -> bool {
        self.phase() == MachinePhase::Failed && !self.is_terminating() && self.preserve_expiry().is_some()
    }

    /// The set chose to preserve the Machine.
    pub fn is_auto_preserved(&self) -> bool {
        is_auto_preserved(&self.metadata)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}
