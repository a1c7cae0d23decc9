//! The report of a check.

use serde_json::{Value, json};

use crate::{
    api::machine::MachineClass,
    cli::{exit::No, format::Format, table::table},
};

/// A finding about a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Line {
    pub verdict: Verdict,
    pub path: String,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cli) enum Verdict {
    /// No VM can be created.
    Error,
    /// It could not be checked.
    Unknown,
    /// It is harmless, and perhaps not what was meant.
    Warning,
    /// Gardener's driver does something else.
    Difference,
    /// The cloud has it.
    Good,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Difference => "differs",
            Self::Good => "ok",
        }
    }
}

impl Line {
    pub(in crate::cli) fn new(verdict: Verdict, path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { verdict, path: path.into(), text: text.into() }
    }
}

/// A class and what is said of it.
pub(super) struct Checked {
    name: String,
    provider: String,
    lines: Vec<Line>,
}

impl Checked {
    /// Errors come first.
    pub(super) fn new(class: &MachineClass, mut lines: Vec<Line>) -> Self {
        lines.sort_by_key(|line| line.verdict);
        let of = |text: &Option<String>| text.clone().unwrap_or_default();
        let name = format!("{}/{}", of(&class.metadata.namespace), of(&class.metadata.name));
        Self { name, provider: class.provider.clone(), lines }
    }

    fn has(&self, verdict: Verdict) -> bool {
        self.lines.iter().any(|line| line.verdict == verdict)
    }

    fn summary(&self) -> &'static str {
        if self.has(Verdict::Error) {
            "no VM can be created"
        } else if self.has(Verdict::Unknown) {
            "no error was found, but not everything could be checked"
        } else {
            "no error was found"
        }
    }

    fn text(&self) -> String {
        let text = format!("MachineClass {} ({}): {}\n", self.name, self.provider, self.summary());
        if self.lines.is_empty() {
            return text;
        }
        let row = |line: &Line| [line.verdict.word().to_owned(), line.path.clone(), line.text.clone()];
        text + &table(&["result", "field", "what"], self.lines.iter().map(row))
    }

    fn json(&self) -> Value {
        let line = |line: &Line| json!({ "result": line.verdict.word(), "field": line.path, "text": line.text });
        let lines: Vec<Value> = self.lines.iter().map(line).collect();
        json!({
            "class": self.name, "provider": self.provider, "isUsable": !self.has(Verdict::Error), "results": lines,
        })
    }
}

/// The report of a check.
#[derive(Debug)]
pub struct Report {
    /// Format of the report.
    pub text: String,
    unusable: usize,
    classes: usize,
}

impl Report {
    pub(super) fn new(checked: &[Checked], format: Format) -> Self {
        let text = match format {
            Format::Text => checked.iter().map(Checked::text).collect::<Vec<_>>().join("\n"),
            Format::Json => {
                let classes: Vec<Value> = checked.iter().map(Checked::json).collect();
                format!("{:#}\n", json!({ "classes": classes }))
            }
        };
        let unusable = checked.iter().filter(|one| one.has(Verdict::Error)).count();
        Self { text, unusable, classes: checked.len() }
    }

    /// An error if no VM can be created from a class.
    ///
    /// # Errors
    /// From how many.
    pub fn verdict(&self) -> Result<(), No> {
        if self.unusable > 0 {
            return Err(No(format!("no VM can be created from {} of {} classes", self.unusable, self.classes)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn report(verdicts: &[Verdict], format: Format) -> Report {
        let mut class = MachineClass { provider: "AWS".to_owned(), ..MachineClass::default() };
        class.metadata.name = Some("c".to_owned());
        class.metadata.namespace = Some("n".to_owned());
        let line = |verdict: &Verdict| Line::new(*verdict, "providerSpec.ami", "because");
        Report::new(&[Checked::new(&class, verdicts.iter().map(line).collect())], format)
    }

    #[rstest]
    #[case::nothing(&[], "no error was found", true)]
    #[case(&[Verdict::Warning, Verdict::Difference, Verdict::Good], "no error was found", true)]
    #[case(&[Verdict::Good, Verdict::Unknown], "not everything could be checked", true)]
    #[case(&[Verdict::Good, Verdict::Unknown, Verdict::Error], "no VM can be created", false)]
    fn only_an_error_fails_the_command(#[case] verdicts: &[Verdict], #[case] summary: &str, #[case] is_good: bool) {
        let report = report(verdicts, Format::Text);
        let first = report.text.lines().next().unwrap();
        assert!(first.starts_with("MachineClass n/c (AWS): ") && first.contains(summary), "{first}");
        assert_eq!(report.verdict().is_ok(), is_good);
    }

    #[test]
    fn errors_come_first() {
        let text = report(&[Verdict::Good, Verdict::Warning, Verdict::Error], Format::Text).text;
        let places = ["error ", "warning ", "ok "].map(|word| text.find(word).unwrap());
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn programs_get_json() {
        let document: Value = serde_json::from_str(&report(&[Verdict::Unknown], Format::Json).text).unwrap();
        assert_eq!(
            (&document["classes"][0]["class"], &document["classes"][0]["isUsable"]),
            (&json!("n/c"), &json!(true))
        );
        assert_eq!(document["classes"][0]["results"][0]["result"], "unknown");
    }
}
