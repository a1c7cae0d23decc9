//! The plan of an object that is not executed, for users.

use super::{
    cache::Key,
    reconcile::{ObjectStateMap, SnapshotReader},
};
use mcm_rules::plan::{PlanInput, PlanPreview, PreviewStep, Step, SubjectRef};

/// Plans an object of a kind, and executes nothing; `None` if it does not exist or is unreadable.
pub(super) fn preview_of<R: SnapshotReader<Key = Key>>(
    reconciler: &R,
    states: &ObjectStateMap<R>,
    key: &Key,
    kind: &str,
    controller: &'static str,
) -> Option<PlanPreview> {
    let session = reconciler.begin(key);
    let snapshot = reconciler.observe(key, &states.memory(key), &session)?;
    let plan = snapshot.plan();
    let step = |step: Step<<R::Snapshot as PlanInput>::Action>| PreviewStep {
        action: step.action.to_string(),
        object: R::Snapshot::subject(&step.action),
        reason: step.reason,
        is_status: R::Snapshot::is_status(&step.action),
        is_look: R::Snapshot::is_look(&step.action),
    };
    let Key { namespace, name } = key.clone();
    Some(PlanPreview {
        object: SubjectRef { kind: kind.to_owned(), namespace, name },
        controller,
        steps: plan.steps.into_iter().map(step).collect(),
        waits: plan.waits,
    })
}
