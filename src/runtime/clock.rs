//! The time, which tests can set.

#[cfg(test)]
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(test)]
use jiff::SignedDuration;
use jiff::Timestamp;

/// A clock. Only code that does I/O has one; plans get `now` in their snapshot.
pub trait Clock: std::fmt::Debug + Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;
}

/// The system time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that tests move. Clones share the time.
#[cfg(test)]
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Timestamp>>);

#[cfg(test)]
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
