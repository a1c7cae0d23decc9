//! Time that a paused tokio runtime moves.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use mcm_runtime::clock::TimeSource;

#[cfg(any(test, feature = "testing"))]
use crate::host::HostClock;

/// Seconds since the epoch at which every test begins.
#[cfg(any(test, feature = "testing"))]
pub const EPOCH: i64 = 1_700_000_000;

/// The time of tokio as wall time.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    start: Instant,
    begin: Timestamp,
    cost: Duration,
    #[cfg(any(test, feature = "testing"))]
    shared: std::sync::Arc<HostClock>,
}

impl VirtualClock {
    /// A clock that shows `begin` now.
    pub fn starting(begin: Timestamp) -> Self {
        Self {
            start: Instant::now(),
            begin,
            cost: Duration::ZERO,
            #[cfg(any(test, feature = "testing"))]
            shared: HostClock::new(),
        }
    }

    /// The same time, at which each plan has a cost. No virtual time passes while it is made.
    pub fn with_cost_of_plans(self, cost: Duration) -> Self {
        Self { cost, ..self }
    }
}

impl TimeSource for VirtualClock {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.start.elapsed()).unwrap_or(SignedDuration::MAX);
        #[cfg(any(test, feature = "testing"))]
        let elapsed = self.shared.looked().saturating_add(elapsed);
        self.begin.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    fn cost_since(&self, begun: Instant) -> Duration {
        self.cost.max(begun.elapsed())
    }
}

#[cfg(any(test, feature = "testing"))]
impl VirtualClock {
    /// A clock that shows the time at which every test begins.
    #[expect(clippy::new_without_default, reason = "a test says when its time begins")]
    pub fn new() -> Self {
        Self::starting(Timestamp::from_second(EPOCH).unwrap_or_default())
    }

    /// The same time on a host whose clock can be set wrong.
    pub fn of_another_host(&self) -> Self {
        Self { shared: HostClock::new(), ..self.clone() }
    }

    /// Sets this host's clock ahead of (or behind) the true time.
    pub fn set_offset(&self, offset: SignedDuration) {
        self.shared.set_offset(offset);
    }
}
