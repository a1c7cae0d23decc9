//! Checks of custom resources against the schemas of their definitions: unknown fields, types and limits. Rules in CEL are not
//! evaluated.

use serde_json::Value;

use crate::{
    call::{ApiCall, ApiVerb},
    definitions::schema_of,
    kinds::Kind,
    refusal::RequestRefusal,
};

/// Result of a check.
#[derive(Debug, Default, PartialEq, Eq)]
struct SchemaFindings {
    /// Paths of fields that the schema does not have. They were removed.
    unknown: Vec<String>,
    /// Fields with other values than the schema allows.
    invalid: Vec<String>,
}

/// The body of a write without the fields that its kind does not have.
pub(super) fn checked(call: &ApiCall) -> Result<Value, RequestRefusal> {
    let mut body = Value::clone(&call.body);
    let is_object = matches!(call.verb, ApiVerb::Create | ApiVerb::Update | ApiVerb::MergePatch | ApiVerb::Apply);
    let Some(schema) = schema_of(call.kind).filter(|_| is_object && matches!(&*call.subresource, "" | "status")) else {
        return Ok(body);
    };
    let mut findings = SchemaFindings::default();
    check(schema, &mut body, "", &mut findings);
    let is_strict = call.query.get("fieldValidation").is_some_and(|validation| validation == "Strict");
    if let (true, Some(_)) = (is_strict, findings.unknown.first()) {
        return Err(strict_refusal(call.kind, &findings.unknown));
    }
    if !findings.invalid.is_empty() {
        let Kind { name, group, .. } = call.kind;
        let text = format!("{name}.{group} {:?} is invalid: {}", call.object_name(), findings.invalid.join(", "));
        return Err(RequestRefusal::new(422, "Invalid", text));
    }
    Ok(body)
}

fn strict_refusal(kind: &Kind, unknown: &[String]) -> RequestRefusal {
    let fields: Vec<String> = unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
    let text = format!(
        "{} in version {:?} cannot be handled as a {0}: strict decoding error: {}",
        kind.name,
        kind.version,
        fields.join(", ")
    );
    RequestRefusal::new(400, "BadRequest", text)
}

fn check(schema: &Value, value: &mut Value, path: &str, findings: &mut SchemaFindings) {
    // A merge patch removes a field with null.
    if value.is_null() {
        return;
    }
    let wanted = schema["type"].as_str();
    let has_type = match wanted {
        _ if schema["x-kubernetes-int-or-string"] == true => value.is_i64() || value.is_string(),
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        _ => true,
    };
    if !has_type {
        findings.invalid.push(format!("{path}: Invalid value: {value}: must be of type {}", wanted.unwrap_or("any")));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        findings.invalid.push(format!("{path}: Unsupported value: {value}: supported values: {}", allowed.join(", ")));
    }
    check_limits(schema, value, path, findings);
    match value {
        Value::Array(items) => {
            for (position, item) in items.iter_mut().enumerate() {
                check(&schema["items"], item, &format!("{path}[{position}]"), findings);
            }
        }
        Value::Object(fields) if schema["properties"].is_object() || wanted == Some("object") => {
            let keeps_all = schema["x-kubernetes-preserve-unknown-fields"] == true;
            let additional = &schema["additionalProperties"];
            let is_open = keeps_all || additional.is_object() || *additional == true;
            fields.retain(|key, field| {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let is_root = path.is_empty() && matches!(key.as_str(), "apiVersion" | "kind" | "metadata");
                match schema["properties"].get(key) {
                    _ if is_root => {}
                    Some(property) => check(property, field, &below, findings),
                    None if additional.is_object() => check(additional, field, &below, findings),
                    None if is_open => {}
                    None => {
                        findings.unknown.push(below);
                        return false;
                    }
                }
                true
            });
        }
        _ => {}
    }
}

fn check_limits(schema: &Value, value: &Value, path: &str, findings: &mut SchemaFindings) {
    let number = value.as_f64();
    let limit = |field: &str| schema[field].as_f64();
    if let Some((least, _)) = limit("minimum").zip(number).filter(|(least, number)| number < least) {
        findings.invalid.push(format!("{path}: Invalid value: {value}: must be at least {least}"));
    }
    if let Some((most, _)) = limit("maximum").zip(number).filter(|(most, number)| number > most) {
        findings.invalid.push(format!("{path}: Invalid value: {value}: must be at most {most}"));
    }
    let length = value.as_str().map(|text| text.chars().count() as u64);
    if let Some((most, _)) = schema["maxLength"].as_u64().zip(length).filter(|(most, length)| length > most) {
        findings.invalid.push(format!("{path}: Too long: may not be more than {most} characters"));
    }
}
