//! Notes: values that the other side cannot hold, kept in an annotation until the object is converted back.
//!
//! A field that both sides hold in different forms is converted by a pair of functions, one for each direction. If the
//! reverse conversion does not restore the original value, the original is noted. In the reverse conversion a noted
//! value is used if it still leads to the current value of the other side; if that was changed, the change takes
//! precedence.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::report::{ConversionReport, ObjectConversion};

/// Annotation on a converted object with the values that the other side cannot hold. mcm writes and reads it.
pub const UNMAPPED: &str = "conversion.mcm/unmapped";
/// Annotation on a native object or template: the version of Kubernetes. Its change in a template is a rollout.
pub const VERSION: &str = "conversion.mcm/version";
/// Annotation on a native template: the time in `rollout.after` that has passed. Its change is a rollout.
pub const ROLLOUT_AFTER: &str = "conversion.mcm/rollout-after";
/// Annotation on native deployments: the MachinePool that they were made from.
pub const MACHINE_POOL: &str = "conversion.mcm/machine-pool";
/// Annotation on a MachineClass: the template that it was made from.
pub const MADE_FROM: &str = "conversion.mcm/made-from";
/// Annotation on a native Secret: the format of the bootstrap data, such as `ignition`.
pub const BOOTSTRAP_FORMAT: &str = "conversion.mcm/bootstrap-format";
/// Domain of all these.
pub const DOMAIN: &str = "conversion.mcm/";
/// The API server's limit for all annotations of an object, in bytes.
const MOST_BYTES: usize = 256 * 1024;

/// The content of the annotation.
#[derive(Debug, Serialize, Deserialize)]
struct NoteAnnotation {
    /// `apiVersion` of the object that was converted.
    source: String,
    /// Its generation, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
    /// Path → value.
    fields: BTreeMap<String, Value>,
}

/// The notes of one object under conversion.
#[derive(Debug, Default)]
pub(super) struct ConversionNotes {
    incoming: BTreeMap<String, Value>,
    outgoing: BTreeMap<String, Value>,
    /// Paths in the target whose noted value no longer fits.
    outdated: BTreeSet<String>,
}

impl ConversionNotes {
    /// Reads the notes on an object that is about to become one of `target`, an `apiVersion`.
    pub(super) fn on(meta: &ObjectMeta, target: &str, report: &mut ConversionReport) -> Self {
        let Some(text) = meta.annotations.as_ref().and_then(|all| all.get(UNMAPPED)) else { return Self::default() };
        match serde_json::from_str::<NoteAnnotation>(text) {
            Ok(stored) if stored.source == target => Self { incoming: stored.fields, ..Self::default() },
            Ok(stored) => {
                let reason = format!("holds values of {}, not of {target}; they are dropped", stored.source);
                report.lose(annotation("", UNMAPPED), reason, "");
                Self::default()
            }
            Err(_) => {
                report.lose(annotation("", UNMAPPED), "cannot be read; it is dropped", "");
                Self::default()
            }
        }
    }

    /// Crosses a field from `path` in the source to `target_path` in the target.
    pub(super) fn cross<S, T>(
        &mut self,
        source: &S,
        path: &str,
        target_path: &str,
        there: impl Fn(&S) -> T,
        back: impl Fn(&T) -> S,
    ) -> T
    where
        S: Serialize + PartialEq,
        T: DeserializeOwned,
    {
        let noted: Option<T> = self.take(target_path);
        let had_note = noted.is_some();
        let target = match noted.filter(|noted| back(noted) == *source) {
            Some(noted) => noted,
            None => {
                if had_note {
                    self.outdated.insert(target_path.to_owned());
                }
                there(source)
            }
        };
        if back(&target) != *source {
            self.note(path, source);
        }
        target
    }

    /// Notes a value that the target has no place for.
    pub(super) fn note<S: Serialize>(&mut self, path: &str, value: &S) {
        self.outgoing.insert(path.to_owned(), serde_json::to_value(value).unwrap_or_default());
    }

    /// Notes a value that the target has no place for and reports the loss, unless it is the default.
    pub(super) fn lose<S: Serialize + Default + PartialEq>(
        &mut self,
        path: &str,
        value: &S,
        report: &mut ConversionReport,
        reason: &str,
        advice: &str,
    ) {
        if *value != S::default() {
            self.note(path, value);
            report.lose(path, reason, advice);
        }
    }

    /// The noted value of a field of the target, if there is one.
    pub(super) fn take<T: DeserializeOwned>(&mut self, path: &str) -> Option<T> {
        serde_json::from_value(self.incoming.remove(path)?).ok()
    }

    /// The noted values of all labels or annotations under a path such as `metadata.labels`.
    pub(super) fn take_keys(&mut self, path: &str) -> BTreeMap<String, String> {
        let (head, tail) = (format!("{path}['"), "']");
        let keys: Vec<String> =
            self.incoming.keys().filter(|key| key.starts_with(&head) && key.ends_with(tail)).cloned().collect();
        let entry = |key: &String| key.get(head.len()..key.len().saturating_sub(tail.len())).map(str::to_owned);
        keys.into_iter().filter_map(|key| Some((entry(&key)?, self.take(&key)?))).collect()
    }

    /// The converted object with its notes, and behind it the other objects of the outcome.
    pub(super) fn finish<K: Resource + Serialize>(
        self,
        source: &str,
        generation: Option<i64>,
        mut made: K,
        mut outcome: ObjectConversion,
        report: &mut ConversionReport,
    ) -> ObjectConversion {
        self.write(source, generation, made.meta_mut(), report);
        outcome.objects.insert(0, serde_json::to_value(made).unwrap_or_default());
        outcome
    }

    /// Writes the annotation of the converted object, or refuses it if it is too large.
    fn write(self, source: &str, generation: Option<i64>, meta: &mut ObjectMeta, report: &mut ConversionReport) {
        for path in self.outdated {
            report.lose(path, "the note does not match the current object; the object takes precedence", "");
        }
        if !self.outgoing.is_empty() {
            let stored = NoteAnnotation { source: source.to_owned(), generation, fields: self.outgoing };
            let text = serde_json::to_string(&stored).unwrap_or_default();
            meta.annotations.get_or_insert_default().insert(UNMAPPED.to_owned(), text);
        }
        check_size(meta, report);
    }
}

/// Refuses more annotations than an object can have.
pub(super) fn check_size(meta: &ObjectMeta, report: &mut ConversionReport) {
    let size: usize = meta.annotations.iter().flatten().map(|(key, value)| key.len() + value.len()).sum();
    if size > MOST_BYTES {
        let reason = format!("the annotations of the result need {size} bytes, more than {MOST_BYTES}");
        report.refuse("metadata.annotations", reason, "remove annotations");
    }
}

/// Path of an annotation.
pub(super) fn annotation(prefix: &str, key: &str) -> String {
    format!("{prefix}metadata.annotations['{key}']")
}

/// Path of a label.
pub(super) fn label(prefix: &str, key: &str) -> String {
    format!("{prefix}metadata.labels['{key}']")
}
