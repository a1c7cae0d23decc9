use super::{Signals, Snapshot};

impl Signals {
    /// The input of a plan.
    pub(super) fn snapshot(&self, has_looked: bool) -> Snapshot {
        let has_failed = matches!(self.core.asked(), Some(Err(_)));
        Snapshot { has_looked, has_failed, now: self.clock.now() }
    }
}
