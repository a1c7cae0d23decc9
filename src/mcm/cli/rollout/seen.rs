//! A rollout as a command saw it.

use crate::cli::reading::{
    progress::{Progress, State},
    story::{Answer, Facts},
};
use mcm_rules::plan::Subject;

/// A rollout at one time.
pub(super) struct Seen {
    pub progress: Progress,
    pub state: State,
    pub answer: Answer,
}

impl Seen {
    pub(super) fn of(facts: &Facts, object: &Subject) -> Option<Self> {
        let progress = facts.progress(&object.name)?;
        let answer = facts.answer(object);
        Some(Self { state: facts.state(&progress, &answer), progress, answer })
    }
}
