//! Distributes a change of `spec.replicas` over the sets, before the rollout continues.

use crate::machine_deployment::{
    bounds::ReplicaBounds,
    counts::{ReplicaCounts, ScalableSet},
};

/// Other inputs of scaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScalingInput {
    /// The deployment is paused, so no rollout follows.
    pub paused: bool,
    /// Machines of two sets may exist at the same time.
    pub may_overlap: bool,
    /// Machines of sets that are being deleted. They count against maxSurge as long as they exist.
    pub departing: ReplicaCounts,
}

/// True if `spec.replicas` changed since the sets were last scaled. Without a new set, the rollout that creates one
/// decides; if the deployment is paused, the existing sets are scaled.
pub(super) fn is_pending(bounds: &ReplicaBounds, sets: &[ScalableSet], paused: bool) -> bool {
    let has_new = sets.iter().any(|set| set.is_new);
    let any_active = sets.iter().any(ScalableSet::is_active);
    let stand_in = if has_new || any_active { None } else { sets.last() };
    (has_new || paused)
        && sets.iter().filter(|set| set.is_active() || set.is_new).chain(stand_in).any(|set| match set.desired {
            Some(desired) => desired != bounds.desired,
            // Adopted and never scaled.
            None => paused && set.is_active(),
        })
}

/// The desired replicas of each set, in the order given, before [`capped`] applies maxSurge.
pub(super) fn desired_replicas(bounds: &ReplicaBounds, sets: &[ScalableSet], mode: ScalingInput) -> Vec<i32> {
    let mut replicas: Vec<i32> = sets.iter().map(|set| set.counts.replicas).collect();
    let active: Vec<usize> = (0..).zip(sets).filter(|(_, set)| set.is_active()).map(|(index, _)| index).collect();
    match active.as_slice() {
        [] => {
            let target = sets.iter().position(|set| set.is_new).or_else(|| sets.len().checked_sub(1));
            give_all(bounds, sets, mode, target, &mut replicas);
        }
        [only] => give_all(bounds, sets, mode, Some(*only), &mut replicas),
        _ if sets.iter().any(|set| is_saturated(bounds, set)) => {
            for (count, _) in replicas.iter_mut().zip(sets).filter(|(_, set)| !set.is_new) {
                *count = 0;
            }
        }
        _ => {
            let allowed = if bounds.desired == 0 { 0 } else { bounds.max_replicas() };
            let surplus = replicas.iter().sum::<i32>() - allowed;
            if surplus > 0 {
                shrink(bounds, sets, surplus, &mut replicas);
            } else if mode.paused && mode.may_overlap {
                // If not paused, the rollout that follows grows the new set and counts terminating Machines.
                for (count, _) in replicas.iter_mut().zip(sets).filter(|(_, set)| set.is_new) {
                    *count += (-surplus).min(bounds.desired - *count).max(0);
                }
            }
        }
    }
    replicas
}

/// The part of `replicas` that maxSurge allows now. A change of `spec.replicas` does not wait for deletions, so
/// terminating Machines do not count here; in a rollout they do (see [`super::rolling_update`]).
pub(super) fn capped(bounds: &ReplicaBounds, sets: &[ScalableSet], mode: ScalingInput, replicas: &[i32]) -> Vec<i32> {
    let kept = replicas.iter().zip(sets).map(|(count, set)| set.counts.asked_after(set.counts.replicas.min(*count)));
    let mut headroom = (bounds.max_replicas() - mode.departing.asked() - kept.sum::<i32>()).max(0);
    let capped = replicas.iter().zip(sets).map(|(count, set)| {
        let now = set.counts.asked();
        let step = (*count - now).clamp(0, headroom);
        headroom -= step;
        if *count > set.counts.replicas { (*count).min(now + step) } else { *count }
    });
    capped.collect()
}

