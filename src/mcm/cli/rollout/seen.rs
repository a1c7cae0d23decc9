//! A rollout as a command saw it.

use mcm_insight::{
    progress::{RolloutProgress, RolloutState},
    story::{NamespaceFacts, ObjectAnswer},
};
use mcm_rules::plan::SubjectRef;

/// A rollout at one time.
pub(super) struct RolloutSnapshot {
    pub progress: RolloutProgress,
    pub state: RolloutState,
    pub answer: ObjectAnswer,
}

impl RolloutSnapshot {
    pub(super) fn for_object(facts: &NamespaceFacts, object: &SubjectRef) -> Option<Self> {
        let progress = facts.progress(&object.name)?;
        let answer = facts.answer(object);
        Some(Self { state: facts.state(&progress, &answer), progress, answer })
    }
}
