//! Takes fields out of objects of other providers. Remaining fields are refused, because no converter reads them.

use serde_json::{Map, Value};

use crate::{input::is_zero, report::ConversionReport};

/// The fields of one object that were not taken yet.
#[derive(Debug)]
pub struct UnreadFields {
    path: String,
    fields: Map<String, Value>,
}

impl UnreadFields {
    /// Of an object, or of nothing. Anything else is refused.
    pub fn from_value(path: impl Into<String>, value: Value, report: &mut ConversionReport) -> Self {
        let path = path.into();
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            _ => {
                report.refuse(path.clone(), "is not an object", "correct it");
                Map::new()
            }
        };
        Self { path, fields }
    }

    /// Path of a field.
    pub fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// The field is present and not null.
    pub fn has(&self, name: &str) -> bool {
        self.key(name).and_then(|key| self.fields.get(&key)).is_some_and(|value| !value.is_null())
    }

    /// A field that stays.
    pub fn peek(&self, name: &str) -> Option<&Value> {
        self.fields.get(&self.key(name)?)
    }

    /// Go matches names without regard to case.
    fn key(&self, name: &str) -> Option<String> {
        let exact = self.fields.contains_key(name).then(|| name.to_owned());
        exact.or_else(|| self.fields.keys().find(|key| key.eq_ignore_ascii_case(name)).cloned())
    }

    /// A field that is present and not null.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(&self.key(name)?).filter(|value| !value.is_null())
    }

    /// A field that has a value other than the zero value of Go.
    pub fn filled(&mut self, name: &str) -> Option<Value> {
        self.take(name).and_then(filled)
    }

    /// A text; empty if it is absent.
    pub fn text(&mut self, name: &str, report: &mut ConversionReport) -> String {
        match self.take(name) {
            None => String::new(),
            Some(Value::String(text)) => text,
            Some(_) => self.refuse_type(name, "a text", report),
        }
    }

    /// A required text.
    pub fn required(&mut self, name: &str, report: &mut ConversionReport, reason: &str, advice: &str) -> String {
        match self.take(name) {
            Some(Value::String(text)) if !text.is_empty() => text,
            None | Some(Value::String(_)) => {
                report.refuse(self.path(name), reason, advice);
                String::new()
            }
            Some(_) => self.refuse_type(name, "a text", report),
        }
    }

    /// A text that is one of a few; returns its counterpart. `None` if it is absent or empty.
    pub fn choice(
        &mut self,
        name: &str,
        known: &[(&str, &'static str)],
        report: &mut ConversionReport,
    ) -> Option<&'static str> {
        let text = self.text(name, report);
        if text.is_empty() {
            return None;
        }
        let found = known.iter().find(|(known, _)| *known == text).map(|(_, counterpart)| *counterpart);
        if found.is_none() {
            let advice = known.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(" or ");
            report.refuse(self.path(name), format!("{text:?} has no counterpart"), format!("use {advice}"));
        }
        found
    }

    /// True or false.
    pub fn flag(&mut self, name: &str, report: &mut ConversionReport) -> Option<bool> {
        match self.take(name)? {
            Value::Bool(flag) => Some(flag),
            _ => self.refuse_type(name, "true or false", report),
        }
    }

    /// An object; without fields if it is absent.
    pub fn object(&mut self, name: &str, report: &mut ConversionReport) -> Self {
        let value = self.take(name).unwrap_or_default();
        Self::from_value(self.path(name), value, report)
    }

    /// Names and values.
    pub fn map(&mut self, name: &str, report: &mut ConversionReport) -> Map<String, Value> {
        self.object(name, report).fields
    }

    /// A list; empty if it is absent.
    pub fn list(&mut self, name: &str, report: &mut ConversionReport) -> Vec<Value> {
        match self.take(name) {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => self.refuse_type(name, "a list", report),
        }
    }

    /// A list of objects.
    pub fn objects(&mut self, name: &str, report: &mut ConversionReport) -> Vec<Self> {
        let items = self.list(name, report).into_iter().enumerate();
        items.map(|(index, item)| Self::from_value(format!("{}[{index}]", self.path(name)), item, report)).collect()
    }

    /// The only object of a list, if there is one. Further ones are refused.
    pub fn only(&mut self, name: &str, report: &mut ConversionReport, reason: &str) -> Option<Self> {
        let mut all = self.objects(name, report).into_iter();
        let first = all.next();
        for other in all {
            report.refuse(other.path, reason, "remove it");
        }
        first
    }

    /// All fields have been read.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Refuses a field that has a value.
    pub fn refuse(&mut self, name: &str, report: &mut ConversionReport, reason: &str, advice: &str) {
        if self.filled(name).is_some() {
            report.refuse(self.path(name), reason, advice);
        }
    }

    /// Reports the loss of a field that has a value.
    pub fn lose(&mut self, name: &str, report: &mut ConversionReport, reason: &str, advice: &str) {
        if self.filled(name).is_some() {
            report.lose(self.path(name), reason, advice);
        }
    }

    /// Refuses the remaining fields.
    pub fn finish(self, report: &mut ConversionReport) {
        for (name, _) in self.fields.iter().filter(|(_, value)| has_value(value)) {
            report.refuse(self.path(name), "has no counterpart: the VM would differ", "remove it");
        }
    }

    fn refuse_type<T: Default>(&self, name: &str, expected: &str, report: &mut ConversionReport) -> T {
        report.refuse(self.path(name), format!("is not {expected}"), "correct it");
        T::default()
    }
}

/// Fields that have a value.
pub fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// A text that is not empty.
pub fn text(text: impl Into<String>) -> Option<Value> {
    Some(text.into()).filter(|text| !text.is_empty()).map(Value::String)
}

/// A value other than the zero value of Go.
pub fn filled(value: impl Into<Value>) -> Option<Value> {
    Some(value.into()).filter(has_value)
}

/// A label may have an empty value, so an object has a value if it has any field.
fn has_value(value: &Value) -> bool {
    value.as_object().map_or_else(|| !is_zero(value), |fields| !fields.is_empty())
}
