//! The report of a completion.

use std::path::Path;

use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::{additions::ClassCompletion, edit::UnknownForm};
use crate::{
    api::machine::MachineClass,
    cli::{exit::NegativeAnswer, format::OutputFormat},
};
use mcm_insight::table::table;

/// The end of the completion of a class.
#[derive(Debug)]
pub(super) enum CompletionOutcome {
    /// The capacity is not known.
    Unknown(String),
    /// The class is completed as far as the cloud describes its VMs.
    Known(ClassCompletion),
    /// The same, but the text of the file cannot be changed.
    Unwritable { completion: ClassCompletion, problem: UnknownForm },
}

/// A class and its completion.
#[derive(Debug)]
pub(super) struct CompletedClass {
    name: String,
    provider: String,
    file: String,
    outcome: CompletionOutcome,
}

impl CompletedClass {
    pub fn new(class: &MachineClass, file: &Path, outcome: CompletionOutcome) -> Self {
        let name = format!("{}/{}", class.namespace().unwrap_or_default(), class.name_any());
        Self { name, provider: class.provider.clone(), file: file.display().to_string(), outcome }
    }

    /// The file has another text.
    pub fn is_changed(&self) -> bool {
        matches!(&self.outcome, CompletionOutcome::Known(completion) if !completion.is_empty())
    }

    fn completion(&self) -> Option<&ClassCompletion> {
        match &self.outcome {
            CompletionOutcome::Unknown(_) => None,
            CompletionOutcome::Known(completion) | CompletionOutcome::Unwritable { completion, .. } => Some(completion),
        }
    }

    fn error(&self) -> Option<String> {
        match &self.outcome {
            CompletionOutcome::Unknown(reason) => Some(reason.clone()),
            CompletionOutcome::Unwritable { problem, .. } => Some(problem.to_string()),
            CompletionOutcome::Known(_) => None,
        }
    }

    fn is_complete(&self) -> bool {
        self.error().is_none() && self.completion().is_some_and(|completion| completion.missing.is_empty())
    }

    fn summary(&self, is_dry_run: bool) -> String {
        match (self.error(), self.is_changed(), is_dry_run) {
            (Some(error), ..) => error,
            (None, false, _) if self.is_complete() => "it is complete".to_owned(),
            (None, false, _) => format!("{} is not changed", self.file),
            (None, true, true) => format!("{} would be changed", self.file),
            (None, true, false) => format!("{} is changed", self.file),
        }
    }

    fn text(&self, is_dry_run: bool) -> String {
        let text = format!("MachineClass {} ({}): {}\n", self.name, self.provider, self.summary(is_dry_run));
        let Some(completion) = self.completion() else { return text };
        let word = if self.is_changed() && !is_dry_run { "added" } else { "add" };
        let added = completion.added().map(|(field, value)| [word.to_owned(), field, value.to_owned()]);
        let differs = completion.differences.iter().map(|one| {
            let text = format!("{} in the file, {} in the cloud", one.file, one.cloud);
            ["differs".to_owned(), one.field.clone(), text]
        });
        let missing = completion.missing.iter();
        let missing = missing.map(|field| ["missing".to_owned(), field.clone(), "not known: write it".to_owned()]);
        let rows: Vec<_> = added.chain(differs).chain(missing).collect();
        if rows.is_empty() { text } else { text + &table(&["result", "field", "value"], rows) }
    }

    fn json(&self) -> Value {
        let completion = self.completion().cloned().unwrap_or_default();
        let added: Map<String, Value> = completion.added().map(|(field, value)| (field, json!(value))).collect();
        let differs = completion.differences.iter();
        let differs: Vec<Value> =
            differs.map(|one| json!({"field": one.field, "file": one.file, "cloud": one.cloud})).collect();
        json!({
            "class": self.name, "provider": self.provider, "file": self.file, "isChanged": self.is_changed(),
            "isComplete": self.is_complete(), "added": added, "differs": differs, "missing": completion.missing,
            "error": self.error(),
        })
    }
}

/// The report of a completion.
#[derive(Debug)]
pub struct CompletionReport {
    /// Text or JSON.
    pub text: String,
    incomplete: usize,
    classes: usize,
}

impl CompletionReport {
    pub(super) fn new(completed: &[CompletedClass], is_dry_run: bool, format: OutputFormat) -> Self {
        let text = match format {
            OutputFormat::Text => completed.iter().map(|one| one.text(is_dry_run)).collect::<Vec<_>>().join("\n"),
            OutputFormat::Json => {
                let classes: Vec<Value> = completed.iter().map(CompletedClass::json).collect();
                format!("{:#}\n", json!({"isDryRun": is_dry_run, "classes": classes}))
            }
        };
        let incomplete = completed.iter().filter(|one| !one.is_complete()).count();
        Self { text, incomplete, classes: completed.len() }
    }

    /// An error if the capacity of a class is not complete.
    ///
    /// # Errors
    /// Of how many.
    pub fn verdict(&self) -> Result<(), NegativeAnswer> {
        if self.incomplete > 0 {
            return Err(NegativeAnswer(format!("{} of {} classes are not complete", self.incomplete, self.classes)));
        }
        Ok(())
    }
}
