//! The plan of an object that is not executed, for users.

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    cache::Key,
    reconcile::{Observe, States},
};
use crate::plan::{Plannable, Step, Subject, Wait};

/// The plan that a reconcile of an object would begin with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Preview {
    /// The object.
    pub object: Subject,
    /// The controller that plans it.
    pub controller: &'static str,
    /// Its steps with their reasons, in order.
    pub steps: Vec<PreviewStep>,
    /// Its waits.
    pub waits: Vec<Wait>,
}

/// A step that is not executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PreviewStep {
    /// The change.
    pub action: String,
    /// The object that it changes or reads; absent if it is the object of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Subject>,
    /// The reason for it.
    pub reason: String,
    /// It only writes the status of the object.
    #[serde(skip)]
    pub is_status: bool,
    /// It only reads, and the plan after it decides.
    pub is_look: bool,
}

impl Preview {
    /// Plans an object of a kind, and executes nothing; `None` if it does not exist or is unreadable.
    pub(super) fn of<R: Observe<Key = Key>>(
        reconciler: &R,
        states: &States<R>,
        key: &Key,
        kind: &str,
        controller: &'static str,
    ) -> Option<Self> {
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
        Some(Self {
            object: Subject { kind: kind.to_owned(), namespace, name },
            controller,
            steps: plan.steps.into_iter().map(step).collect(),
            waits: plan.waits,
        })
    }
}
