//! The next plan of an object, for users.

use schemars::JsonSchema;
use serde::Serialize;

use super::{SubjectRef, Wait};

/// The plan that a reconcile of an object would begin with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanPreview {
    /// The object.
    pub object: SubjectRef,
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
pub struct PreviewStep {
    /// The change.
    pub action: String,
    /// The object that it changes or reads; absent if it is the object of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<SubjectRef>,
    /// The reason for it.
    pub reason: String,
    /// It only writes the status of the object.
    #[serde(skip)]
    pub is_status: bool,
    /// It only reads, and the plan after it decides.
    pub is_look: bool,
}
