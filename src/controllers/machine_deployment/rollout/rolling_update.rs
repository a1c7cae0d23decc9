//! RollingUpdate: scales the new set up and the old ones down within the bounds.

use super::RolloutPlanner;
use crate::machine_deployment::{
    bounds::ReplicaBounds,
    counts::ReplicaCounts,
    steps::{PlannedReplicas, scale_set},
};

impl RolloutPlanner<'_> {
    pub(super) fn rolling_update(&mut self) {
        let bounds = self.bounds;
        let old: Vec<ReplicaCounts> = self.sets.old_sets().map(|set| set.counts).collect();
        let Some(new) = self.sets.new_set().map(|set| set.counts) else {
            let replicas = new_replicas(bounds, &ReplicaCounts::default(), &old);
            return self.create(replicas);
        };
        let planned = new.planned() + old.iter().map(ReplicaCounts::planned).sum::<i32>();
        let why = format!("{planned} planned < {} replicas + {} maxSurge", bounds.desired, bounds.max_surge);
        if let Some(set) = self.sets.new_set_mut() {
            let target = new_replicas(bounds, &new, &old);
            let why = if target < new.replicas { format!("spec.replicas is {}", bounds.desired) } else { why };
            scale_set(set, bounds, PlannedReplicas::Final(target), &why);
        }
        let available = available(&new, &old);
        for (set, target) in self.sets.old_sets_mut().zip(old_replicas(bounds, &new, &old)) {
            let why = target.why.map(|why| why.text(bounds, available)).unwrap_or_default();
            scale_set(set, bounds, PlannedReplicas::Final(target.replicas), &why);
        }
    }
}

/// The replicas of the new set. All Machines, including terminating ones, count against maxSurge, so a rollout waits
/// for real deletions.
pub(super) fn new_replicas(bounds: &ReplicaBounds, new: &ReplicaCounts, old: &[ReplicaCounts]) -> i32 {
    if new.replicas >= bounds.desired {
        return bounds.desired;
    }
    let planned: i32 = old.iter().map(ReplicaCounts::planned).sum::<i32>() + new.planned();
    let headroom = (bounds.max_replicas() - planned).max(0);
    new.replicas + headroom.min(bounds.desired - new.replicas)
}

/// Target replicas of an old set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OldSetTarget {
    pub replicas: i32,
    /// Why that is fewer than the current replicas.
    pub why: Option<ScaleDownReason>,
}

/// Why an old set is scaled down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScaleDownReason {
    /// Machines that are not available are deleted first.
    NotServing,
    /// More Machines are available than required.
    Surplus,
    /// Nothing else can progress, because this many unavailable Machines are kept.
    Outliving(i32),
}

impl ScaleDownReason {
    fn text(self, bounds: &ReplicaBounds, available: i32) -> String {
        let floor = format!("{} replicas - {} maxUnavailable", bounds.desired, bounds.max_unavailable);
        match self {
            Self::NotServing => "machines that are not available are deleted first".to_owned(),
            Self::Surplus => format!("{available} available > {floor}"),
            Self::Outliving(count) => {
                format!("{available} available > {floor} - {count} out of service and kept (preserved or unreadable)")
            }
        }
    }
}

/// The replicas of the old sets, given oldest first. Unavailable Machines are deleted first, then available ones beyond
/// the minimum.
///
/// Unavailable Machines that a set keeps longer than available ones (preserved, unreadable) can use up maxSurge and
/// maxUnavailable. When nothing else can progress, they count as unavailable beyond maxUnavailable; otherwise the
/// rollout would be stuck for as long as they are kept.
pub(super) fn old_replicas(bounds: &ReplicaBounds, new: &ReplicaCounts, old: &[ReplicaCounts]) -> Vec<OldSetTarget> {
    let mut targets: Vec<OldSetTarget> =
        old.iter().map(|count| OldSetTarget { replicas: count.replicas, why: None }).collect();
    // However unhealthy the old sets are, they keep as many replicas as the new set does not have yet.
    let total: i32 = old.iter().map(|count| count.replicas).sum();
    let mut removable = total + new.available_now() - bounds.min_available();
    let may_shrink = removable > 0;
    for (target, count) in targets.iter_mut().zip(old) {
        let fewest = count.fewest_keeping(count.available_now());
        removable -= target.lower_by((target.replicas - fewest).min(removable), ScaleDownReason::NotServing);
    }
    let spare = available(new, old) - bounds.min_available();
    if spare > 0 && may_shrink {
        lower_oldest_first(&mut targets, spare, ScaleDownReason::Surplus);
    } else if is_stuck(bounds, new, old) && targets.iter().all(|target| target.why.is_none()) {
        lower_beside_outliving(&mut targets, bounds, new, old);
    }
    targets
}

