//! What a change of `spec.replicas` means for the sets, before any rollout goes on.

use super::rollout::{Bounds, Count};

/// What scaling reads of a set. Sets are given oldest first; those being deleted are left out, and count in
/// [`Mode::departing`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalable {
    pub count: Count,
    /// The set makes Machines of the current template.
    pub is_new: bool,
    /// Replicas of the deployment when the set was last sized, as annotated.
    pub desired: Option<i32>,
    /// Replicas plus surge when the set was last sized, as annotated.
    pub max: Option<i32>,
}

impl Scalable {
    fn is_active(&self) -> bool {
        self.count.spec > 0
    }
}

/// What else decides about scaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    /// No rollout comes after this that would use the room.
    pub paused: bool,
    /// Machines of two sets may exist side by side.
    pub mixes: bool,
    /// The Machines of sets that are being deleted: they go, but as long as they are there they take room.
    pub departing: Count,
}

/// True if the replicas were changed since the sets were last sized. Without a new set, a rollout that makes one decides;
/// but if it is paused, what there is must do.
pub(super) fn is_pending(bounds: &Bounds, sets: &[Scalable], paused: bool) -> bool {
    let has_new = sets.iter().any(|set| set.is_new);
    let any_active = sets.iter().any(Scalable::is_active);
    let stand_in = if has_new || any_active { None } else { sets.last() };
    (has_new || paused)
        && sets.iter().filter(|set| set.is_active() || set.is_new).chain(stand_in).any(|set| match set.desired {
            Some(desired) => desired != bounds.desired,
            // Adopted, and never sized.
            None => paused && set.is_active(),
        })
}

/// The size of each set, in the order given, if there is room for it: see [`fitted`].
pub(super) fn sizes(bounds: &Bounds, sets: &[Scalable], mode: Mode) -> Vec<i32> {
    let mut sizes: Vec<i32> = sets.iter().map(|set| set.count.spec).collect();
    let active: Vec<usize> = (0..).zip(sets).filter(|(_, set)| set.is_active()).map(|(index, _)| index).collect();
    match active.as_slice() {
        [] => {
            let target = sets.iter().position(|set| set.is_new).or_else(|| sets.len().checked_sub(1));
            give_all(bounds, sets, mode, target, &mut sizes);
        }
        [only] => give_all(bounds, sets, mode, Some(*only), &mut sizes),
        _ if sets.iter().any(|set| is_saturated(bounds, set)) => {
            for (size, _) in sizes.iter_mut().zip(sets).filter(|(_, set)| !set.is_new) {
                *size = 0;
            }
        }
        _ => {
            let allowed = if bounds.desired == 0 { 0 } else { bounds.at_most() };
            let surplus = sizes.iter().sum::<i32>() - allowed;
            if surplus > 0 {
                shrink(bounds, sets, surplus, &mut sizes);
            } else if mode.paused && mode.mixes {
                // Not paused, the rollout that follows grows the new set, and minds terminating Machines.
                for (size, _) in sizes.iter_mut().zip(sets).filter(|(_, set)| set.is_new) {
                    *size += (-surplus).min(bounds.desired - *size).max(0);
                }
            }
        }
    }
    sizes
}

/// What of `sizes` there is room for now. As the wish of a user does not wait for Machines that leave, terminating ones
/// take none.
pub(super) fn fitted(bounds: &Bounds, sets: &[Scalable], mode: Mode, sizes: &[i32]) -> Vec<i32> {
    let asked = |set: &Scalable, size: i32| Count { spec: size, ..set.count }.asked();
    let least = || sizes.iter().zip(sets).map(|(size, set)| asked(set, set.count.spec.min(*size)));
    let mut room = (bounds.at_most() - mode.departing.asked() - least().sum::<i32>()).max(0);
    let grown = sizes.iter().zip(sets).map(|(size, set)| {
        let now = asked(set, set.count.spec);
        let step = (*size - now).clamp(0, room);
        room -= step;
        if *size > set.count.spec { (*size).min(now + step) } else { *size }
    });
    grown.collect()
}

/// One set gets everything. If sets must not mix, it grows only when the others have no Machines left.
fn give_all(bounds: &Bounds, sets: &[Scalable], mode: Mode, target: Option<usize>, sizes: &mut [i32]) {
    let Some(target) = target else { return };
    let alone = mode.departing.planned() == 0
        && (0..).zip(sets).all(|(index, set)| index == target || set.count.planned() == 0);
    if let Some(size) = sizes.get_mut(target)
        && (mode.mixes || alone || bounds.desired < *size)
    {
        *size = bounds.desired;
    }
}

