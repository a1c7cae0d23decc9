//! Google's discovery document of the Compute API: which requests there are, and what they may contain.

use std::path::Path;

use regex::Regex;
use serde_json::Value;

use super::{Sent, mask::Mask};

/// Fields that are for output only, and that Gardener's driver sends: Google does not refuse them.
const SENT_ANYWAY: [&str; 1] = [".ipv6AccessType"];

/// The document, as a JSON object.
pub struct Document(Value);

impl Document {
    /// Reads the document.
    pub fn read(path: &Path) -> Self {
        Self(serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
    }

    /// The violations of the document by a request. Requests for tokens are not part of the document.
    pub fn check(&self, sent: &Sent) -> Vec<String> {
        let Some((resource, name)) = sent.call.split_once('.') else { return Vec::new() };
        let method = &self.0["resources"][resource]["methods"][name];
        let mut problems = Vec::new();
        let path = format!("projects/{}/{}", sent.project, sent.path);
        self.check_path(method, path.trim_end_matches('/'), &mut problems);
        for (name, value) in &sent.query {
            self.check_query(method, name, value, &mut problems);
        }
        match method["request"]["$ref"].as_str() {
            Some(schema) => self.check_value(self.schema(schema), &sent.body, "", name, &mut problems),
            None if !sent.body.is_null() => problems.push("there is a body".to_owned()),
            None => {}
        }
        problems
    }

    fn schema(&self, name: &str) -> &Value {
        &self.0["schemas"][name]
    }

    fn check_path(&self, method: &Value, path: &str, problems: &mut Vec<String>) {
        let template = method["path"].as_str().unwrap();
        for (part, value) in template.split('/').zip(path.split('/')) {
            match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
                Some(name) => matches(&method["parameters"][name], value, name, problems),
                None if part != value => problems.push(format!("{path} is not {template}")),
                None => {}
            }
        }
        if template.split('/').count() != path.split('/').count() {
            problems.push(format!("{path} is not {template}"));
        }
    }

    fn check_query(&self, method: &Value, name: &str, value: &str, problems: &mut Vec<String>) {
        let own = &method["parameters"][name];
        let parameter = if own.is_null() { &self.0["parameters"][name] } else { own };
        if parameter["location"] != "query" {
            problems.push(format!("there is no parameter {name}"));
            return;
        }
        matches(parameter, value, name, problems);
        if parameter["type"] == "integer" && value.parse::<u32>().is_err() {
            problems.push(format!("{name} is no number"));
        }
        if name == "fields" {
            match Mask::parse(value) {
                Some(mask) => {
                    let schema = self.schema(method["response"]["$ref"].as_str().unwrap());
                    self.check_mask(schema, &mask, "fields", problems);
                }
                None => problems.push(format!("{value} is no selection of fields")),
            }
        }
    }

    fn check_mask(&self, schema: &Value, mask: &Mask, path: &str, problems: &mut Vec<String>) {
        let schema = self.resolved(schema);
        let schema = if schema["type"] == "array" { self.resolved(&schema["items"]) } else { schema };
        for (name, below) in &mask.0 {
            let property = &schema["properties"][name];
            if property.is_null() {
                problems.push(format!("{path} has no {name}"));
            } else {
                self.check_mask(property, below, &format!("{path}.{name}"), problems);
            }
        }
    }

    fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        schema["$ref"].as_str().map_or(schema, |name| self.schema(name))
    }

    fn check_value(&self, schema: &Value, value: &Value, path: &str, method: &str, problems: &mut Vec<String>) {
        let is_output = schema["readOnly"] == true
            || schema["description"].as_str().is_some_and(|text| text.starts_with("[Output Only]"));
        if is_output && !SENT_ANYWAY.iter().any(|name| path.ends_with(name)) {
            problems.push(format!("{path} is for output only"));
        }
        let schema = self.resolved(schema);
        let mut wrong = |expected: &str| problems.push(format!("{path}: expected {expected}, found {value}"));
        match (schema["type"].as_str().unwrap_or_default(), value) {
            ("object", Value::Object(fields)) => {
                for (name, value) in fields {
                    let own = &schema["properties"][name];
                    let property = if own.is_null() { &schema["additionalProperties"] } else { own };
                    let path = format!("{path}.{name}");
                    if property.is_null() {
                        problems.push(format!("there is no field {path}"));
                    } else {
                        self.check_value(property, value, &path, method, problems);
                    }
                }
                for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                    let needed = property["annotations"]["required"].as_array().into_iter().flatten();
                    let mut needed = needed.filter_map(Value::as_str);
                    if needed.any(|id| id == format!("compute.instances.{method}")) && !fields.contains_key(name) {
                        problems.push(format!("{path}.{name} is missing"));
                    }
                }
            }
            ("array", Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.check_value(&schema["items"], item, &format!("{path}[{index}]"), method, problems);
                }
            }
            ("string", Value::String(text)) => {
                let format = schema["format"].as_str().unwrap_or_default();
                if ["int64", "uint64"].contains(&format) && text.parse::<i64>().is_err() {
                    wrong("a number as a text");
                }
                matches(schema, text, path, problems);
            }
            ("integer", Value::Number(number)) if number.is_i64() => {}
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => {}
            (kind, _) => wrong(kind),
        }
    }
}

/// Checks the pattern and the values of a parameter or a field.
fn matches(schema: &Value, text: &str, path: &str, problems: &mut Vec<String>) {
    let is_match = |pattern: &str| Regex::new(&format!("^(?:{pattern})$")).unwrap().is_match(text);
    if schema["pattern"].as_str().is_some_and(|pattern| !is_match(pattern)) {
        problems.push(format!("{path}: {text} does not match {}", schema["pattern"]));
    }
    if schema["enum"].as_array().is_some_and(|choices| !choices.iter().any(|choice| choice == text)) {
        problems.push(format!("{path}: {text} is none of {}", schema["enum"]));
    }
}
