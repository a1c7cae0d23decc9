//! Strategic merge patches as far as they are used, and JSON patches.

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

/// A JSON patch that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server cannot apply operation {position} of the patch: {cause}")]
pub struct JsonPatchError {
    position: usize,
    cause: &'static str,
}

/// Applies a JSON patch (RFC 6902) with the operations add, remove, replace and test.
pub fn patch_by_operations(target: &mut Value, patch: &Value) -> Result<(), JsonPatchError> {
    let operations = patch.as_array().ok_or(JsonPatchError { position: 0, cause: "the patch is no list" })?;
    for (position, operation) in operations.iter().enumerate() {
        operate(target, operation).map_err(|cause| JsonPatchError { position, cause })?;
    }
    Ok(())
}

fn operate(target: &mut Value, operation: &Value) -> Result<(), &'static str> {
    const ABSENT: &str = "its path does not exist";
    let path = operation["path"].as_str().ok_or("it has no path")?;
    let value = || operation.get("value").ok_or("it has no value");
    let (parent, last) = path.rsplit_once('/').ok_or("its path does not begin with a slash")?;
    let last = last.replace("~1", "/").replace("~0", "~");
    match operation["op"].as_str() {
        Some("test") if target.pointer(path) == Some(value()?) => return Ok(()),
        Some("test") => return Err("the tested value is another one"),
        Some("replace") => *target.pointer_mut(path).ok_or(ABSENT)? = value()?.clone(),
        Some("add") => match target.pointer_mut(parent).ok_or(ABSENT)? {
            Value::Object(fields) => drop(fields.insert(last, value()?.clone())),
            Value::Array(items) if last == "-" => items.push(value()?.clone()),
            Value::Array(items) => {
                let position = last.parse().ok().filter(|position| *position <= items.len()).ok_or(ABSENT)?;
                items.insert(position, value()?.clone());
            }
            _ => return Err(ABSENT),
        },
        Some("remove") => match target.pointer_mut(parent).ok_or(ABSENT)? {
            Value::Object(fields) => drop(fields.remove(&last).ok_or(ABSENT)?),
            Value::Array(items) => {
                let position = last.parse().ok().filter(|position| *position < items.len()).ok_or(ABSENT)?;
                drop(items.remove(position));
            }
            _ => return Err(ABSENT),
        },
        _ => return Err("use add, remove, replace or test"),
    }
    Ok(())
}
