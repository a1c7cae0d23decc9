//! A check of JSON against the definitions of a Swagger 2.0 document.

use serde_json::Value;

/// The definitions of a document, by name.
pub struct Definitions(Value);

impl Definitions {
    /// Reads the definitions of a document in JSON.
    pub fn of(document: &str) -> Self {
        let document: Value = serde_json::from_str(document).unwrap();
        Self(document["definitions"].clone())
    }

    /// Fails for a value that contradicts its definition: a required field is absent, a field is unknown, or of another type.
    /// `null` is allowed, because Go programs send it for lists without entries.
    pub fn check(&self, name: &str, value: &Value) -> Result<(), String> {
        self.of_definition(name, value, "$")
    }

    fn of_definition(&self, name: &str, value: &Value, path: &str) -> Result<(), String> {
        let Some(definition) = self.0.get(name) else { return Err(format!("{name} is not defined")) };
        self.of_object(definition, value, path)
    }

    fn of_object(&self, definition: &Value, value: &Value, path: &str) -> Result<(), String> {
        let Value::Object(fields) = value else { return Err(format!("{path} is not an object")) };
        let required = definition["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if let Some(absent) = required.into_iter().find(|name| !fields.contains_key(*name)) {
            return Err(format!("{path}.{absent} is required"));
        }
        for (key, value) in fields {
            let path = format!("{path}.{key}");
            match definition["properties"].get(key) {
                Some(schema) => self.of_schema(schema, value, &path)?,
                None => return Err(format!("{path} is unknown")),
            }
        }
        Ok(())
    }

    fn of_schema(&self, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
        if value.is_null() {
            return Ok(());
        }
        if let Some(reference) = schema["$ref"].as_str() {
            return self.of_definition(reference.trim_start_matches("#/definitions/"), value, path);
        }
        if let Some(choices) = schema["enum"].as_array()
            && !choices.contains(value)
        {
            return Err(format!("{path} is none of {choices:?}"));
        }
        let fits = match schema["type"].as_str().unwrap_or_default() {
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "object" if schema["properties"].is_object() => return self.of_object(schema, value, path),
            "object" => value.is_object(),
            "array" => {
                let items = value.as_array().ok_or_else(|| format!("{path} is not a list"))?;
                for (index, item) in items.iter().enumerate() {
                    self.of_schema(&schema["items"], item, &format!("{path}[{index}]"))?;
                }
                true
            }
            _ => true,
        };
        if fits { Ok(()) } else { Err(format!("{path} is not of type {}", schema["type"])) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_deviation_from_a_definition_is_found() {
        let definitions = Definitions::of(
            &json!({"definitions": {
                "a": {"required": ["name"], "properties": {
                    "name": {"type": "string"}, "count": {"type": "integer"}, "kind": {"type": "string", "enum": ["x", "y"]},
                    "all": {"type": "array", "items": {"$ref": "#/definitions/b"}},
                    "any": {"type": "object"}, "inner": {"type": "object", "properties": {"is": {"type": "boolean"}}},
                }},
                "b": {"properties": {"is": {"type": "boolean"}}},
            }})
            .to_string(),
        );
        let check = |value| definitions.check("a", &value).err().unwrap_or_default();
        assert_eq!(check(json!({"name": "n", "count": 1, "kind": "x", "all": [{"is": true}, {}]})), "");
        assert_eq!(check(json!({"name": "n", "all": null})), "");
        assert_eq!(check(json!({"name": "n", "any": {"x": 1}, "inner": {"is": true}})), "");
        assert_eq!(check(json!({"name": "n", "inner": {"x": 1}})), "$.inner.x is unknown");
        assert_eq!(check(json!({"name": "n", "inner": []})), "$.inner is not an object");
        assert_eq!(check(json!({})), "$.name is required");
        assert_eq!(check(json!([])), "$ is not an object");
        assert_eq!(check(json!({"name": 1})), "$.name is not of type \"string\"");
        assert_eq!(check(json!({"name": "n", "count": 1.5})), "$.count is not of type \"integer\"");
        assert_eq!(check(json!({"name": "n", "more": 1})), "$.more is unknown");
        assert_eq!(check(json!({"name": "n", "all": {}})), "$.all is not a list");
        assert_eq!(check(json!({"name": "n", "all": [{"is": 1}]})), "$.all[0].is is not of type \"boolean\"");
        assert!(check(json!({"name": "n", "kind": "z"})).starts_with("$.kind is none of"));
    }
}
