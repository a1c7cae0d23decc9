//! A rollout as a command saw it.

use jiff::Timestamp;

use mcm_insight::{
    place::CallTarget,
    progress::{RolloutProgress, RolloutState},
    story::{NamespaceFacts, ObjectAnswer},
};
use mcm_rules::plan::SubjectRef;

/// A rollout at one time.
pub(super) struct RolloutSnapshot {
    pub progress: RolloutProgress,
    pub state: RolloutState,
    pub answer: ObjectAnswer,
    pub place: CallTarget,
}

impl RolloutSnapshot {
    /// Since when the worst object below the deployment waits, as its manager or the object shows it.
    pub(super) fn held_since(&self) -> Option<Timestamp> {
        let of_wait = |one: &ObjectAnswer| one.waits.first().and_then(|wait| wait.since);
        let of_culprit = self.answer.culprit().and_then(|culprit| of_wait(culprit).or(culprit.since));
        of_culprit.or_else(|| of_wait(&self.answer))
    }

    pub(super) fn for_object(facts: &NamespaceFacts, object: &SubjectRef) -> Option<Self> {
        let progress = facts.progress(&object.name)?;
        let answer = facts.answer(object);
        Some(Self { state: facts.state(&progress, &answer), progress, answer, place: facts.place.clone() })
    }
}
