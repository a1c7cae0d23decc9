//! Many machines are played with few, each of which stands for others. Pure.

mod groups;
mod rounds;
mod whole;

use std::time::Duration;

pub(super) use self::whole::{Few, Trust, Whole};
use self::{groups::Groups, rounds::Rounds};
use super::answer::ObjectPlan;
use crate::rehearsal::record::{Course, Ending};

/// A deployment with fewer machines is played with all.
const FEW: usize = 20;

/// Few machines that are played instead of all.
pub(super) struct Fold {
    pub few: Few,
    way: Way,
    /// A course that is less than this is of no use.
    least: Trust,
    /// Machines of the deployment, now or in the end.
    all: usize,
}

enum Way {
    Rounds(Rounds),
    Groups(Groups),
}

impl Fold {
    /// Ways to play a deployment with few machines, those to be tried first at the beginning; none if all are played.
    pub(super) fn all_of(whole: &Whole<'_>) -> Vec<Self> {
        let all = whole.size();
        if all < FEW {
            return Vec::new();
        }
        let is_alike = whole.is_alike();
        let least = if all > whole::MOST_PLAYED { Trust::Kinds } else { Trust::Exact };
        let fold = |(few, way)| Self { few, way, least, all };
        let exact = [
            Rounds::of(whole).map(|(few, rounds)| (few, Way::Rounds(rounds))),
            Groups::even(whole).map(|(few, groups)| (few, Way::Groups(groups))),
        ];
        let exact = exact.into_iter().flatten().filter(|(few, _)| is_alike && few.size <= whole::MOST_PLAYED);
        let mut folds: Vec<Self> = exact.min_by_key(|(few, _)| few.size).map(fold).into_iter().collect();
        if all > whole::MOST_PLAYED || folds.is_empty() && is_alike && !whole.is_rollout() {
            let uneven = Groups::uneven(whole, is_alike);
            folds.extend(uneven.map(|(few, groups)| fold((few, Way::Groups(groups)))));
        }
        folds
    }

    /// The course with all machines; `None` if it does not follow from that with few. A longer pause than this ends a round.
    pub(super) fn unfold(&self, course: Course, pause: Duration) -> Option<(Course, Trust)> {
        if course.ending == Ending::Cut {
            return None;
        }
        let (course, trust) = match &self.way {
            Way::Rounds(rounds) => (rounds.unfold(course, pause)?, Trust::Exact),
            Way::Groups(groups) => groups.unfold(course, pause),
        };
        (trust >= self.least).then_some((course, trust))
    }

    /// The way in words.
    pub(super) fn remark(&self, trust: Trust) -> String {
        let (all, played) = (self.all, self.few.size);
        let each = match &self.way {
            Way::Rounds(_) => {
                return format!(
                    "all {all} machines are alike: {played} were played, and the rounds of the others repeat"
                );
            }
            Way::Groups(groups) => groups.each(),
        };
        match trust {
            Trust::Exact => format!("all {all} machines are alike: {played} were played, each for {each}"),
            Trust::Estimate => {
                format!(
                    "the steps and the time are an estimate: {played} machines were played, each for {each} of {all}"
                )
            }
            Trust::Fates => format!(
                "the steps and the time are not known: {played} machines were played, each for {each} of {all}, and there are more steps"
            ),
            Trust::Kinds => format!(
                "the numbers are an estimate, and the steps and the time are not known: {played} machines were played, each for {each} of {all}"
            ),
        }
    }
}

/// Marks a plan whose steps are an estimate, or removes them.
pub(super) fn mark(plan: &mut ObjectPlan, trust: Trust) {
    plan.is_estimate = trust < Trust::Exact;
    if trust <= Trust::Fates {
        plan.rounds.clear();
        plan.duration = None;
        plan.machines.iter_mut().for_each(|machine| machine.step = None);
    }
}
