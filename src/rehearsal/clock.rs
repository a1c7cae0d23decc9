//! Time that a paused tokio runtime moves.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
#[cfg(test)]
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::runtime::clock::Clock;

/// Seconds since the epoch at which every test begins.
#[cfg(test)]
pub(crate) const EPOCH: i64 = 1_700_000_000;

/// The time of tokio as wall time.
#[derive(Clone, Debug)]
pub(crate) struct VirtualClock {
    start: Instant,
    begin: Timestamp,
    cost: Duration,
    #[cfg(test)]
    shared: std::sync::Arc<tests::Shared>,
}

impl VirtualClock {
    /// A clock that shows `begin` now.
    pub(crate) fn starting(begin: Timestamp) -> Self {
        Self {
            start: Instant::now(),
            begin,
            cost: Duration::ZERO,
            #[cfg(test)]
            shared: tests::Shared::new(),
        }
    }

    /// The same time, at which each plan has a cost. No virtual time passes while it is made.
    pub(crate) fn with_cost_of_plans(self, cost: Duration) -> Self {
        Self { cost, ..self }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.start.elapsed()).unwrap_or(SignedDuration::MAX);
        #[cfg(test)]
        let elapsed = self.shared.looked().saturating_add(elapsed);
        self.begin.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    fn cost_since(&self, begun: Instant) -> Duration {
        self.cost.max(begun.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// What only tests need of a clock. Clones share it; [`VirtualClock::of_another_host`] has its own.
    #[derive(Debug)]
    pub(super) struct Shared {
        offset: Mutex<SignedDuration>,
        /// The time of the last read, and the number of reads at that time.
        looks: Mutex<(Instant, u32)>,
    }

    /// A caller that looks this often while no time passes waits for a past time, and would wait for ever.
    const LOOKS: u32 = 300_000;

    impl Shared {
        pub(super) fn new() -> Arc<Self> {
            Arc::new(Self { offset: Mutex::default(), looks: Mutex::new((Instant::now(), 0)) })
        }

        /// Counts a read, and returns the offset of this host's clock.
        pub(super) fn looked(&self) -> SignedDuration {
            let mut looks = self.looks.lock();
            let now = Instant::now();
            *looks = if looks.0 == now { (now, looks.1 + 1) } else { (now, 0) };
            assert!(looks.1 < LOOKS, "something is done again and again, and no time passes");
            drop(looks);
            *self.offset.lock()
        }
    }

    impl VirtualClock {
        pub(crate) fn new() -> Self {
            Self::starting(Timestamp::from_second(EPOCH).unwrap())
        }

        /// The same time on a host whose clock can be set wrong.
        pub(crate) fn of_another_host(&self) -> Self {
            Self { shared: Shared::new(), ..self.clone() }
        }

        /// Sets this host's clock ahead of (or behind) the true time.
        pub(crate) fn set_offset(&self, offset: SignedDuration) {
            *self.shared.offset.lock() = offset;
        }
    }
}
