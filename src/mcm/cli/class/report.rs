//! The report of a check.

use serde_json::{Value, json};

use crate::{
    api::machine::MachineClass,
    cli::{exit::NegativeAnswer, format::OutputFormat},
};
use mcm_insight::{
    class::{ClassFinding, ClassFindingVerdict},
    table::table,
};

/// A class and what is said of it.
pub(super) struct CheckedClass {
    name: String,
    provider: String,
    lines: Vec<ClassFinding>,
}

impl CheckedClass {
    /// Errors come first.
    pub(super) fn new(class: &MachineClass, mut lines: Vec<ClassFinding>) -> Self {
        lines.sort_by_key(|line| line.verdict);
        let of = |text: &Option<String>| text.clone().unwrap_or_default();
        let name = format!("{}/{}", of(&class.metadata.namespace), of(&class.metadata.name));
        Self { name, provider: class.provider.clone(), lines }
    }

    fn has(&self, verdict: ClassFindingVerdict) -> bool {
        self.lines.iter().any(|line| line.verdict == verdict)
    }

    fn summary(&self) -> &'static str {
        if self.has(ClassFindingVerdict::Error) {
            "no VM can be created"
        } else if self.has(ClassFindingVerdict::Unknown) {
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
        let row = |line: &ClassFinding| [line.verdict.word().to_owned(), line.path.clone(), line.text.clone()];
        text + &table(&["result", "field", "what"], self.lines.iter().map(row))
    }

    fn json(&self) -> Value {
        let line =
            |line: &ClassFinding| json!({ "result": line.verdict.word(), "field": line.path, "text": line.text });
        let lines: Vec<Value> = self.lines.iter().map(line).collect();
        json!({
            "class": self.name, "provider": self.provider, "isUsable": !self.has(ClassFindingVerdict::Error), "results": lines,
        })
    }
}

/// The report of a check.
#[derive(Debug)]
pub struct ClassReport {
    /// Format of the report.
    pub text: String,
    unusable: usize,
    classes: usize,
}

impl ClassReport {
    pub(super) fn new(checked: &[CheckedClass], format: OutputFormat) -> Self {
        let text = match format {
            OutputFormat::Text => checked.iter().map(CheckedClass::text).collect::<Vec<_>>().join("\n"),
            OutputFormat::Json => {
                let classes: Vec<Value> = checked.iter().map(CheckedClass::json).collect();
                format!("{:#}\n", json!({ "classes": classes }))
            }
        };
        let unusable = checked.iter().filter(|one| one.has(ClassFindingVerdict::Error)).count();
        Self { text, unusable, classes: checked.len() }
    }

    /// An error if no VM can be created from a class.
    ///
    /// # Errors
    /// From how many.
    pub fn verdict(&self) -> Result<(), NegativeAnswer> {
        if self.unusable > 0 {
            return Err(NegativeAnswer(format!(
                "no VM can be created from {} of {} classes",
                self.unusable, self.classes
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn report(verdicts: &[ClassFindingVerdict], format: OutputFormat) -> ClassReport {
        let mut class = MachineClass { provider: "AWS".to_owned(), ..MachineClass::default() };
        class.metadata.name = Some("c".to_owned());
        class.metadata.namespace = Some("n".to_owned());
        let line = |verdict: &ClassFindingVerdict| ClassFinding::new(*verdict, "providerSpec.ami", "because");
        ClassReport::new(&[CheckedClass::new(&class, verdicts.iter().map(line).collect())], format)
    }

    #[rstest]
    #[case::nothing(&[], "no error was found", true)]
    #[case(&[ClassFindingVerdict::Warning, ClassFindingVerdict::Difference, ClassFindingVerdict::Good], "no error was found", true)]
    #[case(&[ClassFindingVerdict::Good, ClassFindingVerdict::Unknown], "not everything could be checked", true)]
    #[case(&[ClassFindingVerdict::Good, ClassFindingVerdict::Unknown, ClassFindingVerdict::Error], "no VM can be created", false)]
    fn only_an_error_fails_the_command(
        #[case] verdicts: &[ClassFindingVerdict],
        #[case] summary: &str,
        #[case] is_good: bool,
    ) {
        let report = report(verdicts, OutputFormat::Text);
        let first = report.text.lines().next().unwrap();
        assert!(first.starts_with("MachineClass n/c (AWS): ") && first.contains(summary), "{first}");
        assert_eq!(report.verdict().is_ok(), is_good);
    }

    #[test]
    fn errors_come_first() {
        let text = report(
            &[ClassFindingVerdict::Good, ClassFindingVerdict::Warning, ClassFindingVerdict::Error],
            OutputFormat::Text,
        )
        .text;
        let places = ["error ", "warning ", "ok "].map(|word| text.find(word).unwrap());
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn programs_get_json() {
        let document: Value =
            serde_json::from_str(&report(&[ClassFindingVerdict::Unknown], OutputFormat::Json).text).unwrap();
        assert_eq!(
            (&document["classes"][0]["class"], &document["classes"][0]["isUsable"]),
            (&json!("n/c"), &json!(true))
        );
        assert_eq!(document["classes"][0]["results"][0]["result"], "unknown");
    }
}
