//! Wakes tasks after a change. Waiting tasks wake in the order in which they began to wait, so that a seed is played the
//! same every time; the channels of tokio choose at random.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

/// Clones share it.
#[derive(Clone, Default)]
pub(super) struct ChangeSignal(Arc<(AtomicU64, Notify)>);

impl ChangeSignal {
    pub(super) fn send(&self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
        self.0.1.notify_waiters();
    }

    /// How often it was sent.
    pub(super) fn count(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }

    /// Waits until it was sent more often than `seen`.
    pub(super) async fn sent_after(&self, seen: u64) {
        loop {
            let sent = self.0.1.notified();
            if self.count() > seen {
                return;
            }
            sent.await;
        }
    }
}