/// One set gets all replicas. If sets must not overlap, it grows only when the others have no Machines left.
fn give_all(
    bounds: &ReplicaBounds,
    sets: &[ScalableSet],
    mode: ScalingInput,
    target: Option<usize>,
    replicas: &mut [i32],
) {
    let Some(target) = target else { return };
    let alone = mode.departing.planned() == 0
        && (0..).zip(sets).all(|(index, set)| index == target || set.counts.planned() == 0);
    if let Some(count) = replicas.get_mut(target)
        && (mode.may_overlap || alone || bounds.desired < *count)
    {
        *count = bounds.desired;
    }
}

fn is_saturated(bounds: &ReplicaBounds, set: &ScalableSet) -> bool {
    set.is_new
        && set.counts.replicas == bounds.desired
        && set.desired == Some(bounds.desired)
        && set.counts.available_now() == bounds.desired
}

/// Removes `surplus` replicas from the sets: first those of Machines that the autoscaler chose, then in proportion, the largest
/// set first, but never below the minimum of available Machines. The rollout removes the rest.
fn shrink(bounds: &ReplicaBounds, sets: &[ScalableSet], surplus: i32, replicas: &mut [i32]) {
    let mut order: Vec<usize> = (0..sets.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(sets.get(*index).map(|set| set.counts.replicas)));
    let mut left = surplus;
    for (count, set) in replicas.iter_mut().zip(sets) {
        let step = set.chosen.min(*count).min(left);
        *count -= step;
        left -= step;
    }
    for index in &order {
        let (Some(count), Some(set)) = (replicas.get_mut(*index), sets.get(*index)) else { continue };
        let step = (*count - fair_share(bounds, set)).clamp(0, left);
        *count -= step;
        left -= step;
    }
    for index in &order {
        let Some(count) = replicas.get_mut(*index) else { continue };
        let step = (*count).min(left);
        *count -= step;
        left -= step;
    }
    keep_minimum(bounds, sets, &order, replicas);
}

/// `replicas`, or as many as leave the minimum available. A set cannot see that the Nodes of some Machines wait for an
/// update in place, and may delete serving Machines before them.
pub(super) fn keeping_minimum(bounds: &ReplicaBounds, sets: &[ScalableSet], mut replicas: Vec<i32>) -> Vec<i32> {
    let order: Vec<usize> = (0..sets.len()).collect();
    keep_minimum(bounds, sets, &order, &mut replicas);
    replicas
}

fn keep_minimum(bounds: &ReplicaBounds, sets: &[ScalableSet], order: &[usize], replicas: &mut [i32]) {
    let available: i32 = sets.iter().map(|set| set.counts.available_now()).sum();
    let mut spare = (available - bounds.min_available()).max(0);
    for index in order {
        let (Some(count), Some(set)) = (replicas.get_mut(*index), sets.get(*index)) else { continue };
        let now = set.counts.available_now();
        *count = set.counts.fewest_keeping(now - spare).max(*count);
        spare -= now - set.counts.available_after(*count);
    }
}

