//! Writes that are undone again and again, and creations that lead to nothing: how often they happened, and how long to
//! pause before the next one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use mcm_api::backoff::Backoff;

/// How many repetitions may follow one another at once, and the pauses after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatPace {
    free: u32,
    backoff: Backoff,
}

impl RepeatPace {
    /// `free` repetitions without a pause, then pauses from the first to the longest one.
    pub const fn new(free: u32, backoff: Backoff) -> Self {
        Self { free, backoff }
    }

    /// The pause after so many repetitions in a row.
    pub fn pause(&self, count: u32) -> SignedDuration {
        match count.checked_sub(self.free) {
            Some(over) => self.backoff.after(over.saturating_add(1)),
            None => SignedDuration::ZERO,
        }
    }
}

/// The pace of a write that an API server, or another client, undoes: 5 s to 10 min.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_mins(10));
/// Another client undoes it: known after several times.
pub const REVERTED: RepeatPace = RepeatPace::new(3, PAUSES);
/// The API server stored something else: known at once.
pub const ALTERED: RepeatPace = RepeatPace::new(1, PAUSES);

/// The shortest time without a repetition after which the next one counts as the first.
const QUIET: SignedDuration = SignedDuration::from_secs(60);

/// How often something happened in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepeatCount {
    count: u32,
    last: Option<Timestamp>,
}

impl RepeatCount {
    /// It happened again.
    pub fn add(&mut self, pace: &RepeatPace, now: Timestamp) {
        let count = if self.is_over(pace, now) { 0 } else { self.count };
        *self = Self { count: count.saturating_add(1), last: Some(now) };
    }

    /// How often in a row.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// When it happened last.
    pub const fn last(&self) -> Option<Timestamp> {
        self.last
    }

    /// It did not happen for so long that the next time counts as the first.
    pub fn is_over(&self, pace: &RepeatPace, now: Timestamp) -> bool {
        let quiet = pace.pause(self.count).saturating_mul(2).max(QUIET);
        self.last.is_none_or(|last| now.duration_since(last) > quiet)
    }

    /// When it may happen again; `None` if that is now. A pause that is longer than the longest one began before the clock
    /// was set back: it is over.
    pub fn paused_until(&self, pace: &RepeatPace, now: Timestamp) -> Option<Timestamp> {
        let pause = pace.pause(self.count);
        let until = self.last?.checked_add(pause).ok()?;
        (SignedDuration::ZERO < until.duration_since(now) && until.duration_since(now) <= pause).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// The times at which something happens that happens whenever it may.
    fn times(pace: &RepeatPace, seconds: i64) -> Vec<i64> {
        let mut count = RepeatCount::default();
        let mut times = Vec::new();
        for second in 0..seconds {
            while count.paused_until(pace, at(second)).is_none() && times.len() < 100 {
                count.add(pace, at(second));
                times.push(second);
            }
        }
        times
    }

    #[test]
    fn repetitions_become_rarer() {
        assert_eq!(times(&ALTERED, 700), [0, 5, 15, 35, 75, 155, 315, 635]);
        assert_eq!(times(&REVERTED, 60), [0, 0, 0, 5, 15, 35]);
        assert_eq!(times(&ALTERED, 20_000).windows(2).map(|two| two[1] - two[0]).max(), Some(600));
    }

    #[test]
    fn after_a_quiet_time_it_is_the_first_again() {
        let mut count = RepeatCount::default();
        for _ in 0..3 {
            count.add(&REVERTED, at(0));
        }
        assert_eq!(count.paused_until(&REVERTED, at(0)), Some(at(5)));
        count.add(&REVERTED, at(61));
        assert_eq!((count.count(), count.paused_until(&REVERTED, at(61))), (1, None));
    }

    #[test]
    fn a_clock_that_was_set_back_pauses_nothing() {
        let mut count = RepeatCount::default();
        count.add(&ALTERED, at(10_000));
        assert_eq!(count.paused_until(&ALTERED, at(10)), None);
    }
}
