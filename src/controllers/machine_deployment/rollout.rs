//! The arithmetic of a rollout: how many Machines may exist, how many must be available, and what follows for the size
//! of each set. Numbers only; nothing here knows an object.

use super::validate::Amount;

/// How many Machines are wanted, and how far a rollout may stray from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// `spec.replicas`.
    pub desired: i32,
    /// How many may exist beyond that.
    pub surge: i32,
    /// How many of them may be missing.
    pub unavailable: i32,
}

impl Bounds {
    /// No leeway.
    pub(super) const fn exact(desired: i32) -> Self {
        Self { desired, surge: 0, unavailable: 0 }
    }

    /// Surge is rounded up, unavailability down; if both come to nothing, one Machine may be missing, or no rollout
    /// could ever move.
    pub(super) fn resolve(desired: i32, surge: Amount, unavailable: Amount) -> Self {
        let share = |percent: i32, round_up: i64| {
            let product = i64::from(desired) * i64::from(percent);
            i32::try_from((product + round_up).div_euclid(100)).unwrap_or(i32::MAX)
        };
        let surge = match surge {
            Amount::Machines(number) => number,
            Amount::Percent(percent) => share(percent, 99),
        }
        .max(0);
        let unavailable = match unavailable {
            Amount::Machines(number) => number,
            Amount::Percent(percent) => share(percent, 0),
        }
        .max(0);
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Self { desired, surge, unavailable: unavailable.min(desired) }
    }

    /// How many Machines may exist.
    pub(super) const fn at_most(&self) -> i32 {
        self.desired.saturating_add(self.surge)
    }

    /// How many Machines must be available.
    pub(super) const fn at_least(&self) -> i32 {
        self.desired - self.unavailable
    }
}

/// The Machines of one set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// What the set is asked for; 0 while it is being deleted.
    pub spec: i32,
    /// Machines that exist and are not terminating.
    pub live: i32,
    /// Machines that are being created and cannot be seen yet.
    pub coming: i32,
    /// Machines that are on their way out.
    pub terminating: i32,
    /// Live Machines that serve.
    pub available: i32,
    /// Live Machines that do not serve and are surely deleted before any that does.
    pub expendable: i32,
}

impl std::iter::Sum for Count {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, count| Self {
            spec: sum.spec + count.spec,
            live: sum.live + count.live,
            coming: sum.coming + count.coming,
            terminating: sum.terminating + count.terminating,
            available: sum.available + count.available,
            expendable: sum.expendable + count.expendable,
        })
    }
}

impl Count {
    /// Machines that exist, terminating ones included.
    pub(super) const fn existing(&self) -> i32 {
        self.live + self.terminating
    }

    /// Machines that exist or that the set is about to create.
    pub(super) fn planned(&self) -> i32 {
        self.terminating + self.asked()
    }

    /// As [`Count::planned`], without those that are terminating.
    pub(super) fn asked(&self) -> i32 {
        (self.live + self.coming).max(self.spec)
    }

    /// How many Machines stay available, at worst, if the set is asked for `size`.
    pub(super) fn available_at(&self, size: i32) -> i32 {
        let deleted = (self.live - size).max(0);
        (self.available - (deleted - self.expendable).max(0)).max(0)
    }

    /// How many Machines stay available, at worst, once the set has done what it is asked for.
    pub(super) fn available_now(&self) -> i32 {
        self.available_at(self.spec)
    }

    /// The smallest size, not above the present one, at which `keep` Machines stay available.
    pub(super) fn smallest_keeping(&self, keep: i32) -> i32 {
        if keep <= 0 {
            return 0;
        }
        (self.live - self.expendable - (self.available - keep)).max(0).min(self.spec)
    }
}

/// The size of the new set. It grows into the room that all Machines, terminating ones included, leave: a rollout
/// waits for real deletions.
pub(super) fn new_size(bounds: &Bounds, new: &Count, old: &[Count]) -> i32 {
    if new.spec >= bounds.desired {
        return bounds.desired;
    }
    let planned: i32 = old.iter().map(Count::planned).sum::<i32>() + new.planned();
    let room = (bounds.at_most() - planned).max(0);
    new.spec + room.min(bounds.desired - new.spec)
}

