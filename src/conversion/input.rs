//! The objects of a conversion, found by kind and name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::report::ConversionReport;
use mcm_api::machine::{GROUP, MachineClass};

/// One object.
#[derive(Clone, Debug)]
pub(super) struct SourceDocument<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub value: &'a Value,
}

impl<'a> SourceDocument<'a> {
    fn from_value(value: &'a Value) -> Self {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let api_version = text("/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = text("/kind");
        Self { group, version, kind, namespace: text("/metadata/namespace"), name: text("/metadata/name"), value }
    }

    /// Decodes the object and refuses every field that its type does not have.
    pub(super) fn decode<T: DeserializeOwned + Serialize>(&self, report: &mut ConversionReport) -> Option<T> {
        let decoded: T = match serde_path_to_error::deserialize(without_nulls(self.value)) {
            Ok(decoded) => decoded,
            Err(error) => {
                let path = self.culprit::<T>(path_of(&error));
                report.refuse(path, expectation(&error.into_inner().to_string()), "correct it");
                return None;
            }
        };
        let known = serde_json::to_value(&decoded).unwrap_or_default();
        unknown_fields("", self.value, &known, &mut |path| {
            report.refuse(path, "is not a field of this kind", "correct or remove it");
        });
        Some(decoded)
    }

    /// The path of the undecodable field, which flattened types hide: the object can be decoded without it.
    fn culprit<T: DeserializeOwned>(&self, path: String) -> String {
        let pointer: String = path.split('.').filter(|part| !part.is_empty()).map(|part| format!("/{part}")).collect();
        let fields = self.value.pointer(&pointer).and_then(Value::as_object);
        let is_culprit = |key: &&String| {
            let mut others = self.value.clone();
            others.pointer_mut(&pointer).and_then(Value::as_object_mut).map(|fields| fields.remove(*key));
            match serde_path_to_error::deserialize::<_, T>(without_nulls(&others)) {
                Ok(_) => true,
                Err(error) => path_of(&error) != path,
            }
        };
        match fields.and_then(|fields| fields.keys().find(is_culprit)) {
            Some(key) if path.is_empty() => key.clone(),
            Some(key) => format!("{path}.{key}"),
            None => path,
        }
    }

    /// A controller owner of this kind has it.
    pub(super) fn is_owned_by(&self, kind: &str) -> bool {
        let owners = self.value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        owners.into_iter().flatten().any(|owner| owner["kind"] == kind && owner["controller"] == true)
    }
}

/// All objects, without lists around them.
pub(super) fn flattened(values: &[Value]) -> Vec<&Value> {
    let is_list = |value: &Value| value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    let mut all = Vec::new();
    for value in values {
        match value.get("items").and_then(Value::as_array).filter(|_| is_list(value)) {
            Some(items) => all.extend(flattened(items)),
            None => all.push(value),
        }
    }
    all
}

/// Group, kind, namespace and name.
type DocumentKey<'a> = (&'a str, &'a str, &'a str, &'a str);

/// All objects of a conversion.
#[derive(Debug)]
pub(super) struct ConversionInput<'a> {
    pub documents: Vec<SourceDocument<'a>>,
    /// Positions of the documents; the first of several equal ones.
    index: BTreeMap<DocumentKey<'a>, usize>,
}

impl<'a> ConversionInput<'a> {
    /// Of objects and lists of objects.
    pub(super) fn from_values(values: &'a [Value]) -> Self {
        let documents: Vec<SourceDocument<'_>> =
            flattened(values).into_iter().map(SourceDocument::from_value).collect();
        let mut index = BTreeMap::new();
        for (position, one) in documents.iter().enumerate() {
            index.entry((one.group, one.kind, one.namespace, one.name)).or_insert(position);
        }
        Self { documents, index }
    }

    /// All objects, with one more or in place of its namesake.
    pub(super) fn with<'b>(&self, value: &'b Value) -> ConversionInput<'b>
    where
        'a: 'b,
    {
        let mut all = ConversionInput { documents: self.documents.clone(), index: self.index.clone() };
        let one = SourceDocument::from_value(value);
        all.index.insert((one.group, one.kind, one.namespace, one.name), all.documents.len());
        all.documents.push(one);
        all
    }

    pub(super) fn find(&self, group: &str, kind: &str, namespace: &str, name: &str) -> Option<&SourceDocument<'a>> {
        self.documents.get(*self.index.get(&(group, kind, namespace, name))?)
    }

    pub(super) fn class(&self, namespace: &str, name: &str) -> Option<MachineClass> {
        serde_json::from_value(self.find(GROUP, "MachineClass", namespace, name)?.value.clone()).ok()
    }

    pub(super) fn secret(&self, namespace: &str, name: &str) -> Option<Secret> {
        serde_json::from_value(self.find("", "Secret", namespace, name)?.value.clone()).ok()
    }
}

fn path_of(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    Some(error.path().to_string()).filter(|path| path != ".").unwrap_or_default()
}

/// The expectation of a decoder. The rest of its message quotes the value, which may be confidential.
fn expectation(message: &str) -> String {
    match message.rsplit_once(", expected ") {
        Some((_, expected)) => format!("is not valid: expected {expected}"),
        None => "is not valid".to_owned(),
    }
}

/// Removes `null`s, as the API server does. What a driver reads stays as it is.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| {
                let value = if key == "providerSpec" { value.clone() } else { without_nulls(value) };
                (key.clone(), value)
            });
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// Calls `found` with the path of every unknown field. Zero values are omitted by Go.
fn unknown_fields(path: &str, given: &Value, known: &Value, found: &mut impl FnMut(String)) {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            for (key, value) in given {
                // Both sides compute the status again.
                if path.is_empty() && key == "status" {
                    continue;
                }
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match known.get(key) {
                    Some(known) => unknown_fields(&path, value, known, found),
                    None if is_zero(value) => {}
                    None => found(path),
                }
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            for (index, (given, known)) in given.iter().zip(known).enumerate() {
                unknown_fields(&format!("{path}[{index}]"), given, known, found);
            }
        }
        _ => {}
    }
}

/// Go would leave the value out.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}
