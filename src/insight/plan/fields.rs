//! The differences between two versions of an object, field by field. Pure.

use std::collections::BTreeSet;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::answer::{ChangedField, FieldEffect};
use mcm_api::{
    decode::{self, YamlLimits},
    labels::KUBECTL_LAST_APPLIED,
};

/// A field that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueDifference {
    /// Names of the fields on the way to it.
    pub path: Vec<String>,
    pub old: Value,
    pub new: Value,
    /// The value is the same, written differently.
    pub is_same: bool,
}

impl ValueDifference {
    /// The path with dots. A name with a dot is in brackets.
    pub fn dotted(&self) -> String {
        let mut text = String::new();
        for part in &self.path {
            match part.contains('.') {
                true => text.push_str(&format!("[{part}]")),
                false if text.is_empty() => text.push_str(part),
                false => text.push_str(&format!(".{part}")),
            }
        }
        text
    }

    /// The field in an answer.
    pub fn field(&self, effect: FieldEffect) -> ChangedField {
        ChangedField { path: self.dotted(), old: self.old.clone(), new: self.new.clone(), effect }
    }

    /// A merge patch that makes this change.
    pub fn patch(&self) -> Value {
        let nest = |inner: Value, part: &String| Value::Object([(part.clone(), inner)].into_iter().collect());
        self.path.iter().rev().fold(self.new.clone(), nest)
    }
}

/// The differences outside of status and the metadata that the API server writes. `T` decides which values are the same.
pub fn differences<T: Serialize + DeserializeOwned>(old: &Value, new: &Value) -> Vec<ValueDifference> {
    let (old, new) = (relevant(old), relevant(new));
    let mut found = Vec::new();
    collect(&mut found, &mut Vec::new(), Some(&old), Some(&new));
    let meaning =
        |value: &Value| serde_json::from_value::<T>(value.clone()).ok().map(|typed| relevant(&to_value(&typed)));
    if let (Some(old), Some(new)) = (meaning(&old), meaning(&new)) {
        let at = |value: &Value, path: &[String]| path.iter().try_fold(value.clone(), |at, part| at.get(part).cloned());
        for one in &mut found {
            one.is_same = at(&old, &one.path) == at(&new, &one.path);
        }
    }
    found
}

pub fn to_value(typed: &impl Serialize) -> Value {
    serde_json::to_value(typed).unwrap_or_default()
}

/// An object without its status and what only API servers write.
pub fn relevant(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.retain(|key, _| key == "labels" || key == "annotations");
        if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(KUBECTL_LAST_APPLIED);
        }
    }
    object
}

fn collect(found: &mut Vec<ValueDifference>, path: &mut Vec<String>, old: Option<&Value>, new: Option<&Value>) {
    let is_nested = |value: Option<&Value>| value.is_none_or(|value| value.is_null() || value.is_object());
    let has_fields = |value: Option<&Value>| value.and_then(Value::as_object).is_some_and(|fields| !fields.is_empty());
    if is_nested(old) && is_nested(new) && (has_fields(old) || has_fields(new)) {
        let fields = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
        let (old, new) = (fields(old), fields(new));
        for key in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
            path.push(key.clone());
            collect(found, path, old.get(key), new.get(key));
            path.pop();
        }
    } else if is_nested(old) && is_nested(new) {
        // Absent, null and empty are the same.
    } else if old != new {
        let (old, new) = (old.cloned().unwrap_or_default(), new.cloned().unwrap_or_default());
        found.push(ValueDifference { path: path.clone(), old, new, is_same: false });
    }
}

/// The merge patch with which `kubectl apply` would write a file: fields of the file, and removals of fields that the last applied
/// file had.
pub fn patch_of_file(live: &Value, file: &Value) -> Value {
    let mut patch = written(file);
    // kubectl writes an annotation itself, so it never removes all of them.
    if let Some(meta) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.entry("annotations").or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    let last = live["metadata"]["annotations"][KUBECTL_LAST_APPLIED].as_str();
    if let Some(last) = last.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
        remove_absent(&mut patch, &written(&last));
    }
    patch
}

/// An object without what a user does not write.
fn written(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink"] {
            meta.remove(field);
        }
        if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(KUBECTL_LAST_APPLIED);
        }
    }
    object
}

