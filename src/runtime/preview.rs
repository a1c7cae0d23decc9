//! The plan of an object that is not executed, for users.

use super::{
    cache::Key,
    reconcile::{Observe, States},
};
use mcm_rules::plan::{Plannable, Preview, PreviewStep, Step, Subject};

/// Plans an object of a kind, and executes nothing; `None` if it does not exist or is unreadable.
pub(super) fn preview_of<R: Observe<Key = Key>>(
    reconciler: &R,
    states: &States<R>,
    key: &Key,
    kind: &str,
    controller: &'static str,
) -> Option<Preview> {
    let session = reconciler.begin(key);
    let snapshot = reconciler.observe(key, &states.memory(key), &session)?;
    let plan = snapshot.plan();
    let step = |step: Step<<R::Snapshot as Plannable>::Action>| PreviewStep {
        action: step.action.to_string(),
        object: R::Snapshot::subject(&step.action),
        reason: step.reason,
        is_status: R::Snapshot::is_status(&step.action),
        is_look: R::Snapshot::is_look(&step.action),
    };
    let Key { namespace, name } = key.clone();
    Some(Preview {
        object: Subject { kind: kind.to_owned(), namespace, name },
        controller,
        steps: plan.steps.into_iter().map(step).collect(),
        waits: plan.waits,
    })
}
