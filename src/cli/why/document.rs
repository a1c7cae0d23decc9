//! The answer as JSON. Fields are only ever added: docs/reference/explanation.schema.json is its schema.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::reading::story::{Answer, Manager};

/// Answers about objects.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Explanation")]
pub(super) struct Document<'a> {
    /// `cli.mcm/v1`.
    pub api_version: &'static str,
    /// `Explanation`.
    pub kind: &'static str,
    /// When it was made.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: Timestamp,
    /// The object, or everything that is not settled.
    pub objects: &'a [Answer],
    /// The managers, as their Leases show them.
    pub managers: &'a [Manager],
    /// The managers that were asked and answered.
    pub asked: &'a [String],
    /// Facts that the answer could not take into account.
    pub notes: &'a [String],
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use schemars::generate::SchemaSettings;
    use serde_json::Value;

    use super::*;

    /// `UPDATE_DOCS=1` rewrites it.
    #[test]
    fn the_published_schema_is_that_of_the_answer() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/explanation.schema.json");
        let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &schema).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), schema, "run this test with UPDATE_DOCS=1");
    }

    /// Fields that may be absent from the JSON are not required.
    fn schema() -> schemars::Schema {
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Document<'_>>()
    }

    /// Each field of an answer is in the schema, and each field that the schema requires is in the answer.
    #[test]
    fn an_answer_has_the_fields_of_the_schema() {
        let answers = crate::cli::reading::story::tests::answers();
        let document = Document {
            api_version: "cli.mcm/v1",
            kind: "Explanation",
            at: Timestamp::UNIX_EPOCH,
            objects: &answers,
            managers: &[],
            asked: &[],
            notes: &[],
        };
        let schema = serde_json::to_value(schema()).unwrap();
        check(&serde_json::to_value(&document).unwrap(), &schema, &schema, "");
    }

    fn check(value: &Value, schema: &Value, root: &Value, path: &str) {
        if let Some(reference) = schema["$ref"].as_str() {
            return check(value, root.pointer(reference.trim_start_matches('#')).unwrap(), root, path);
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