fn is_saturated(bounds: &Bounds, set: &Scalable) -> bool {
    set.is_new
        && set.count.spec == bounds.desired
        && set.desired == Some(bounds.desired)
        && set.count.available_now() == bounds.desired
}

/// Takes `surplus` from the sets, each in proportion, the largest first; but never so much that fewer are available
/// than the bounds allow. What is left over goes with the rollout.
fn shrink(bounds: &Bounds, sets: &[Scalable], surplus: i32, sizes: &mut [i32]) {
    let mut order: Vec<usize> = (0..sets.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(sets.get(*index).map(|set| set.count.spec)));
    let mut left = surplus;
    for index in &order {
        let (Some(size), Some(set)) = (sizes.get_mut(*index), sets.get(*index)) else { continue };
        let step = (*size - fair_size(bounds, set)).clamp(0, left);
        *size -= step;
        left -= step;
    }
    for index in &order {
        let Some(size) = sizes.get_mut(*index) else { continue };
        let step = (*size).min(left);
        *size -= step;
        left -= step;
    }
    let available: i32 = sets.iter().map(|set| set.count.available_now()).sum();
    let mut spare = (available - bounds.at_least()).max(0);
    for index in &order {
        let (Some(size), Some(set)) = (sizes.get_mut(*index), sets.get(*index)) else { continue };
        let now = set.count.available_now();
        *size = set.count.smallest_keeping(now - spare).max(*size);
        spare -= now - set.count.available_at(*size);
    }
}

