//! Changes of values, as JSON patches describe them.

use serde_json::{Map, Value};

/// The value with another one at a pointer. Missing objects are made.
pub fn with(value: &Value, pointer: &str, added: Value) -> Value {
    let mut made = value.clone();
    let mut at = &mut made;
    for part in parts(pointer) {
        at = match at {
            Value::Array(all) => {
                let number = part.parse().unwrap_or(all.len()).min(all.len());
                if number == all.len() {
                    all.push(Value::Null);
                }
                &mut all[number]
            }
            Value::Object(fields) => fields.entry(part).or_insert(Value::Null),
            other => {
                *other = Value::Object(Map::new());
                &mut other[part.as_str()]
            }
        };
    }
    *at = added;
    made
}

/// The value without the field at a pointer.
pub fn without(value: &Value, pointer: &str) -> Value {
    let mut made = value.clone();
    let (above, _) = pointer.rsplit_once('/').unwrap_or_default();
    let name = parts(pointer).pop().unwrap_or_default();
    if let Some(Value::Object(fields)) = made.pointer_mut(above) {
        fields.remove(&name);
    }
    made
}

/// Where two values differ: pointers, with what is there in the second one.
pub fn differences(before: &Value, after: &Value) -> Vec<(String, Option<Value>)> {
    let mut found = Vec::new();
    differ("", before, after, &mut found);
    found
}

fn differ(at: &str, before: &Value, after: &Value, found: &mut Vec<(String, Option<Value>)>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in after {
                let at = below(at, name);
                match before.get(name) {
                    Some(before) => differ(&at, before, value, found),
                    None => found.push((at, Some(value.clone()))),
                }
            }
            let gone = before.keys().filter(|name| !after.contains_key(*name));
            found.extend(gone.map(|name| (below(at, name), None)));
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (number, (before, after)) in before.iter().zip(after).enumerate() {
                differ(&format!("{at}/{number}"), before, after, found);
            }
        }
        _ if before == after => {}
        _ => found.push((at.to_owned(), Some(after.clone()))),
    }
}

/// A value without the parts that contain a text, and these parts as templates, by their pointers. A field whose name contains
/// the text has no pointer that holds for all, so its whole object is one template.
pub fn split(value: &Value, text: &str) -> (Value, Vec<(String, String)>) {
    let mut found = Vec::new();
    let rest = split_at("", value, text, &mut found).unwrap_or_default();
    (rest, found)
}

fn split_at(at: &str, value: &Value, text: &str, found: &mut Vec<(String, String)>) -> Option<Value> {
    let is_whole = match value {
        Value::Object(fields) => fields.keys().any(|name| name.contains(text)),
        Value::Array(items) => items.iter().any(|one| contains(one, text)),
        Value::String(string) => string.contains(text),
        _ => false,
    };
    match value {
        _ if is_whole => {
            found.push((at.to_owned(), rendered(value, text)));
            constant(value, text)
        }
        Value::Object(fields) => {
            let parts = fields.iter();
            let kept =
                parts.filter_map(|(name, one)| Some((name.clone(), split_at(&below(at, name), one, text, found)?)));
            Some(kept.collect())
        }
        other => Some(other.clone()),
    }
}

/// The value without the parts that contain a text.
fn constant(value: &Value, text: &str) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, one)| !name.contains(text) && !contains(one, text));
            Some(kept.map(|(name, one)| (name.clone(), one.clone())).collect())
        }
        Value::Array(items) => Some(items.iter().filter(|one| !contains(one, text)).cloned().collect()),
        Value::String(_) => None,
        other => Some(other.clone()),
    }
}

pub fn contains(value: &Value, text: &str) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(name, one)| name.contains(text) || contains(one, text)),
        Value::Array(items) => items.iter().any(|one| contains(one, text)),
        Value::String(string) => string.contains(text),
        _ => false,
    }
}

/// A template whose result is the value. `text` is rendered, other braces are not.
pub fn rendered(value: &Value, text: &str) -> String {
    let json = format!("{value:#}");
    let parts: Vec<String> = json.split(text).map(|part| part.replace("{{", r#"{{ "{{" }}"#)).collect();
    parts.join(text)
}

fn below(at: &str, name: &str) -> String {
    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The names and numbers of a pointer.
pub fn parts(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect()
}
