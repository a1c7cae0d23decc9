//! An estimate of how far a clock is ahead of our own, from measurements that may contradict each other.
//!
//! A time that is too late lets every Machine fail at once; one that is too early only delays that. So an earlier time
//! counts immediately, and a later one after it was measured for some minutes without a measurement to the contrary.

use jiff::{SignedDuration, Timestamp};

/// Stamps have whole seconds, rounded down.
pub(super) const PRECISION: SignedDuration = SignedDuration::from_secs(1);
/// How long a later time is measured before it counts.
pub(super) const CONFIRMED_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// A clock is ahead of our own by at least and at most this much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockBounds {
    least: SignedDuration,
    most: SignedDuration,
}

impl ClockBounds {
    /// The same time as our own.
    pub const EQUAL: Self = Self { least: SignedDuration::ZERO, most: SignedDuration::ZERO };

    /// The clock was within a second after `stamp` at some time between `sent` and `received`.
    pub fn measured(stamp: Timestamp, sent: Timestamp, received: Timestamp) -> Self {
        let most = stamp.duration_since(sent).saturating_add(PRECISION);
        Self { least: stamp.duration_since(received).min(most), most }
    }

    /// The difference in the middle.
    pub fn middle(self) -> SignedDuration {
        self.least.saturating_add(self.most) / 2
    }

    /// The distance from the bounds to a difference; zero within them.
    pub fn distance(self, ahead: SignedDuration) -> SignedDuration {
        let below = self.least.saturating_sub(ahead);
        let above = ahead.saturating_sub(self.most);
        below.max(above).max(SignedDuration::ZERO)
    }

    /// The bounds that both allow; `None` if they contradict each other.
    fn overlap(self, other: Self) -> Option<Self> {
        let (least, most) = (self.least.max(other.least), self.most.min(other.most));
        (least <= most).then_some(Self { least, most })
    }
}

/// The estimate from all measurements of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClockEstimate {
    bounds: Option<ClockBounds>,
    /// Measurements that are later than the bounds, and since when none contradicts them.
    later: Option<(ClockBounds, Timestamp)>,
}

impl ClockEstimate {
    /// An estimate that holds until a measurement contradicts it.
    pub const fn assumed(bounds: ClockBounds) -> Self {
        Self { bounds: Some(bounds), later: None }
    }

    /// How far the clock is ahead; `None` without a measurement.
    pub fn ahead(&self) -> Option<SignedDuration> {
        self.bounds.map(ClockBounds::middle)
    }

    /// Adds a measurement of `now`, by our own clock. The first one counts immediately.
    pub fn measure(&mut self, measured: ClockBounds, now: Timestamp) {
        let Some(bounds) = self.bounds else {
            self.bounds = Some(measured);
            return;
        };
        let confirmed = self.later.and_then(|(later, since)| Some((later.overlap(measured)?, since)));
        if let Some(both) = bounds.overlap(measured) {
            *self = Self { bounds: Some(both), later: confirmed };
        } else if measured.most < bounds.least {
            *self = Self { bounds: Some(measured), later: None };
        } else {
            let (later, since) = confirmed.unwrap_or((measured, now));
            *self = match now.duration_since(since) >= CONFIRMED_AFTER {
                true => Self { bounds: Some(later), later: None },
                false => Self { bounds: self.bounds, later: Some((later, since)) },
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// The difference that counts after measurements of `(second, ahead)`.
    fn after(measurements: impl IntoIterator<Item = (i64, i64)>) -> i64 {
        let mut estimate = ClockEstimate::default();
        for (second, ahead) in measurements {
            let now = at(second);
            estimate.measure(ClockBounds::measured(at(second + ahead), now, now), now);
        }
        estimate.ahead().unwrap().as_secs()
    }

    #[test]
    fn the_first_measurement_counts_and_an_earlier_time_counts_at_once() {
        assert_eq!(after([(0, 1800)]), 1800);
        assert_eq!(after([(0, 1800), (1, 0)]), 0);
        assert_eq!(after([(0, 0), (1, -1800)]), -1799);
    }

    #[test]
    fn a_later_time_counts_after_five_minutes_without_a_contradiction() {
        let later = |until| std::iter::once((0, 0)).chain((1..=until).map(|second| (second, 1800)));
        assert_eq!(after(later(300)), 0);
        assert_eq!(after(later(301)), 1800);
    }

    /// Covers several servers of which one is wrong, and a proxy that changes some responses.
    #[test]
    fn a_later_time_that_is_contradicted_again_and_again_never_counts() {
        for every in [2, 3, 10, 250] {
            let mixed = (0..3_600).map(|second| (second, if second % every == 0 { 0 } else { 1800 }));
            assert_eq!(after(mixed), 0, "every {every}. measurement is right");
            let wrong = (0..3_600).map(|second| (second, if second % every == 1 { 1800 } else { 0 }));
            assert_eq!(after(wrong), 0, "every {every}. measurement is wrong");
        }
        let two = (0..3_600).map(|second| (second, [1800, 3600][second as usize % 2]));
        assert_eq!(after(std::iter::once((0, 0)).chain(two)), 0, "two later times contradict each other");
    }

    #[test]
    fn an_imprecise_measurement_contradicts_nothing() {
        let mut estimate = ClockEstimate::default();
        estimate.measure(ClockBounds::measured(at(0), at(0), at(0)), at(0));
        for second in 1..=301 {
            let now = at(second);
            estimate.measure(ClockBounds::measured(at(second + 10), now, now), now);
            // A response that took a minute.
            estimate.measure(ClockBounds::measured(at(second), at(second - 60), now), now);
        }
        assert_eq!(estimate.ahead().unwrap().as_secs(), 10);
    }
}