/// The sizes of the old sets, given oldest first. What does not serve goes first, then what can be spared.
pub(super) fn old_sizes(bounds: &Bounds, new: &Count, old: &[Count]) -> Vec<i32> {
    let mut sizes: Vec<i32> = old.iter().map(|count| count.spec).collect();
    // However unhealthy the old sets are, they keep as many places as the new set cannot fill yet.
    let mut removable = sizes.iter().sum::<i32>() + new.available_now() - bounds.at_least();
    if removable <= 0 {
        return sizes;
    }
    for (size, count) in sizes.iter_mut().zip(old) {
        let step = (*size - count.smallest_keeping(count.available_now())).min(removable);
        *size -= step;
        removable -= step;
    }
    let available: i32 = new.available_now() + old.iter().map(Count::available_now).sum::<i32>();
    let mut spare = (available - bounds.at_least()).max(0);
    for size in &mut sizes {
        let step = (*size).min(spare);
        *size -= step;
        spare -= step;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn healthy(spec: i32) -> Count {
        Count { spec, live: spec, available: spec, ..Count::default() }
    }

    fn booting(spec: i32) -> Count {
        Count { spec, live: spec, expendable: spec, ..Count::default() }
    }

    #[rstest]
    #[case::numbers(3, Amount::Machines(1), Amount::Machines(0), (1, 0))]
    #[case::surge_rounds_up(10, Amount::Percent(25), Amount::Percent(25), (3, 2))]
    #[case::exact_share(8, Amount::Percent(25), Amount::Percent(25), (2, 2))]
    #[case::both_zero(3, Amount::Machines(0), Amount::Machines(0), (0, 1))]
    #[case::both_round_to_zero(0, Amount::Percent(10), Amount::Percent(10), (0, 0))]
    #[case::unavailable_rounds_to_zero(3, Amount::Machines(0), Amount::Percent(10), (0, 1))]
    #[case::capped_by_replicas(3, Amount::Machines(0), Amount::Machines(7), (0, 3))]
    #[case::nothing_wanted(0, Amount::Machines(2), Amount::Machines(2), (2, 0))]
    #[case::negative(3, Amount::Machines(-2), Amount::Machines(-1), (0, 1))]
    #[case::beyond_all_numbers(2_000_000_000, Amount::Percent(2_000_000_000), Amount::Percent(0), (i32::MAX, 0))]
    fn amounts_become_bounds(
        #[case] desired: i32,
        #[case] surge: Amount,
        #[case] unavailable: Amount,
        #[case] expected: (i32, i32),
    ) {
        let bounds = Bounds::resolve(desired, surge, unavailable);
        assert_eq!((bounds.surge, bounds.unavailable), expected);
    }

    #[rstest]
    #[case::room_for_the_surge((3, 1, 0), healthy(0), vec![healthy(3)], 1)]
    #[case::no_room((3, 0, 1), healthy(0), vec![healthy(3)], 0)]
    #[case::terminating_machines_take_room((3, 1, 0), healthy(1), vec![Count { terminating: 1, ..healthy(2) }], 1)]
    #[case::machines_to_come_take_room((3, 1, 0), healthy(0), vec![Count { spec: 3, live: 1, ..Count::default() }], 1)]
    #[case::machines_that_are_being_created_take_room_even_if_the_set_was_made_smaller((3, 1, 0), healthy(1), vec![Count { spec: 1, live: 1, coming: 1, ..Count::default() }], 2)]
    #[case::machines_to_go_take_room((3, 1, 0), healthy(1), vec![Count { spec: 1, live: 3, ..Count::default() }], 1)]
    #[case::a_replacement_takes_room_beside_what_it_replaces((3, 1, 0), Count { spec: 2, live: 1, terminating: 1, ..Count::default() }, vec![healthy(1)], 2)]
    #[case::never_beyond_what_is_wanted((3, 9, 0), healthy(1), vec![], 3)]
    #[case::too_large((3, 1, 0), healthy(5), vec![healthy(1)], 3)]
    fn the_new_set_grows_into_the_room(
        #[case] (desired, surge, unavailable): (i32, i32, i32),
        #[case] new: Count,
        #[case] old: Vec<Count>,
        #[case] expected: i32,
    ) {
        assert_eq!(new_size(&Bounds { desired, surge, unavailable }, &new, &old), expected);
    }

    #[rstest]
    #[case::one_spare((3, 1, 0), healthy(1), vec![healthy(3)], vec![2])]
    #[case::none_spare_while_new_boot((3, 1, 0), booting(1), vec![healthy(3)], vec![3])]
    #[case::one_may_be_missing((3, 0, 1), healthy(0), vec![healthy(3)], vec![2])]
    #[case::what_is_asked_for_counts_as_gone((3, 0, 1), healthy(0), vec![Count { spec: 2, ..healthy(3) }], vec![2])]
    #[case::unhealthy_first((4, 0, 2), healthy(0), vec![healthy(2), booting(2)], vec![2, 0])]
    #[case::unhealthy_keep_their_places_until_new_serve((3, 1, 0), booting(1), vec![booting(3)], vec![3])]
    #[case::oldest_first((4, 2, 0), healthy(2), vec![healthy(2), healthy(2)], vec![0, 2])]
    #[case::all_when_the_new_serve((3, 1, 0), healthy(3), vec![booting(1)], vec![0])]
    #[case::a_machine_that_might_not_go_first_is_not_expendable((3, 0, 1), healthy(0), vec![Count { spec: 3, live: 3, available: 2, ..Count::default() }], vec![3])]
    fn old_sets_shrink_by_what_can_be_spared(
        #[case] (desired, surge, unavailable): (i32, i32, i32),
        #[case] new: Count,
        #[case] old: Vec<Count>,
        #[case] expected: Vec<i32>,
    ) {
        assert_eq!(old_sizes(&Bounds { desired, surge, unavailable }, &new, &old), expected);
    }

    prop_compose! {
        pub(crate) fn any_count()(
            spec in 0..8, available in 0..6, expendable in 0..4, other in 0..3, coming in 0..3, terminating in 0..4,
        ) -> Count {
            Count { spec, live: available + expendable + other, coming, terminating, available, expendable }
        }
    }

    proptest! {
        #[test]
        fn sizes_respect_the_bounds(
            desired in 0..10, surge in 0..4, unavailable in 0..4,
            new in any_count(), old in proptest::collection::vec(any_count(), 0..4),
        ) {
            let bounds = Bounds::resolve(desired, Amount::Machines(surge), Amount::Machines(unavailable));
            let planned = |new: &Count, old: &[Count]| new.planned() + old.iter().map(Count::planned).sum::<i32>();
            let grown = Count { spec: new_size(&bounds, &new, &old), ..new };
            if grown.spec > new.spec {
                prop_assert!(planned(&grown, &old) <= bounds.at_most());
            }
            let available = |sizes: &[i32]| new.available_now() + old.iter().zip(sizes).map(|(count, size)| count.available_at(*size)).sum::<i32>();
            let before: Vec<i32> = old.iter().map(|count| count.spec).collect();
            let after = old_sizes(&bounds, &new, &old);
            prop_assert!(after.iter().zip(&before).all(|(after, before)| (0..=*before).contains(after)));
            prop_assert!(available(&after) >= available(&before).min(bounds.at_least()));
        }

        #[test]
        fn the_smallest_size_is_exact(count in any_count(), keep in 1..6) {
            let size = count.smallest_keeping(keep);
            prop_assert!(size <= count.spec);
            if count.available_now() >= keep {
                prop_assert!(count.available_at(size) >= keep);
                prop_assert!(size == 0 || count.available_at(size - 1) < keep);
            }
        }
    }
}
