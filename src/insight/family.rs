//! A deployment with its sets, and the differences between their templates. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::story::{NamespaceFacts, SET, owned_by};
use mcm_api::{
    labels,
    machine::{Machine, MachineDeployment, MachineSet, MachineTemplate},
    reasons::ConditionType,
};
use mcm_controllers::{
    machine_deployment::revision_of,
    object::condition::{self, StoredCondition},
};

/// A deployment with its sets.
pub struct DeploymentFamily<'a> {
    pub deployment: &'a MachineDeployment,
    /// Its sets, the latest revision first.
    pub sets: Vec<&'a MachineSet>,
}

/// A field that differs between two templates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TemplateChange {
    /// Path of the field, from the spec of the deployment.
    pub path: String,
    /// Its former value; empty if it was absent.
    pub old: String,
    /// Its new value; empty if it is absent.
    pub new: String,
}

impl NamespaceFacts {
    /// A deployment with its sets; `None` if the name is unknown.
    pub fn family(&self, name: &str) -> Option<DeploymentFamily<'_>> {
        let deployment = self.deployments.get(name)?;
        let mut sets: Vec<&MachineSet> = owned_by(&self.sets, name).filter_map(|name| self.sets.get(name)).collect();
        sets.sort_by_key(|set| (std::cmp::Reverse(revision_of(set)), set.name_any()));
        Some(DeploymentFamily { deployment, sets })
    }

    /// The machines of a set.
    pub fn machines_of_set(&self, set: &str) -> Vec<&Machine> {
        let object = self.subject(SET, set);
        self.machines_of(&object).filter_map(|name| self.machines.get(name)).collect()
    }
}

impl<'a> DeploymentFamily<'a> {
    /// The set of the current template, as the controller finds it.
    pub fn new_set(&self) -> Option<&'a MachineSet> {
        let equal = self.sets.iter().filter(|set| set.spec.makes(&self.deployment.spec.template));
        equal.min_by_key(|set| (set.metadata.deletion_timestamp.is_some(), set.creation_timestamp())).copied()
    }

    /// The revisions of its sets, the latest first.
    pub fn revisions(&self) -> impl DoubleEndedIterator<Item = i64> {
        self.sets.iter().map(|set| revision_of(set)).filter(|revision| *revision > 0)
    }

    /// The set of a revision; without one that of the second-highest, as the controllers choose it for a rollback.
    pub fn of_revision(&self, wanted: Option<i64>) -> Option<&'a MachineSet> {
        let mut known = self.sets.iter().filter(|set| revision_of(set) > 0);
        match wanted {
            Some(wanted) => known.find(|set| revision_of(set) == wanted).copied(),
            None => known.nth(1).copied(),
        }
    }

    /// The set of the revision before that of a set.
    pub fn before(&self, set: &MachineSet) -> Option<&'a MachineSet> {
        let revision = revision_of(set);
        self.sets.iter().find(|other| revision_of(other) < revision).copied()
    }
}

/// A set creates no machines: the set controller reads this label alone. The condition beside it names the reason, and the label
/// of the deployment, which the controllers set with it, has no effect.
pub fn is_frozen(set: &MachineSet) -> bool {
    labels::is_true(set, labels::FREEZE)
}

/// A set or deployment has a label or a condition that the end of a freeze removes.
pub fn is_marked_frozen<C: StoredCondition>(object: &impl ResourceExt, conditions: &[C]) -> bool {
    labels::is_true(object, labels::FREEZE) || condition::find(conditions, ConditionType::Frozen).is_some()
}

/// The same of a set.
pub fn is_set_marked_frozen(set: &MachineSet) -> bool {
    is_marked_frozen(set, set.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default())
}

/// The fields that differ, in the order of their paths.
pub fn changes(old: &MachineTemplate, new: &MachineTemplate) -> Vec<TemplateChange> {
    let (old, new) = (fields_of(old), fields_of(new));
    let paths: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let value = |fields: &BTreeMap<String, String>, path: &String| fields.get(path).cloned().unwrap_or_default();
    let change = |path: &String| TemplateChange { path: path.clone(), old: value(&old, path), new: value(&new, path) };
    paths.into_iter().map(change).filter(|change| change.old != change.new).collect()
}

fn fields_of(template: &MachineTemplate) -> BTreeMap<String, String> {
    let mut template = template.clone();
    template.metadata.labels.remove(labels::TEMPLATE_HASH);
    let mut fields = BTreeMap::new();
    collect("template", &serde_json::to_value(template).unwrap_or_default(), &mut fields);
    fields
}

fn collect(path: &str, value: &Value, fields: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(parts) => {
            for (key, part) in parts {
                let key = if key.contains(['.', '/']) { format!("[{key}]") } else { format!(".{key}") };
                collect(&format!("{path}{key}"), part, fields);
            }
        }
        Value::Null => {}
        Value::String(text) => drop(fields.insert(path.to_owned(), text.clone())),
        other => drop(fields.insert(path.to_owned(), other.to_string())),
    }
}

impl std::fmt::Display for TemplateChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let or_none = |text: &'_ str| if text.is_empty() { "(none)".to_owned() } else { text.to_owned() };
        write!(f, "{} {} → {}", self.path, or_none(&self.old), or_none(&self.new))
    }
}
