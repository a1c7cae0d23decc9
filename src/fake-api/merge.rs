//! Strategic merge patches, as far as they are used.

use serde_json::{Map, Value};

/// Applies a strategic merge patch with the merge keys of core/v1. Taints have none: they are replaced as a whole.
pub fn merge_strategically(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let removed = value.as_array().map(Vec::as_slice).unwrap_or_default();
            if let Some(Value::Array(held)) = target.get_mut(list) {
                held.retain(|item| !removed.contains(item));
            }
        } else if key.starts_with('$') {
            // Order and directives that change nothing here.
        } else if value.is_null() {
            target.remove(key);
        } else if let (Some(merge_key), Value::Array(items)) = (merge_key(key), value) {
            let held = target.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
            merge_list(held, items, merge_key);
        } else {
            merge_strategically(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The field that identifies the items of a list; empty for plain values.
fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "conditions" | "addresses" => Some("type"),
        "ownerReferences" => Some("uid"),
        "containers" | "volumes" => Some("name"),
        "finalizers" => Some(""),
        _ => None,
    }
}

fn merge_list(held: &mut Value, items: &[Value], merge_key: &str) {
    let Value::Array(held) = held else { return };
    for item in items {
        let is_same = |other: &Value| match merge_key {
            "" => other == item,
            key => other[key] == item[key],
        };
        let position = held.iter().position(is_same);
        match (position, item["$patch"].as_str()) {
            (Some(position), Some("delete")) => drop(held.remove(position)),
            (None, Some("delete")) => {}
            (Some(position), _) => merge_strategically(&mut held[position], item),
            (None, _) => held.push(item.clone()),
        }
    }
}
