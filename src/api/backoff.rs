//! Exponential back-off.

use std::time::Duration;

use jiff::SignedDuration;

/// Pauses that double from the first one to the longest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// From the first pause to the longest one.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The longest pause.
    pub const fn longest(&self) -> Duration {
        self.longest
    }

    /// The pause before the next attempt, after so many failed ones before the last.
    pub fn pause(&self, failures: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(failures)).min(self.longest)
    }

    /// The pause after the `count`-th failure in a row, counted from 1, for times that objects contain.
    pub fn after(&self, count: u32) -> SignedDuration {
        SignedDuration::try_from(self.pause(count.saturating_sub(1))).unwrap_or(SignedDuration::MAX)
    }

    /// The pauses one after the other.
    pub const fn pauses(self) -> Pauses {
        Pauses { backoff: self, failures: 0 }
    }
}

/// The pauses of a back-off, one after the other.
#[derive(Clone, Debug)]
pub struct Pauses {
    backoff: Backoff,
    failures: u32,
}

impl Pauses {
    /// The next pause.
    pub fn advance(&mut self) -> Duration {
        let pause = self.backoff.pause(self.failures);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// Begins again with the first pause.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Begins again if the work lasted longer than the longest pause before it failed.
    pub fn reset_after(&mut self, lasted: Duration) {
        if lasted > self.backoff.longest {
            self.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(20));

    #[test]
    fn pauses_double_from_the_first_to_the_longest() {
        let seconds: Vec<u64> = (0..7).map(|failures| BACKOFF.pause(failures).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 20, 20]);
        assert_eq!(BACKOFF.pause(u32::MAX).as_secs(), 20);
        let counted: Vec<i64> = (0..4).map(|count| BACKOFF.after(count).as_secs()).collect();
        assert_eq!(counted, [1, 1, 2, 4], "counts begin with 1");
    }

    #[test]
    fn work_that_lasted_longer_than_the_longest_pause_begins_with_the_first_again() {
        let mut pauses = BACKOFF.pauses();
        let mut next = |lasted| {
            pauses.reset_after(Duration::from_secs(lasted));
            pauses.advance().as_secs()
        };
        assert_eq!([next(0), next(20), next(21), next(0)], [1, 2, 1, 2]);
    }
}
