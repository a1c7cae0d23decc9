use super::{NativeManagers, Snapshot};

impl NativeManagers {
    /// The input of a plan.
    pub(super) fn snapshot(&self, has_looked: bool) -> Snapshot {
        let now = self.clock.now();
        let (has_failed, validity) = self.managers.state(now);
        Snapshot { has_looked, has_failed, validity, now }
    }
}