/// The share of a set in the new total, rounded to the nearest.
fn fair_share(bounds: &ReplicaBounds, set: &ScalableSet) -> i32 {
    if bounds.desired == 0 {
        return 0;
    }
    let total = i64::from(set.max.filter(|max| *max > 0).unwrap_or_else(|| set.counts.current().max(1)));
    let doubled = 2 * i64::from(set.counts.replicas) * i64::from(bounds.max_replicas()) + total;
    i32::try_from(doubled / (2 * total)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const NONE: ReplicaCounts = ReplicaCounts {
        replicas: 0,
        live: 0,
        deleting: 0,
        unreadable: 0,
        creating: 0,
        terminating: 0,
        available: 0,
        expendable: 0,
    };
    const ROLLING: ScalingInput = ScalingInput { paused: false, may_overlap: true, departing: NONE };
    const PAUSED: ScalingInput = ScalingInput { paused: true, may_overlap: true, departing: NONE };
    const RECREATE_PAUSED: ScalingInput = ScalingInput { paused: true, may_overlap: false, departing: NONE };
    const RECREATE_PAUSED_DEPARTING: ScalingInput =
        ScalingInput { paused: true, may_overlap: false, departing: ReplicaCounts { terminating: 1, ..NONE } };

    /// A healthy old set, last sized for `sized_for` replicas and a maxSurge of 3.
    fn old(spec: i32, sized_for: i32) -> ScalableSet {
        let counts = ReplicaCounts { replicas: spec, live: spec, available: spec, ..ReplicaCounts::default() };
        ScalableSet { counts, chosen: 0, is_new: false, desired: Some(sized_for), max: Some(sized_for + 3) }
    }

    fn new(spec: i32, sized_for: i32) -> ScalableSet {
        ScalableSet { is_new: true, ..old(spec, sized_for) }
    }

    fn booting(set: ScalableSet) -> ScalableSet {
        ScalableSet { counts: ReplicaCounts { available: 0, expendable: set.counts.live, ..set.counts }, ..set }
    }

    /// Some Machines do not serve, and the set may delete the others before them.
    fn waiting(set: ScalableSet, count: i32) -> ScalableSet {
        let available = set.counts.available - count;
        ScalableSet { counts: ReplicaCounts { available, ..set.counts }, ..set }
    }

    fn bounds(desired: i32) -> ReplicaBounds {
        ReplicaBounds { desired, max_surge: 3, max_unavailable: 2.min(desired) }
    }

    #[rstest]
    #[case::only_set(ROLLING, 5, vec![new(3, 3)], vec![5])]
    #[case::only_set_shrinks(ROLLING, 1, vec![new(3, 3)], vec![1])]
    #[case::even_an_old_one(ROLLING, 5, vec![old(3, 3), new(0, 3)], vec![5, 0])]
    #[case::none_active(ROLLING, 2, vec![old(0, 0), new(0, 0)], vec![0, 2])]
    #[case::none_active_and_none_new(PAUSED, 2, vec![old(0, 0), old(0, 0)], vec![0, 2])]
    #[case::proportional(ROLLING, 5, vec![old(8, 10), booting(new(5, 10))], vec![5, 3])]
    #[case::no_more_than_the_surplus(ROLLING, 5, vec![old(4, 10), old(4, 10), new(5, 10)], vec![2, 3, 3])]
    #[case::first_where_the_autoscaler_chose(ROLLING, 5, vec![old(4, 6), ScalableSet { chosen: 1, ..new(5, 6) }], vec![4, 4])]
    #[case::as_many_as_it_chose(ROLLING, 4, vec![ScalableSet { chosen: 2, ..old(4, 6) }, new(5, 6)], vec![2, 5])]
    #[case::left_over_from_the_largest(ROLLING, 5, vec![old(4, 1), new(6, 1)], vec![4, 4])]
    #[case::to_nothing(ROLLING, 0, vec![old(8, 10), new(5, 10)], vec![0, 0])]
    #[case::growth_is_left_to_the_rollout(ROLLING, 12, vec![old(8, 10), new(5, 10)], vec![8, 5])]
    #[case::growth_while_paused(PAUSED, 12, vec![old(8, 10), new(5, 10)], vec![8, 7])]
    #[case::never_beyond_what_is_desired(PAUSED, 5, vec![old(1, 4), new(4, 4)], vec![1, 5])]
    #[case::saturated(ROLLING, 5, vec![old(2, 4), new(5, 5)], vec![0, 5])]
    #[case::availability_is_kept(ROLLING, 5, vec![old(3, 10), booting(new(10, 10))], vec![3, 6])]
    #[case::recreate_never_mixes(RECREATE_PAUSED, 5, vec![ScalableSet { counts: ReplicaCounts { terminating: 1, ..ReplicaCounts::default() }, ..old(0, 3) }, new(3, 3)], vec![0, 3])]
    #[case::recreate_alone(RECREATE_PAUSED, 5, vec![old(0, 3), new(3, 3)], vec![0, 5])]
    #[case::recreate_beside_a_set_that_goes(RECREATE_PAUSED_DEPARTING, 5, vec![old(0, 3), new(3, 3)], vec![0, 3])]
    fn replicas_are_spread(
        #[case] mode: ScalingInput,
        #[case] desired: i32,
        #[case] sets: Vec<ScalableSet>,
        #[case] expected: Vec<i32>,
    ) {
        assert_eq!(desired_replicas(&bounds(desired), &sets, mode), expected);
    }

    #[rstest]
    #[case::room_for_all(NONE, vec![new(3, 3)], vec![8], vec![8])]
    #[case::machines_of_a_set_that_goes_take_room(ReplicaCounts { live: 3, creating: 1, ..NONE }, vec![new(1, 1)], vec![8], vec![7])]
    #[case::until_they_terminate(ReplicaCounts { terminating: 4, ..NONE }, vec![new(1, 1)], vec![8], vec![8])]
    #[case::so_do_machines_that_are_to_go(NONE, vec![ScalableSet { counts: ReplicaCounts { live: 4, ..NONE }, ..old(0, 3) }, new(3, 3)], vec![0, 8], vec![0, 7])]
    #[case::what_shrinks_makes_none_at_once(NONE, vec![old(6, 3), new(3, 3)], vec![2, 8], vec![2, 5])]
    #[case::what_is_there_is_kept(ReplicaCounts { live: 20, ..NONE }, vec![old(2, 3), new(3, 3)], vec![2, 4], vec![2, 3])]
    #[case::machines_that_are_there_need_none(ReplicaCounts { live: 20, ..NONE }, vec![ScalableSet { counts: ReplicaCounts { replicas: 1, live: 3, ..NONE }, ..new(1, 3) }], vec![4], vec![3])]
    fn growth_takes_the_room_there_is(
        #[case] departing: ReplicaCounts,
        #[case] sets: Vec<ScalableSet>,
        #[case] replicas: Vec<i32>,
        #[case] expected: Vec<i32>,
    ) {
        assert_eq!(capped(&bounds(8), &sets, ScalingInput { departing, ..ROLLING }, &replicas), expected);
    }

    #[rstest]
    #[case::enough_serve(vec![new(8, 8)], vec![3], vec![3])]
    #[case::what_serves_goes_first(vec![waiting(new(8, 8), 6)], vec![3], vec![7])]
    #[case::as_far_as_possible(vec![waiting(new(8, 8), 4)], vec![3], vec![5])]
    #[case::others_go_first(vec![old(2, 8), waiting(old(3, 8), 2)], vec![0, 0], vec![0, 3])]
    #[case::growth_stays(vec![waiting(new(3, 3), 3)], vec![5], vec![5])]
    fn sets_shrink_as_far_as_the_minimum_allows(
        #[case] sets: Vec<ScalableSet>,
        #[case] replicas: Vec<i32>,
        #[case] expected: Vec<i32>,
    ) {
        assert_eq!(keeping_minimum(&bounds(3), &sets, replicas), expected);
    }

    #[rstest]
    #[case::current(false, vec![new(3, 3)], false)]
    #[case::changed(false, vec![new(3, 4)], true)]
    #[case::changed_for_an_old_set(false, vec![old(3, 4), new(0, 3)], true)]
    #[case::an_empty_old_set_does_not_count(false, vec![old(0, 4), new(3, 3)], false)]
    #[case::an_empty_new_set_counts(false, vec![new(0, 0)], true)]
    #[case::unknown_is_not_changed(false, vec![ScalableSet { desired: None, ..new(1, 1) }], false)]
    #[case::unless_no_rollout_follows(true, vec![ScalableSet { desired: None, ..new(1, 1) }], true)]
    #[case::without_a_new_set_the_rollout_decides(false, vec![old(3, 4)], false)]
    #[case::without_a_new_set_while_paused(true, vec![old(3, 4)], true)]
    #[case::none_active_while_paused(true, vec![old(0, 0)], true)]
    #[case::paused_in_mid_rollout(true, vec![old(0, 2), new(2, 3)], false)]
    fn a_change_of_replicas_is_noticed(#[case] paused: bool, #[case] sets: Vec<ScalableSet>, #[case] expected: bool) {
        assert_eq!(is_pending(&bounds(3), &sets, paused), expected);
    }
}
