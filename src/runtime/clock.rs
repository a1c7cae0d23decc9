//! The time, which tests can set.

#[cfg(any(test, feature = "testing"))]
use std::sync::{Arc, Mutex, PoisonError};

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// A clock. Only code that does I/O has one; plans get `now` in their snapshot.
pub trait TimeSource: std::fmt::Debug + Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;

    /// The cost of a plan that began at an instant, which the pacing of its queue counts.
    fn cost_since(&self, begun: tokio::time::Instant) -> Duration {
        begun.elapsed()
    }
}

/// The system time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl TimeSource for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The system time at the start of the process, and from then on the monotonic clock: it does not jump when the system
/// time is set.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    start: Timestamp,
    origin: Instant,
}

impl Default for SteadyClock {
    fn default() -> Self {
        Self { start: Timestamp::now(), origin: Instant::now() }
    }
}

impl TimeSource for SteadyClock {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.origin.elapsed()).unwrap_or(SignedDuration::MAX);
        self.start.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

/// A clock that tests move. Clones share the time.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Timestamp>>);

#[cfg(any(test, feature = "testing"))]
impl ManualClock {
    /// A clock that shows a time.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(now)))
    }

    /// Moves forward, at most to the latest representable time.
    pub fn advance(&self, by: SignedDuration) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.checked_add(by).unwrap_or(Timestamp::MAX);
    }
}

#[cfg(any(test, feature = "testing"))]
impl TimeSource for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_clock_shows_the_system_time_of_its_start_and_goes_on() {
        let (before, clock) = (Timestamp::now(), SteadyClock::default());
        let (first, second) = (clock.now(), clock.now());
        assert!(before <= first && first <= second);
    }

    #[test]
    fn clones_of_a_manual_clock_share_the_time() {
        let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
        let other = clock.clone();
        clock.advance(SignedDuration::from_secs(90));
        assert_eq!(other.now().as_second(), 90);
    }
}