/// Scales down available Machines below the minimum, one for each unavailable Machine that is kept.
fn lower_beside_outliving(
    targets: &mut [OldSetTarget],
    bounds: &ReplicaBounds,
    new: &ReplicaCounts,
    old: &[ReplicaCounts],
) {
    let places: i32 = old.iter().map(ReplicaCounts::asked).sum();
    let outliving: i32 = old.iter().map(ReplicaCounts::outliving).sum();
    let removable = places + new.available_now() - bounds.min_available();
    let spare = available(new, old) - (bounds.min_available() - outliving);
    let mut count = removable.min(spare);
    for (target, counts) in targets.iter_mut().zip(old) {
        // A set does not delete unreadable Machines: it deletes only if replicas are below the number of readable ones.
        let acts_from = target.replicas.min(counts.staying());
        let step = acts_from.min(count);
        if step > 0 {
            *target = OldSetTarget { replicas: acts_from - step, why: Some(ScaleDownReason::Outliving(outliving)) };
            count -= step;
        }
    }
}

fn lower_oldest_first(targets: &mut [OldSetTarget], mut count: i32, why: ScaleDownReason) {
    for target in targets {
        count -= target.lower_by(target.replicas.min(count.max(0)), why);
    }
}

impl OldSetTarget {
    fn lower_by(&mut self, count: i32, why: ScaleDownReason) -> i32 {
        if count > 0 {
            self.replicas -= count;
            self.why = Some(why);
        }
        count.max(0)
    }
}

/// Every set has reached its replicas, all Machines of the new set are available, and it cannot grow within maxSurge.
fn is_stuck(bounds: &ReplicaBounds, new: &ReplicaCounts, old: &[ReplicaCounts]) -> bool {
    let is_idle = |count: &ReplicaCounts| {
        count.creating + count.deleting + count.terminating == 0
            && count.live <= count.replicas
            && count.live + count.unreadable >= count.replicas
    };
    new_replicas(bounds, new, old) == new.replicas
        && new.available == new.replicas
        && old.iter().chain([new]).all(is_idle)
}

fn available(new: &ReplicaCounts, old: &[ReplicaCounts]) -> i32 {
    new.available_now() + old.iter().map(ReplicaCounts::available_now).sum::<i32>()
}

#[cfg(test)]
mod tests {
    use super::super::super::{
        bounds::IntOrPercent,
        counts::examples::{any_counts, booting, healthy, with_outliving},
    };
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn bounds((desired, max_surge, max_unavailable): (i32, i32, i32)) -> ReplicaBounds {
        ReplicaBounds { desired, max_surge, max_unavailable }
    }

