//! The documents of `-o json`. Fields are only ever added: docs/reference has the schema of each.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use mcm_insight::plan::answer::DOCUMENT_VERSION;

/// An answer with its kind.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct JsonDocument<T> {
    /// `cli.mcm/v1`.
    api_version: &'static str,
    /// The kind of the document.
    kind: &'static str,
    /// When it was made.
    #[schemars(with = "String", extend("format" = "date-time"))]
    at: Timestamp,
    #[serde(flatten)]
    content: T,
}

impl<T: Serialize> JsonDocument<T> {
    pub(super) const fn new(kind: &'static str, at: Timestamp, content: T) -> Self {
        Self { api_version: DOCUMENT_VERSION, kind, at, content }
    }

    /// For one document.
    ///
    /// # Errors
    /// It cannot be serialized, which does not happen.
    pub(super) fn pretty(&self) -> serde_json::Result<String> {
        Ok(format!("{}\n", serde_json::to_string_pretty(self)?))
    }

    /// For one of many documents.
    ///
    /// # Errors
    /// It cannot be serialized, which does not happen.
    pub(super) fn line(&self) -> serde_json::Result<String> {
        Ok(format!("{}\n", serde_json::to_string(self)?))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{env, fs, path::Path};

    use schemars::{Schema, generate::SchemaSettings};
    use serde_json::Value;

    use super::*;

    /// The schema of the documents of a command is published. `UPDATE_DOCS=1` rewrites it.
    pub(in crate::cli) fn published<T: JsonSchema>(name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/reference/{name}.schema.json"));
        let schema = serde_json::to_string_pretty(&schema_of::<T>()).unwrap() + "\n";
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &schema).unwrap();
        }
        assert!(
            fs::read_to_string(&path).unwrap_or_default() == schema,
            "run UPDATE_DOCS=1 cargo test --lib schema: {name} has other fields now"
        );
    }

    /// Each field of a document is in the schema, and each field that the schema requires is in the document.
    pub(in crate::cli) fn fits<T: JsonSchema>(document: &Value) {
        let schema = serde_json::to_value(schema_of::<T>()).unwrap();
        check(document, &schema, &schema, "");
    }

    /// Fields that may be absent from the JSON are not required.
    fn schema_of<T: JsonSchema>() -> Schema {
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
    }

    fn check(value: &Value, schema: &Value, root: &Value, path: &str) {
        if let Some(reference) = schema["$ref"].as_str() {
            return check(value, root.pointer(reference.trim_start_matches('#')).unwrap(), root, path);
        }
        // A field that may be null.
        if let Some(other) = schema["anyOf"].as_array().and_then(|all| all.iter().find(|one| one["type"] != "null")) {
            if !value.is_null() {
                check(value, other, root, path);
            }
            return;
        }
        match value {
            Value::Object(fields) => {
                let required = schema["required"].as_array().into_iter().flatten();
                required.for_each(|name| assert!(fields.contains_key(name.as_str().unwrap()), "{path}.{name}"));
                for (name, field) in fields {
                    let of_field = &schema["properties"][name];
                    assert!(!of_field.is_null(), "{path}.{name} is not in the schema");
                    check(field, of_field, root, &format!("{path}.{name}"));
                }
            }
            Value::Array(items) => items.iter().for_each(|item| check(item, &schema["items"], root, path)),
            _ => {}
        }
    }
}
