//! Changes to one object are gathered and leave as one merge patch, or not at all.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::controllers::plan::Note;

/// An object as it was seen, and as it shall be.
#[derive(Clone, Debug)]
pub(super) struct Draft<K> {
    seen: Arc<K>,
    changed: Option<K>,
    reasons: Vec<String>,
    note: Option<Note>,
}

/// A finished draft that differs from what was seen.
pub(super) struct Change<K> {
    pub seen: Arc<K>,
    pub patch: Value,
    pub reason: String,
    pub note: Option<Note>,
}

impl<K: Clone + Serialize> Draft<K> {
    pub(super) fn of(seen: Arc<K>) -> Self {
        Self { seen, changed: None, reasons: Vec::new(), note: None }
    }

    /// The object as it was seen.
    pub(super) fn seen(&self) -> &Arc<K> {
        &self.seen
    }

    /// The object as it shall be.
    pub(super) fn wanted(&self) -> &K {
        self.changed.as_ref().unwrap_or(&self.seen)
    }

    /// Changes the object, for a reason.
    pub(super) fn edit(&mut self, reason: impl Into<String>, change: impl FnOnce(&mut K)) {
        change(self.changed.get_or_insert_with(|| K::clone(&self.seen)));
        self.reasons.push(reason.into());
    }

    /// The event to emit when the patch is done; the first one counts.
    pub(super) fn note(&mut self, note: Note) {
        self.note.get_or_insert(note);
    }

    /// The patch; `None` if nothing differs.
    pub(super) fn finish(self) -> Option<Change<K>> {
        let to = serde_json::to_value(self.changed?).ok()?;
        let from = serde_json::to_value(self.seen.as_ref()).ok()?;
        let patch = merge_patch(&from, &to)?;
        Some(Change { seen: self.seen, patch, reason: self.reasons.join("; "), note: self.note })
    }
}

/// The JSON merge patch (RFC 7386) that turns `from` into `to`; `None` if nothing differs. A `null` in either is absent.
fn merge_patch(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut patch = Map::new();
    for (key, value) in from {
        if !value.is_null() && to.get(key).is_none_or(Value::is_null) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    for (key, value) in to.iter().filter(|(_, value)| !value.is_null()) {
        match from.get(key) {
            Some(before) if !before.is_null() => {
                if let Some(change) = merge_patch(before, value) {
                    patch.insert(key.clone(), change);
                }
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::nothing(json!({"a": 1, "b": [1]}), json!({"a": 1, "b": [1]}), None)]
    #[case::null_is_absent(json!({"a": null}), json!({"b": null}), None)]
    #[case::set_and_remove(json!({"a": {"x": 1, "y": 2}}), json!({"a": {"x": 3}}), Some(json!({"a": {"x": 3, "y": null}})))]
    #[case::lists_are_whole(json!({"a": [1, 2]}), json!({"a": [2]}), Some(json!({"a": [2]})))]
    #[case::new_branch(json!({}), json!({"a": {"b": 1}}), Some(json!({"a": {"b": 1}})))]
    fn patches_are_minimal(#[case] from: Value, #[case] to: Value, #[case] patch: Option<Value>) {
        assert_eq!(merge_patch(&from, &to), patch);
    }
}