    #[rstest]
    #[case::room_for_the_surge((3, 1, 0), healthy(0), vec![healthy(3)], 1)]
    #[case::no_room((3, 0, 1), healthy(0), vec![healthy(3)], 0)]
    #[case::terminating_machines_take_room((3, 1, 0), healthy(1), vec![ReplicaCounts { terminating: 1, ..healthy(2) }], 1)]
    #[case::delete_calls_in_flight_take_room_and_so_do_replacements((3, 1, 0), healthy(1), vec![ReplicaCounts { replicas: 2, live: 3, deleting: 1, available: 2, ..ReplicaCounts::default() }], 1)]
    #[case::machines_to_come_take_room((3, 1, 0), healthy(0), vec![ReplicaCounts { replicas: 3, live: 1, ..ReplicaCounts::default() }], 1)]
    #[case::machines_that_are_being_created_take_room_even_if_the_set_was_made_smaller((3, 1, 0), healthy(1), vec![ReplicaCounts { replicas: 1, live: 1, creating: 1, ..ReplicaCounts::default() }], 2)]
    #[case::machines_to_go_take_room((3, 1, 0), healthy(1), vec![ReplicaCounts { replicas: 1, live: 3, ..ReplicaCounts::default() }], 1)]
    #[case::a_replacement_takes_room_beside_what_it_replaces((3, 1, 0), ReplicaCounts { replicas: 2, live: 1, terminating: 1, ..ReplicaCounts::default() }, vec![healthy(1)], 2)]
    #[case::never_beyond_what_is_desired((3, 9, 0), healthy(1), vec![], 3)]
    #[case::too_large((3, 1, 0), healthy(5), vec![healthy(1)], 3)]
    fn the_new_set_grows_into_the_headroom(
        #[case] knobs: (i32, i32, i32),
        #[case] new: ReplicaCounts,
        #[case] old: Vec<ReplicaCounts>,
        #[case] expected: i32,
    ) {
        assert_eq!(new_replicas(&bounds(knobs), &new, &old), expected);
    }

    fn replicas_of_old(knobs: (i32, i32, i32), new: &ReplicaCounts, old: &[ReplicaCounts]) -> Vec<i32> {
        old_replicas(&bounds(knobs), new, old).iter().map(|target| target.replicas).collect()
    }

    #[rstest]
    #[case::one_spare((3, 1, 0), healthy(1), vec![healthy(3)], vec![2])]
    #[case::none_spare_while_new_boot((3, 1, 0), booting(1), vec![healthy(3)], vec![3])]
    #[case::one_may_be_missing((3, 0, 1), healthy(0), vec![healthy(3)], vec![2])]
    #[case::what_is_asked_for_counts_as_gone((3, 0, 1), healthy(0), vec![ReplicaCounts { replicas: 2, ..healthy(3) }], vec![2])]
    #[case::delete_calls_in_flight_do_not_serve((3, 2, 0), ReplicaCounts { replicas: 2, live: 2, deleting: 2, ..ReplicaCounts::default() }, vec![healthy(3)], vec![3])]
    #[case::unhealthy_first((4, 0, 2), healthy(0), vec![healthy(2), booting(2)], vec![2, 0])]
    #[case::unhealthy_keep_their_places_until_new_serve((3, 1, 0), booting(1), vec![booting(3)], vec![3])]
    #[case::oldest_first((4, 2, 0), healthy(2), vec![healthy(2), healthy(2)], vec![0, 2])]
    #[case::all_when_the_new_serve((3, 1, 0), healthy(3), vec![booting(1)], vec![0])]
    #[case::not_what_may_serve_when_a_surplus_has_left((1, 1, 0), healthy(0), vec![ReplicaCounts { replicas: 1, live: 4, available: 3, ..ReplicaCounts::default() }, booting(1)], vec![1, 0])]
    fn old_sets_shrink_by_what_can_be_spared(
        #[case] knobs: (i32, i32, i32),
        #[case] new: ReplicaCounts,
        #[case] old: Vec<ReplicaCounts>,
        #[case] expected: Vec<i32>,
    ) {
        assert_eq!(replicas_of_old(knobs, &new, &old), expected);
    }

