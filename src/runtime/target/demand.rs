//! The need for the Nodes of a target without Machines.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

/// Until when Nodes are needed.
#[derive(Default)]
pub(super) struct TargetDemand {
    until: Mutex<Option<Instant>>,
    changed: Notify,
}

impl TargetDemand {
    pub fn extend(&self, time: Duration) {
        let end = Instant::now().checked_add(time);
        {
            let mut until = self.until.lock();
            *until = (*until).max(end);
        }
        self.changed.notify_one();
    }

    /// `None` if they were never needed.
    pub fn until(&self) -> Option<Instant> {
        *self.until.lock()
    }

    /// Returns after a change.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}
