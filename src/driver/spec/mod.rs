//! The field reader: reads the `providerSpec` of a class and reports all problems, each with its path.
//!
//! Keys are case-insensitive and `null` counts as absent, as for the decoder of the Go drivers. An unknown key is a
//! warning with the nearest known name, not an error: the class may have been written for another version.
//!
//! ```ignore
//! let mut problems = Problems::default();
//! let mut spec = Fields::of_spec(&class.provider_spec, &["region", "disks", "tags"], &mut problems);
//! let region = spec.required("region", &string());
//! let tags = spec.map("tags", &text());
//! let disks = spec.objects("disks", &["sizeGB"], |disk| disk.required("sizeGB", &integer(1..=65_536)));
//! problems.to_result()?; // "providerSpec.disks[0].sizeGB: expected a whole number from 1 to 65536, found nothing; …"
//! ```

mod problems;
mod scalar;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub use problems::ClassProblems;
pub use problems::FieldProblem;
pub use problems::quotable;
pub use scalar::{ScalarType, boolean, duration, found, integer, one_of, quantity, string, text};

/// The fields of one object, by their known names.
pub struct FieldReader<'a> {
    path: String,
    values: BTreeMap<&'static str, &'a Value>,
    problems: &'a mut ClassProblems,
}

impl<'a> FieldReader<'a> {
    /// The fields of a `providerSpec`.
    pub fn of_spec(spec: &'a Value, known: &[&'static str], problems: &'a mut ClassProblems) -> Self {
        Self::from_value("providerSpec".to_owned(), spec, known, problems)
    }

    /// The fields of an object elsewhere.
    pub fn from_value(path: String, value: &'a Value, known: &[&'static str], problems: &'a mut ClassProblems) -> Self {
        let mut values = BTreeMap::new();
        match value {
            Value::Object(object) => values = sorted_out(&path, object, known, problems),
            Value::Null => {}
            other => problems.expected(&path, "an object", &found(other)),
        }
        Self { path, values, problems }
    }

    /// A required field. `None` if it is absent or invalid; the problem is reported.
    pub fn required<T>(&mut self, name: &str, kind: &ScalarType<T>) -> Option<T> {
        if !self.values.contains_key(name) {
            kind.missing(&self.path_of(name), self.problems);
        }
        self.optional(name, kind)
    }

    /// An optional field. `None` also if it is invalid; the problem is reported.
    pub fn optional<T>(&mut self, name: &str, kind: &ScalarType<T>) -> Option<T> {
        self.with(name, |path, value, problems| kind.read(path, value, problems))
    }

    /// A field that no [`Scalar`] describes: `read` gets its path and value and reports problems.
    pub fn with<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str, &Value, &mut ClassProblems) -> Option<T>,
    ) -> Option<T> {
        let value = self.values.get(name)?;
        read(&self.path_of(name), value, self.problems)
    }

    /// An object with arbitrary keys; returns the valid entries.
    pub fn map<T>(&mut self, name: &str, kind: &ScalarType<T>) -> BTreeMap<String, T> {
        let read = |path: &str, value: &Value, problems: &mut ClassProblems| match value {
            Value::Object(object) => Some(
                object
                    .iter()
                    .filter_map(|(key, value)| {
                        let path = format!("{path}.{}", quotable(key));
                        kind.read(&path, value, problems).map(|value| (key.clone(), value))
                    })
                    .collect(),
            ),
            other => refuse(path, "an object", other, problems),
        };
        self.with(name, read).unwrap_or_default()
    }

    /// A list; returns the valid items.
    pub fn list<T>(&mut self, name: &str, kind: &ScalarType<T>) -> Vec<T> {
        self.items(name, |path, value, problems| kind.read(path, value, problems))
    }

    /// A required object with fields.
    pub fn required_object<T>(
        &mut self,
        name: &str,
        known: &[&'static str],
        read: impl FnOnce(&mut FieldReader<'_>) -> Option<T>,
    ) -> Option<T> {
        if !self.has(name) {
            self.problems.expected(self.path_of(name), "an object", "nothing");
        }
        self.object(name, known, read)
    }

    /// An object with fields.
    pub fn object<T>(
        &mut self,
        name: &str,
        known: &[&'static str],
        read: impl FnOnce(&mut FieldReader<'_>) -> Option<T>,
    ) -> Option<T> {
        self.with(name, |path, value, problems| {
            read(&mut FieldReader::from_value(path.to_owned(), value, known, problems))
        })
    }

    /// A list of objects; returns those for which `read` returns a value.
    pub fn objects<T>(
        &mut self,
        name: &str,
        known: &[&'static str],
        read: impl Fn(&mut FieldReader<'_>) -> Option<T>,
    ) -> Vec<T> {
        self.items(name, |path, value, problems| match value {
            Value::Object(_) => read(&mut FieldReader::from_value(path.to_owned(), value, known, problems)),
            other => refuse(path, "an object", other, problems),
        })
    }

    fn items<T>(&mut self, name: &str, read: impl Fn(&str, &Value, &mut ClassProblems) -> Option<T>) -> Vec<T> {
        let all = |path: &str, value: &Value, problems: &mut ClassProblems| match value {
            Value::Array(items) => Some(
                items
                    .iter()
                    .enumerate()
                    .filter_map(|(index, item)| read(&format!("{path}[{index}]"), item, problems))
                    .collect(),
            ),
            other => refuse(path, "a list", other, problems),
        };
        self.with(name, all).unwrap_or_default()
    }

    /// The field is present, and not `null`.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }
}

fn refuse<T>(path: &str, expected: &str, value: &Value, problems: &mut ClassProblems) -> Option<T> {
    problems.expected(path, expected, &found(value));
    None
}

/// Values by known name, without `null` values.
fn sorted_out<'a>(
    path: &str,
    object: &'a Map<String, Value>,
    known: &[&'static str],
    problems: &mut ClassProblems,
) -> BTreeMap<&'static str, &'a Value> {
    let mut values = BTreeMap::new();
    for (key, value) in object {
        let Some(name) = known.iter().find(|name| name.eq_ignore_ascii_case(key)) else {
            // The nearest name takes its time, and there may be any number of keys.
            if problems.lists_more_warnings() {
                problems.warning(format!("{path}.{}", quotable(key)), unknown(key, known));
            }
            continue;
        };
        if values.insert(*name, value).is_some() {
            problems.error(format!("{path}.{name}"), "given twice, in different spellings");
        }
    }
    values.retain(|_, value| !value.is_null());
    values
}

fn unknown(key: &str, known: &[&'static str]) -> String {
    match nearest(key, known) {
        Some(name) => format!("unknown field, ignored: did you mean {name}?"),
        None => format!("unknown field, ignored: known are {}", known.join(", ")),
    }
}

/// The known name of which the key is most likely a misspelling.
fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    // More than a third wrong letters is not a typo, nor is a text longer than any name.
    let short = Some(key).filter(|key| key.len() <= 64)?.to_ascii_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&short, &name.to_ascii_lowercase());
    let best = known.iter().map(|name| (distance(name), *name)).min()?;
    Some(best).filter(|(distance, name)| 3 * distance <= name.len()).map(|(_, name)| name)
}
