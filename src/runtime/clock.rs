//! What time it is, as something that a test can set.

#[cfg(test)]
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(test)]
use jiff::SignedDuration;
use jiff::Timestamp;

/// Tells the time. Only shells hold a clock; planners are given `now`.
pub trait Clock: std::fmt::Debug + Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;
}

/// The time of the machine we run on.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A time that moves only when told to. Clones share it.
#[cfg(test)]
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Timestamp>>);

#[cfg(test)]
impl ManualClock {
    /// Standing at a time.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(now)))
    }

    /// Moves on; it stops at the end of time.
    pub fn advance(&self, by: SignedDuration) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.checked_add(by).unwrap_or(Timestamp::MAX);
    }
}

#[cfg(test)]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_manual_clock_share_the_time() {
        let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
        let other = clock.clone();
        clock.advance(SignedDuration::from_secs(90));
        assert_eq!(other.now().as_second(), 90);
    }
}