    #[rstest]
    #[case::surge_taken_up((3, 1, 0), healthy(1), vec![with_outliving(3, 1)], vec![2])]
    #[case::unavailable_taken_up((3, 0, 1), healthy(0), vec![with_outliving(3, 1)], vec![2])]
    #[case::both_taken_up((4, 1, 1), healthy(1), vec![with_outliving(4, 2)], vec![2])]
    #[case::as_the_last_old_machine((3, 1, 0), healthy(3), vec![with_outliving(1, 1)], vec![0])]
    #[case::unreadable_machines_are_not_deleted((3, 1, 0), healthy(1), vec![with_unreadable(3)], vec![1])]
    #[case::and_again((3, 1, 0), healthy(2), vec![with_unreadable(1 + 1)], vec![0])]
    #[case::not_while_the_new_set_boots((3, 1, 0), booting(1), vec![with_outliving(3, 1)], vec![3])]
    #[case::not_while_the_new_set_can_grow((3, 1, 0), healthy(0), vec![with_outliving(3, 1)], vec![3])]
    #[case::not_while_a_machine_leaves((3, 2, 0), healthy(1), vec![ReplicaCounts { terminating: 1, ..with_outliving(3, 1) }], vec![3])]
    #[case::not_while_maxunavailable_suffices((10, 1, 2), healthy(1), vec![with_outliving(10, 1)], vec![8])]
    fn a_machine_that_outlives_those_that_serve_does_not_stop_the_rollout(
        #[case] knobs: (i32, i32, i32),
        #[case] new: ReplicaCounts,
        #[case] old: Vec<ReplicaCounts>,
        #[case] expected: Vec<i32>,
    ) {
        assert_eq!(replicas_of_old(knobs, &new, &old), expected);
    }

    fn with_unreadable(asked: i32) -> ReplicaCounts {
        ReplicaCounts { replicas: asked - 1, unreadable: 1, ..healthy(asked - 1) }
    }

    /// Sets follow their spec, new Machines serve at once, and kept ones are deleted last.
    fn roll_to_the_end(bounds: &ReplicaBounds, mut new: ReplicaCounts, mut old: ReplicaCounts) -> ReplicaCounts {
        for _ in 0..100 {
            let grown = new_replicas(bounds, &new, &[old]);
            let kept = old.outliving();
            let target = old_replicas(bounds, &new, &[old])[0].replicas;
            new = healthy(grown);
            old = with_outliving(target, kept.min(target));
        }
        assert_eq!(old.replicas, 0, "it stands still at {new:?} {old:?}");
        new
    }

    proptest! {
        #[test]
        fn a_rollout_ends_however_many_old_machines_are_out_of_service_and_kept(
            desired in 1..8_i32, surge in 0..4, unavailable in 0..4, kept in 0..8_i32,
        ) {
            let bounds = ReplicaBounds::resolve(desired, IntOrPercent::Int(surge), IntOrPercent::Int(unavailable));
            let new = roll_to_the_end(&bounds, healthy(0), with_outliving(desired, kept.min(desired)));
            prop_assert_eq!(new, healthy(desired));
        }

        #[test]
        fn targets_respect_the_bounds(
            desired in 0..10, surge in 0..4, unavailable in 0..4,
            new in any_counts(), old in proptest::collection::vec(any_counts(), 0..4),
        ) {
            let bounds = ReplicaBounds::resolve(desired, IntOrPercent::Int(surge), IntOrPercent::Int(unavailable));
            let planned = |new: &ReplicaCounts, old: &[ReplicaCounts]| {
                new.planned() + old.iter().map(ReplicaCounts::planned).sum::<i32>()
            };
            let grown = ReplicaCounts { replicas: new_replicas(&bounds, &new, &old), ..new };
            if grown.replicas > new.replicas {
                prop_assert!(planned(&grown, &old) <= bounds.max_replicas());
            }
            let available = |replicas: &[i32]| {
                let old = old.iter().zip(replicas).map(|(count, replicas)| count.available_after(*replicas));
                new.available_now() + old.sum::<i32>()
            };
            let before: Vec<i32> = old.iter().map(|count| count.replicas).collect();
            let after: Vec<i32> = old_replicas(&bounds, &new, &old).iter().map(|target| target.replicas).collect();
            prop_assert!(after.iter().zip(&before).all(|(after, before)| (0..=*before).contains(after)));
            let outliving: i32 = old.iter().map(ReplicaCounts::outliving).sum();
            prop_assert!(available(&after) >= available(&before).min(bounds.min_available() - outliving));
            if !is_stuck(&bounds, &new, &old) {
                prop_assert!(available(&after) >= available(&before).min(bounds.min_available()));
            }
        }
    }
}
