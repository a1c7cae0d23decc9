//! Preservation: failed Machines that are kept for inspection.

use jiff::Timestamp;

use super::{Machine, MachinePhase};
use crate::api::labels;

/// Value of the annotation [`labels::PRESERVE`] on a Machine that its set preserves automatically.
pub const AUTO_PRESERVED: &str = "auto-preserved";

impl Machine {
    /// The end of the preservation, also if it has passed; `None` if no preservation began.
    pub fn preserve_expiry(&self) -> Option<Timestamp> {
        Some(self.status.as_ref()?.current_status.preserve_expiry_time.as_ref()?.0)
    }

    /// Until when the Machine is preserved; `None` if it is not, or no longer.
    pub fn preserved_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.preserve_expiry().filter(|expiry| *expiry > now)
    }

    /// Whether it counts in `preservedFailedReplicas`: failed and preserved, also if the preservation has expired. A
    /// Machine that is being deleted does not count, as in the reference, where a deletion changes the phase.
    pub fn is_preserved_failed(&self) -> bool {
        self.phase() == MachinePhase::Failed && !self.is_terminating() && self.preserve_expiry().is_some()
    }

    /// The set chose to preserve the Machine.
    pub fn is_auto_preserved(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(labels::PRESERVE)).is_some_and(|value| value == AUTO_PRESERVED)
    }
}
