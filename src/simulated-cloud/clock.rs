//! Wall-clock time that follows the clock of the async runtime, so that tests can stop and turn it.

use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep_until};

/// Times of the simulated cloud. They never jump, even if the clock of the machine is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulationClock {
    start: Instant,
    base: Timestamp,
}

impl SimulationClock {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), base: Timestamp::now() }
    }

    pub(super) fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.start.elapsed()).unwrap_or(SignedDuration::MAX);
        self.base.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// Returns at `time`, at once if that is past.
    pub(super) async fn reach(&self, time: Timestamp) {
        sleep_until(self.instant(time)).await;
    }

    /// `time` on the runtime's clock; its start if that was before.
    pub(super) fn instant(&self, time: Timestamp) -> Instant {
        let after = std::time::Duration::try_from(time.duration_since(self.base)).unwrap_or_default();
        self.start.checked_add(after).unwrap_or_else(|| self.start + std::time::Duration::from_secs(1 << 30))
    }
}
