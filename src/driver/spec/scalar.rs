//! Values without fields.

use std::{borrow::Cow, ops::RangeInclusive};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

use super::problems::{ClassProblems, quotable};
use mcm_api::{GoDuration, machine::is_quantity};

/// A type of value: how to parse it, and what an error message expects.
pub struct ScalarType<T> {
    expected: Cow<'static, str>,
    parse: Box<ScalarParser<T>>,
}

type ScalarParser<T> = dyn Fn(&Value) -> Option<T>;

impl<T> ScalarType<T> {
    /// `expected` completes the sentence "expected …".
    pub fn new(expected: impl Into<Cow<'static, str>>, parse: impl Fn(&Value) -> Option<T> + 'static) -> Self {
        Self { expected: expected.into(), parse: Box::new(parse) }
    }

    pub(super) fn read(&self, path: &str, value: &Value, problems: &mut ClassProblems) -> Option<T> {
        let parsed = (self.parse)(value);
        if parsed.is_none() {
            problems.expected(path, &self.expected, &found(value));
        }
        parsed
    }

    pub(super) fn missing(&self, path: &str, problems: &mut ClassProblems) {
        problems.expected(path, &self.expected, "nothing");
    }
}

/// A string that is not empty.
pub fn string() -> ScalarType<String> {
    let parse = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    ScalarType::new("a non-empty string", parse)
}

/// A string that may be empty.
pub fn text() -> ScalarType<String> {
    ScalarType::new("a string", |value| value.as_str().map(str::to_owned))
}

/// `true` or `false`.
pub fn boolean() -> ScalarType<bool> {
    ScalarType::new("true or false", Value::as_bool)
}

/// A whole number in a range, both ends included.
pub fn integer(range: RangeInclusive<i64>) -> ScalarType<i64> {
    let expected = format!("a whole number from {} to {}", range.start(), range.end());
    ScalarType::new(expected, move |value| value.as_i64().filter(|number| range.contains(number)))
}

/// One of a few strings, spelled exactly.
pub fn one_of(choices: &'static [&'static str]) -> ScalarType<&'static str> {
    let parse = move |value: &Value| choices.iter().find(|choice| value.as_str() == Some(**choice)).copied();
    ScalarType::new(format!("one of {}", choices.join(", ")), parse)
}

/// A non-negative Go duration.
pub fn duration() -> ScalarType<GoDuration> {
    let parse = |value: &Value| {
        let duration: GoDuration = value.as_str()?.parse().ok()?;
        (duration.as_nanos() >= 0).then_some(duration)
    };
    ScalarType::new("a duration such as \"1m30s\"", parse)
}

/// A non-negative Kubernetes quantity, as a string or a whole number.
pub fn quantity() -> ScalarType<Quantity> {
    let parse = |value: &Value| match value {
        Value::String(text) => {
            Some(text.clone()).filter(|text| is_quantity(text) && !text.starts_with('-')).map(Quantity)
        }
        Value::Number(number) => number.as_u64().map(|number| Quantity(number.to_string())),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    ScalarType::new("a quantity such as \"4\", \"500m\" or \"16Gi\"", parse)
}

/// Describes a value; short strings are quoted.
pub fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "a boolean".to_owned(),
        Value::Number(number) if number.is_f64() => "a fractional number".to_owned(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) if text.is_empty() => "an empty string".to_owned(),
        Value::String(text) => format!("the string \"{}\"", quotable(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}
