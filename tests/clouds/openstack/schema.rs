//! A check of JSON against JSON schemas, as far as the packages of OpenStack use them.

use serde_json::{Map, Value};

/// Schemas by name.
pub struct Schemas(Value);

impl Schemas {
    /// Reads schemas in JSON.
    pub fn of(document: &str) -> Self {
        Self(serde_json::from_str(document).unwrap())
    }

    /// Fails for a value that contradicts its schema.
    pub fn check(&self, name: &str, value: &Value) -> Result<(), String> {
        let schema = self.0.get(name).unwrap_or_else(|| panic!("there is no schema {name}"));
        check(schema, value, "$")
    }
}

fn check(schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let wrong = |text: String| Err(format!("{path} {text}"));
    if !is_of_type(&schema["type"], value) {
        return wrong(format!("is not of type {}", schema["type"]));
    }
    if schema.get("const").is_some_and(|one| one != value) {
        return wrong(format!("is not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|choices| !choices.contains(value)) {
        return wrong(format!("is none of {}", schema["enum"]));
    }
    if let Some(choices) = schema["oneOf"].as_array()
        && choices.iter().filter(|choice| check(choice, value, path).is_ok()).count() != 1
    {
        return wrong("does not fit exactly one of its schemas".to_owned());
    }
    match value {
        Value::String(text) => check_text(schema, text).or_else(wrong),
        Value::Number(number) => check_number(schema, number.as_f64().unwrap_or_default()).or_else(wrong),
        Value::Array(items) => check_items(schema, items, path),
        Value::Object(fields) => check_fields(schema, fields, path),
        Value::Null | Value::Bool(_) => Ok(()),
    }
}

fn is_of_type(kinds: &Value, value: &Value) -> bool {
    let is = |kind: &str| match kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    };
    match kinds {
        Value::String(kind) => is(kind),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).any(is),
        _ => true,
    }
}

fn check_text(schema: &Value, text: &str) -> Result<(), String> {
    let length = text.chars().count() as u64;
    if schema["minLength"].as_u64().is_some_and(|least| length < least) {
        return Err(format!("has {length} characters"));
    }
    if schema["maxLength"].as_u64().is_some_and(|most| length > most) {
        return Err(format!("has {length} characters"));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && !matches(pattern, text)
    {
        return Err(format!("does not match {pattern}"));
    }
    let fits = match schema["format"].as_str() {
        Some("uuid") => is_uuid(text),
        Some("base64") => {
            text.len().is_multiple_of(4)
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
        }
        Some("ipv4") => text.parse::<std::net::Ipv4Addr>().is_ok(),
        Some("ipv6") => text.parse::<std::net::Ipv6Addr>().is_ok(),
        Some("date-time") => text.len() >= 19 && text.as_bytes()[10] == b'T',
        Some("uri") => text.contains("://"),
        Some("mac-address") => text.len() == 17,
        _ => true,
    };
    if fits { Ok(()) } else { Err(format!("is not of the format {}", schema["format"])) }
}

/// UUIDs with hyphens.
fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// The patterns that the schemas have.
fn matches(pattern: &str, text: &str) -> bool {
    let all = |allowed: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || allowed.contains(c));
    match pattern {
        "^.*$" | "^.+$" => pattern == "^.*$" || !text.is_empty(),
        "^[a-zA-Z0-9-_:. ]{1,255}$" => all("-_:. ") && (1..=255).contains(&text.len()),
        "^[a-zA-Z0-9-_:. /]{1,255}$" => all("-_:. /") && (1..=255).contains(&text.len()),
        "^[a-zA-Z0-9._-]*$" => all("._-"),
        "^[a-zA-Z0-9-]*$" => all("-"),
        "^[0-9]+$" | "^[0-9]*$" => text.bytes().all(|byte| byte.is_ascii_digit()),
        other => panic!("unknown pattern {other}"),
    }
}

fn check_number(schema: &Value, number: f64) -> Result<(), String> {
    let is_less = schema["minimum"].as_f64().is_some_and(|least| number < least);
    let is_more = schema["maximum"].as_f64().is_some_and(|most| number > most);
    if is_less || is_more { Err(format!("is {number}")) } else { Ok(()) }
}

fn check_items(schema: &Value, items: &[Value], path: &str) -> Result<(), String> {
    let count = items.len() as u64;
    if schema["minItems"].as_u64().is_some_and(|least| count < least)
        || schema["maxItems"].as_u64().is_some_and(|most| count > most)
    {
        return Err(format!("{path} has {count} items"));
    }
    let first = schema["prefixItems"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, item) in items.iter().enumerate() {
        let of_item = first.get(index).or_else(|| schema.get("items"));
        if let Some(of_item) = of_item {
            check(of_item, item, &format!("{path}[{index}]"))?;
        }
    }
    Ok(())
}

fn check_fields(schema: &Value, fields: &Map<String, Value>, path: &str) -> Result<(), String> {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(absent) = required.into_iter().find(|name| !fields.contains_key(*name)) {
        return Err(format!("{path}.{absent} is required"));
    }
    for (key, value) in fields {
        let path = format!("{path}.{key}");
        let by_pattern = || {
            let patterns = schema["patternProperties"].as_object()?;
            patterns.iter().find(|(pattern, _)| matches(pattern, key)).map(|(_, schema)| schema)
        };
        match schema["properties"].get(key).or_else(by_pattern) {
            Some(schema) => check(schema, value, &path)?,
            None if schema["additionalProperties"] == false => return Err(format!("{path} is unknown")),
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_deviation_from_a_schema_is_found() {
        let schemas = Schemas::of(
            &json!({"a": {"type": "object", "required": ["id"], "additionalProperties": false, "properties": {
                "id": {"type": "string", "format": "uuid"}, "size": {"type": ["integer", "null"], "minimum": 1},
                "kind": {"enum": ["x"]}, "image": {"oneOf": [{"type": "string", "maxLength": 0}, {"type": "string", "format": "uuid"}]},
                "all": {"type": "array", "items": {"type": "string"}, "maxItems": 1},
                "metadata": {"type": "object", "patternProperties": {"^[a-zA-Z0-9-_:. ]{1,255}$": {"type": "string"}}, "additionalProperties": false},
            }}})
            .to_string(),
        );
        let id = "00000000-0000-4000-8000-000000000000";
        let check = |value| schemas.check("a", &value).err().unwrap_or_default();
        let good = json!({"id": id, "size": null, "kind": "x", "image": "", "all": ["y"], "metadata": {"a.b": "c"}});
        assert_eq!(check(good), "");
        assert_eq!(check(json!({})), "$.id is required");
        assert_eq!(check(json!({"id": "1"})), "$.id is not of the format \"uuid\"");
        assert_eq!(check(json!({"id": id, "size": 0})), "$.size is 0");
        assert_eq!(check(json!({"id": id, "size": "1"})), "$.size is not of type [\"integer\",\"null\"]");
        assert_eq!(check(json!({"id": id, "kind": "y"})), "$.kind is none of [\"x\"]");
        assert_eq!(check(json!({"id": id, "image": "y"})), "$.image does not fit exactly one of its schemas");
        assert_eq!(check(json!({"id": id, "all": [1]})), "$.all[0] is not of type \"string\"");
        assert_eq!(check(json!({"id": id, "all": ["x", "y"]})), "$.all has 2 items");
        assert_eq!(check(json!({"id": id, "metadata": {"a/b": "c"}})), "$.metadata.a/b is unknown");
        assert_eq!(check(json!({"id": id, "more": 1})), "$.more is unknown");
    }
}