/// The share of a set in the new total, rounded to the nearest.
fn fair_size(bounds: &Bounds, set: &Scalable) -> i32 {
    if bounds.desired == 0 {
        return 0;
    }
    let total = i64::from(set.max.filter(|max| *max > 0).unwrap_or_else(|| set.count.existing().max(1)));
    let doubled = 2 * i64::from(set.count.spec) * i64::from(bounds.at_most()) + total;
    i32::try_from(doubled / (2 * total)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const NONE: Count = Count { spec: 0, live: 0, coming: 0, terminating: 0, available: 0, expendable: 0 };
    const ROLLING: Mode = Mode { paused: false, mixes: true, departing: NONE };
    const PAUSED: Mode = Mode { paused: true, mixes: true, departing: NONE };
    const RECREATE_PAUSED: Mode = Mode { paused: true, mixes: false, departing: NONE };
    const RECREATE_PAUSED_DEPARTING: Mode =
        Mode { paused: true, mixes: false, departing: Count { terminating: 1, ..NONE } };

    /// A healthy old set, last sized when `sized_for` Machines were wanted with a surge of 3.
    fn old(spec: i32, sized_for: i32) -> Scalable {
        let count = Count { spec, live: spec, available: spec, ..Count::default() };
        Scalable { count, is_new: false, desired: Some(sized_for), max: Some(sized_for + 3) }
    }

    fn new(spec: i32, sized_for: i32) -> Scalable {
        Scalable { is_new: true, ..old(spec, sized_for) }
    }

    fn booting(set: Scalable) -> Scalable {
        Scalable { count: Count { available: 0, expendable: set.count.live, ..set.count }, ..set }
    }

    fn bounds(desired: i32) -> Bounds {
        Bounds { desired, surge: 3, unavailable: 2.min(desired) }
    }

    #[rstest]
    #[case::only_set(ROLLING, 5, vec![new(3, 3)], vec![5])]
    #[case::only_set_shrinks(ROLLING, 1, vec![new(3, 3)], vec![1])]
    #[case::even_an_old_one(ROLLING, 5, vec![old(3, 3), new(0, 3)], vec![5, 0])]
    #[case::none_active(ROLLING, 2, vec![old(0, 0), new(0, 0)], vec![0, 2])]
    #[case::none_active_and_none_new(PAUSED, 2, vec![old(0, 0), old(0, 0)], vec![0, 2])]
    #[case::proportional(ROLLING, 5, vec![old(8, 10), booting(new(5, 10))], vec![5, 3])]
    #[case::no_more_than_the_surplus(ROLLING, 5, vec![old(4, 10), old(4, 10), new(5, 10)], vec![2, 3, 3])]
    #[case::left_over_from_the_largest(ROLLING, 5, vec![old(4, 1), new(6, 1)], vec![4, 4])]
    #[case::to_nothing(ROLLING, 0, vec![old(8, 10), new(5, 10)], vec![0, 0])]
    #[case::growth_is_left_to_the_rollout(ROLLING, 12, vec![old(8, 10), new(5, 10)], vec![8, 5])]
    #[case::growth_while_paused(PAUSED, 12, vec![old(8, 10), new(5, 10)], vec![8, 7])]
    #[case::never_beyond_what_is_wanted(PAUSED, 5, vec![old(1, 4), new(4, 4)], vec![1, 5])]
    #[case::saturated(ROLLING, 5, vec![old(2, 4), new(5, 5)], vec![0, 5])]
    #[case::availability_is_kept(ROLLING, 5, vec![old(3, 10), booting(new(10, 10))], vec![3, 6])]
    #[case::recreate_never_mixes(RECREATE_PAUSED, 5, vec![Scalable { count: Count { terminating: 1, ..Count::default() }, ..old(0, 3) }, new(3, 3)], vec![0, 3])]
    #[case::recreate_alone(RECREATE_PAUSED, 5, vec![old(0, 3), new(3, 3)], vec![0, 5])]
    #[case::recreate_beside_a_set_that_goes(RECREATE_PAUSED_DEPARTING, 5, vec![old(0, 3), new(3, 3)], vec![0, 3])]
    fn replicas_are_spread(
        #[case] mode: Mode,
        #[case] desired: i32,
        #[case] sets: Vec<Scalable>,
        #[case] expected: Vec<i32>,
    ) {
        assert_eq!(sizes(&bounds(desired), &sets, mode), expected);
    }

    #[rstest]
    #[case::room_for_all(NONE, vec![new(3, 3)], vec![8], vec![8])]
    #[case::machines_of_a_set_that_goes_take_room(Count { live: 3, coming: 1, ..NONE }, vec![new(1, 1)], vec![8], vec![7])]
    #[case::until_they_terminate(Count { terminating: 4, ..NONE }, vec![new(1, 1)], vec![8], vec![8])]
    #[case::so_do_machines_that_are_to_go(NONE, vec![Scalable { count: Count { live: 4, ..NONE }, ..old(0, 3) }, new(3, 3)], vec![0, 8], vec![0, 7])]
    #[case::what_shrinks_makes_none_at_once(NONE, vec![old(6, 3), new(3, 3)], vec![2, 8], vec![2, 5])]
    #[case::what_is_there_is_kept(Count { live: 20, ..NONE }, vec![old(2, 3), new(3, 3)], vec![2, 4], vec![2, 3])]
    #[case::machines_that_are_there_need_none(Count { live: 20, ..NONE }, vec![Scalable { count: Count { spec: 1, live: 3, ..NONE }, ..new(1, 3) }], vec![4], vec![3])]
    fn growth_takes_the_room_there_is(
        #[case] departing: Count,
        #[case] sets: Vec<Scalable>,
        #[case] sizes: Vec<i32>,
        #[case] expected: Vec<i32>,
    ) {
        assert_eq!(fitted(&bounds(8), &sets, Mode { departing, ..ROLLING }, &sizes), expected);
    }

    #[rstest]
    #[case::current(false, vec![new(3, 3)], false)]
    #[case::changed(false, vec![new(3, 4)], true)]
    #[case::changed_for_an_old_set(false, vec![old(3, 4), new(0, 3)], true)]
    #[case::an_empty_old_set_does_not_count(false, vec![old(0, 4), new(3, 3)], false)]
    #[case::an_empty_new_set_counts(false, vec![new(0, 0)], true)]
    #[case::unknown_is_not_changed(false, vec![Scalable { desired: None, ..new(1, 1) }], false)]
    #[case::unless_no_rollout_follows(true, vec![Scalable { desired: None, ..new(1, 1) }], true)]
    #[case::without_a_new_set_the_rollout_decides(false, vec![old(3, 4)], false)]
    #[case::without_a_new_set_while_paused(true, vec![old(3, 4)], true)]
    #[case::none_active_while_paused(true, vec![old(0, 0)], true)]
    #[case::paused_in_mid_rollout(true, vec![old(0, 2), new(2, 3)], false)]
    fn a_change_of_replicas_is_noticed(#[case] paused: bool, #[case] sets: Vec<Scalable>, #[case] expected: bool) {
        assert_eq!(is_pending(&bounds(3), &sets, paused), expected);
    }
}
