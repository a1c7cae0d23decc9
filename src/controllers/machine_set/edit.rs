//! What changes on Machines, gathered so that each is patched once.

use std::{collections::BTreeMap, sync::Arc};

use kube::ResourceExt;
use serde_json::{Map, Value};

use crate::api::machine::Machine;

/// Merge patches by the name of the Machine.
#[derive(Debug, Default)]
pub(super) struct Edits(BTreeMap<String, Edit>);

#[derive(Debug)]
struct Edit {
    machine: Arc<Machine>,
    patch: Value,
    reasons: Vec<String>,
}

impl Edits {
    /// Adds a change to those that the Machine gets.
    pub(super) fn add(&mut self, machine: &Arc<Machine>, patch: Value, reason: impl Into<String>) {
        let edit = self.0.entry(machine.name_any()).or_insert_with(|| Edit {
            machine: machine.clone(),
            patch: Value::Object(Map::new()),
            reasons: Vec::new(),
        });
        combine(&mut edit.patch, patch);
        edit.reasons.push(reason.into());
    }

    /// One patch and its reason per Machine, by name.
    pub(super) fn into_patches(self) -> impl Iterator<Item = (Arc<Machine>, Value, String)> {
        self.0.into_values().map(|edit| (edit.machine, edit.patch, edit.reasons.join("; ")))
    }
}

/// The merge patch that does what both do; the second wins.
fn combine(first: &mut Value, second: Value) {
    match (first, second) {
        (Value::Object(first), Value::Object(second)) => {
            for (key, value) in second {
                combine(first.entry(key).or_insert(Value::Null), value);
            }
        }
        (first, second) => *first = second,
    }
}

/// The merge patch that turns one value into another; `None` if they are equal.
pub(super) fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let removed = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter_map(|(key, value)| {
        let change = match old.get(key) {
            Some(before) => difference(before, value)?,
            None => value.clone(),
        };
        Some((key.clone(), change))
    });
    let patch: Map<String, Value> = removed.chain(changed).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}
