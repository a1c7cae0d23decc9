//! A change of one object, and what changes of several verbs share. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    api::machine::{MachineDeployment, MachineSet, StrategyType},
    cli::exit::ExitError,
};
use mcm_insight::{
    family::{DeploymentFamily, changes},
    plan::change::{ChangeContent, PlannedChange},
    story::{DEPLOYMENT, NamespaceFacts},
};
use mcm_rules::plan::{
    SubjectRef, counted,
    shell::{resource_name, word},
};

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ObjectPatch {
    pub object: SubjectRef,
    /// Its resource version when the change was decided.
    pub version: String,
    /// JSON merge patch.
    pub patch: Value,
    /// The change whose plan is made first; `None` if no machine is created, replaced or deleted.
    pub planned: Option<PlannedChange>,
    /// The change and its effect, in one or two sentences.
    pub says: String,
    /// Reasons why the change may not last.
    pub warnings: Vec<String>,
    /// Machines are replaced or pods are deleted.
    pub needs_consent: bool,
    /// The next command of the user.
    pub next: Option<String>,
}

impl ObjectPatch {
    /// The command of kubectl that does the same.
    pub fn kubectl(&self) -> String {
        let SubjectRef { kind, namespace, name } = &self.object;
        let patch = self.patch.to_string();
        format!("kubectl patch {} {name} -n {namespace} --type merge -p {}", resource_name(kind), word(&patch))
    }

    /// The patch, which the API server refuses if the object was changed meanwhile.
    pub fn patch_at_version(&self) -> Value {
        let mut patch = self.patch.clone();
        if !self.version.is_empty() {
            patch["metadata"]["resourceVersion"] = json!(self.version);
        }
        patch
    }
}

/// A patch of an object.
pub(super) fn change(object: &SubjectRef, meta: &ObjectMeta, patch: Value, says: String) -> ObjectPatch {
    let version = meta.resource_version.clone().unwrap_or_default();
    ObjectPatch {
        object: object.clone(),
        version,
        patch,
        planned: None,
        says,
        warnings: Vec::new(),
        needs_consent: false,
        next: None,
    }
}

/// Refuses a change of an object that is being deleted.
pub(super) fn deleted(object: &SubjectRef, meta: &ObjectMeta) -> Result<(), ExitError> {
    if meta.deletion_timestamp.is_none() {
        return Ok(());
    }
    let SubjectRef { kind, namespace, name } = object;
    Err(ExitError::no(
        format!("{kind} {name} is being deleted"),
        format!("mcm why {}/{name} -n {namespace}", kind.to_lowercase()),
    ))
}

/// The plan of a merge patch of a deployment.
pub(super) fn planned(name: &str, patch: &Value) -> PlannedChange {
    PlannedChange { kind: DEPLOYMENT, name: name.to_owned(), wish: ChangeContent::Patch(patch.clone()) }
}

/// A return to the template of a set, in words.
pub(super) fn return_text(deployment: &MachineDeployment, set: &MachineSet, revision: i64) -> String {
    let changes = changes(&deployment.spec.template, &set.spec.template);
    let changes = changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("returns MachineDeployment {} to revision {revision} ({changes})", deployment.name_any())
}

/// The strategy Recreate deletes all machines before it creates others.
pub(super) fn at_once(deployment: &MachineDeployment, count: usize) -> &'static str {
    match deployment.spec.strategy.kind() {
        Some(StrategyType::Recreate) if count > 1 => ", all at once (strategy Recreate)",
        _ => "",
    }
}

/// Machines of other sets, which a rollout to a set would replace.
pub(super) fn replaced(facts: &NamespaceFacts, family: &DeploymentFamily<'_>, set: Option<&MachineSet>) -> usize {
    let kept = set.and_then(|set| set.metadata.name.clone());
    let others = family.sets.iter().map(|set| set.name_any()).filter(|name| Some(name) != kept.as_ref());
    others.map(|name| facts.machines_of_set(&name).iter().filter(|one| !one.is_terminating()).count()).sum()
}

/// A number of machines.
pub(super) fn machines(number: usize) -> String {
    counted(number, "machine")
}
