//! A random number generator whose numbers are the same on every machine and with every version of every crate.

use std::ops::Range;

use jiff::SignedDuration;

pub(super) struct Rng(u64);

impl Rng {
    pub(super) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// splitmix64
    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub(super) fn within(&mut self, range: Range<i64>) -> i64 {
        let width = u64::try_from(range.end - range.start).unwrap();
        range.start + i64::try_from(self.roll() % width).unwrap()
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.within(0..i64::try_from(count).unwrap())).unwrap()
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// True so many times in a thousand.
    pub(super) fn per_mille(&mut self, rate: usize) -> bool {
        self.below(1000) < rate
    }

    pub(super) fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() { None } else { all.get(self.below(all.len())) }
    }

    pub(super) fn millis(&mut self, range: Range<i64>) -> SignedDuration {
        SignedDuration::from_millis(self.within(range))
    }
}