fn remove_absent(patch: &mut Value, last: &Value) {
    let (Some(patch), Some(last)) = (patch.as_object_mut(), last.as_object()) else { return };
    for (key, old) in last {
        match patch.get_mut(key) {
            Some(kept) => remove_absent(kept, old),
            None => drop(patch.insert(key.clone(), Value::Null)),
        }
    }
}

/// Joins two merge patches; unlike the application of one it keeps their nulls, which remove fields.
pub fn join(all: &mut Value, one: Value) {
    match (all, one) {
        (Value::Object(all), Value::Object(one)) => {
            for (key, value) in one {
                join(all.entry(key).or_insert(Value::Null), value);
            }
        }
        (all, one) => *all = one,
    }
}

/// A merge patch of one assignment such as `template.spec.class.name=small`. A dot in a name is written `\\.`; the value is YAML.
///
/// # Errors
/// It has no `=`, or an empty name.
pub fn assignment(text: &str) -> Result<Value, String> {
    let Some((path, value)) = text.split_once('=') else {
        return Err(format!("--set {text}: write FIELD=VALUE, such as template.spec.class.name=small"));
    };
    let mut parts = vec![String::new()];
    let mut characters = path.chars();
    while let Some(character) = characters.next() {
        match (character, parts.last_mut()) {
            ('.', _) => parts.push(String::new()),
            ('\\', Some(part)) => part.extend(characters.next()),
            (other, Some(part)) => part.push(other),
            (_, None) => {}
        }
    }
    if parts.iter().any(String::is_empty) {
        return Err(format!("--set {text}: the name of a field is empty"));
    }
    let value = decode::yaml(value, YamlLimits::FILES).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok(ValueDifference { path: parts, old: Value::Null, new: value, is_same: false }.patch())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use mcm_api::machine::MachineDeployment;

    fn deployment(timeout: &str, class: &str) -> Value {
        json!({ "metadata": { "name": "pool", "generation": 3 }, "spec": { "replicas": 1, "template": { "spec": {
            "class": { "kind": "MachineClass", "name": class }, "drainTimeout": timeout } } } })
    }

    #[test]
    fn values_that_are_written_differently_are_the_same() {
        let found = differences::<MachineDeployment>(&deployment("10m", "a"), &deployment("10m0s", "b"));
        let short: Vec<_> = found.iter().map(|one| (one.dotted(), one.is_same)).collect();
        let expected = [("spec.template.spec.class.name", false), ("spec.template.spec.drainTimeout", true)];
        assert_eq!(short, expected.map(|(path, same)| (path.to_owned(), same)));
        assert_eq!(found[0].patch(), json!({"spec": {"template": {"spec": {"class": {"name": "b"}}}}}));
    }

    #[test]
    fn a_field_that_the_last_applied_file_had_is_removed() {
        let last = json!({"spec": {"a": 1, "b": {"c": 2, "d": 3}}}).to_string();
        let live = json!({"metadata": {"annotations": {KUBECTL_LAST_APPLIED: last}}, "spec": {"a": 1, "other": 5}});
        let patch = patch_of_file(&live, &json!({"metadata": {"name": "x"}, "spec": {"b": {"c": 4}}}));
        let spec = json!({"a": null, "b": {"c": 4, "d": null}});
        assert_eq!(patch, json!({"metadata": {"name": "x", "annotations": {}}, "spec": spec}));
    }

    #[test]
    fn annotations_of_controllers_stay_where_a_file_has_none() {
        let last = json!({"metadata": {"name": "x", "annotations": {}, "labels": {"a": "b"}}}).to_string();
        let revision = "deployment.kubernetes.io/revision";
        let live = json!({"metadata": {"annotations": {KUBECTL_LAST_APPLIED: last, revision: "1"}}});
        let patch = patch_of_file(&live, &json!({"metadata": {"name": "x"}}));
        assert_eq!(patch, json!({"metadata": {"name": "x", "annotations": {}, "labels": null}}));
    }

    #[rstest]
    #[case("replicas=3", json!({"replicas": 3}))]
    #[case("a.b=x", json!({"a": {"b": "x"}}))]
    #[case(r"labels.a\.b/c=true", json!({"labels": {"a.b/c": true}}))]
    #[case("a=", json!({"a": null}))]
    fn assignments_are_read(#[case] text: &str, #[case] patch: Value) {
        assert_eq!(assignment(text), Ok(patch));
    }

    #[rstest]
    #[case("replicas")]
    #[case("a..b=1")]
    fn other_assignments_are_refused(#[case] text: &str) {
        assignment(text).unwrap_err();
    }
}
