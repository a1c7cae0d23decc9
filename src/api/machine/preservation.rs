//! Failed Machines that are kept for someone to look at.

use jiff::Timestamp;

use super::{Machine, MachinePhase};
use crate::api::labels;

/// Value of the annotation [`labels::PRESERVE`] on a Machine that its set preserves by itself.
pub const AUTO_PRESERVED: &str = "auto-preserved";

impl Machine {
    /// The end of the preservation, past or not; `None` if none was begun.
    pub fn preserve_expiry(&self) -> Option<Timestamp> {
        Some(self.status.as_ref()?.current_status.preserve_expiry_time.as_ref()?.0)
    }

    /// Until when the Machine is preserved; `None` if it is not, or not any more.
    pub fn preserved_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.preserve_expiry().filter(|expiry| *expiry > now)
    }

    /// Counts as `preservedFailedReplicas`: failed, and preserved even if the time is over. One that is being deleted does
    /// not count, as in the reference, where a deletion changes the phase.
    pub fn is_preserved_failed(&self) -> bool {
        self.phase() == MachinePhase::Failed && !self.is_terminating() && self.preserve_expiry().is_some()
    }

    /// The set chose to preserve the Machine.
    pub fn is_auto_preserved(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(labels::PRESERVE)).is_some_and(|value| value == AUTO_PRESERVED)
    }
}
