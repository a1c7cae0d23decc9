//! Many machines are played with few, each of which represents a group. Pure.

mod groups;
mod rounds;
mod whole;

use std::time::Duration;

pub use self::whole::{DeploymentSample, FoldAccuracy, WholeDeployment};
use self::{groups::GroupFold, rounds::RoundFold};
use super::answer::ObjectPlan;
use crate::rehearsal::record::{RehearsalCourse, RehearsalEnding};

/// A deployment with fewer machines is played with all.
const FEW: usize = 20;

/// Few machines that are played instead of all.
pub struct MachineFold {
    pub few: DeploymentSample,
    way: FoldMethod,
    /// A course that is less than this is of no use.
    least: FoldAccuracy,
    /// Machines of the deployment, now or in the end.
    all: usize,
}

enum FoldMethod {
    Rounds(RoundFold),
    Groups(GroupFold),
}

impl MachineFold {
    /// Ways to play a deployment with few machines, those to be tried first at the beginning; none if all are played.
    pub fn all_of(whole: &WholeDeployment<'_>) -> Vec<Self> {
        let all = whole.size();
        if all < FEW {
            return Vec::new();
        }
        let is_alike = whole.is_alike();
        let least = if all > whole::MOST_PLAYED { FoldAccuracy::Kinds } else { FoldAccuracy::Exact };
        let fold = |(few, way)| Self { few, way, least, all };
        let exact = [
            RoundFold::for_deployment(whole).map(|(few, rounds)| (few, FoldMethod::Rounds(rounds))),
            GroupFold::even(whole).map(|(few, groups)| (few, FoldMethod::Groups(groups))),
        ];
        let exact = exact.into_iter().flatten().filter(|(few, _)| is_alike && few.size <= whole::MOST_PLAYED);
        let mut folds: Vec<Self> = exact.min_by_key(|(few, _)| few.size).map(fold).into_iter().collect();
        if all > whole::MOST_PLAYED || folds.is_empty() && is_alike && !whole.is_rollout() {
            let uneven = GroupFold::uneven(whole, is_alike);
            folds.extend(uneven.map(|(few, groups)| fold((few, FoldMethod::Groups(groups)))));
        }
        folds
    }

    /// The course with all machines; `None` if it does not follow from that with few. A longer pause than this ends a round.
    pub fn unfold(&self, course: RehearsalCourse, pause: Duration) -> Option<(RehearsalCourse, FoldAccuracy)> {
        if course.ending == RehearsalEnding::Cut {
            return None;
        }
        let (course, trust) = match &self.way {
            FoldMethod::Rounds(rounds) => (rounds.unfold(course, pause)?, FoldAccuracy::Exact),
            FoldMethod::Groups(groups) => groups.unfold(course, pause),
        };
        (trust >= self.least).then_some((course, trust))
    }

    /// The way in words.
    pub fn remark(&self, trust: FoldAccuracy) -> String {
        let (all, played) = (self.all, self.few.size);
        let each = match &self.way {
            FoldMethod::Rounds(_) => {
                return format!(
                    "all {all} machines are alike: {played} were played, and the rounds of the others repeat"
                );
            }
            FoldMethod::Groups(groups) => groups.each(),
        };
        match trust {
            FoldAccuracy::Exact => format!("all {all} machines are alike: {played} were played, each for {each}"),
            FoldAccuracy::Estimate => {
                format!(
                    "the steps and the time are an estimate: {played} machines were played, each for {each} of {all}"
                )
            }
            FoldAccuracy::Fates => format!(
                "the steps and the time are not known: {played} machines were played, each for {each} of {all}, and there are more steps"
            ),
            FoldAccuracy::Kinds => format!(
                "the numbers are an estimate, and the steps and the time are not known: {played} machines were played, each for {each} of {all}"
            ),
        }
    }
}

/// Marks a plan whose steps are an estimate, or removes them.
pub fn mark(plan: &mut ObjectPlan, trust: FoldAccuracy) {
    plan.is_estimate = trust < FoldAccuracy::Exact;
    if trust <= FoldAccuracy::Fates {
        plan.rounds.clear();
        plan.duration = None;
        plan.machines.iter_mut().for_each(|machine| machine.step = None);
    }
}
