//! The report of a test.

use std::fmt::Write;

use serde_json::json;

use crate::cli::{exit::NegativeAnswer, format::OutputFormat};
use mcm_driver::conformance::{self, CheckResult, ConformanceOutcome};
use mcm_driver_host::remote::DriverEndpoint;
use mcm_insight::table::table;

/// The report of a test.
#[derive(Debug)]
pub struct DriverTestReport {
    /// Format of the report.
    pub text: String,
    failed: usize,
    checks: usize,
}

impl DriverTestReport {
    pub(super) fn new(
        endpoint: &DriverEndpoint,
        results: conformance::ConformanceReport,
        format: OutputFormat,
    ) -> Self {
        let count = |outcome| results.results.iter().filter(|one| one.outcome == outcome).count();
        let (passed, failed, skipped) =
            (count(ConformanceOutcome::Passed), results.failed().len(), count(ConformanceOutcome::Skipped));
        let text = match format {
            OutputFormat::Json => {
                let results: Vec<_> = results.results.iter().map(json_of).collect();
                let document = json!({
                    "provider": endpoint.name, "address": endpoint.address.to_string(),
                    "passed": passed, "failed": failed, "skipped": skipped, "checks": results,
                });
                format!("{document:#}\n")
            }
            OutputFormat::Text => {
                let mut text = table_of(&results.results);
                let _ = writeln!(text, "{passed} passed, {failed} failed, {skipped} skipped");
                text
            }
        };
        Self { text, failed, checks: results.results.len() }
    }

    /// An error if a check failed.
    ///
    /// # Errors
    /// How many did.
    pub fn verdict(&self) -> Result<(), NegativeAnswer> {
        if self.failed > 0 {
            return Err(NegativeAnswer(format!("{} of {} checks failed", self.failed, self.checks)));
        }
        Ok(())
    }
}

fn word(outcome: ConformanceOutcome) -> &'static str {
    match outcome {
        ConformanceOutcome::Passed => "passed",
        ConformanceOutcome::Failed => "FAILED",
        ConformanceOutcome::Skipped => "skipped",
    }
}

/// Nothing is to be done for a check that passed.
fn advice(result: &CheckResult) -> &'static str {
    if result.outcome == ConformanceOutcome::Failed { conformance::advice(result.name) } else { "" }
}

fn json_of(result: &CheckResult) -> serde_json::Value {
    json!({
        "check": result.name, "result": word(result.outcome).to_lowercase(),
        "detail": result.detail, "advice": advice(result),
    })
}

fn table_of(results: &[CheckResult]) -> String {
    let row = |one: &CheckResult| [one.name, word(one.outcome), &one.detail, advice(one)].map(str::to_owned);
    table(&["check", "result", "why", "what to do"], results.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcome: ConformanceOutcome, format: OutputFormat) -> DriverTestReport {
        let name = "delete of a machine without a VM succeeds";
        let results = vec![CheckResult { name, outcome, detail: "because".to_owned() }];
        let endpoint = "p=unix:///s".parse().unwrap();
        DriverTestReport::new(&endpoint, conformance::ConformanceReport { results }, format)
    }

    #[test]
    fn a_failed_check_says_what_to_do_and_fails_the_command() {
        let failed = report(ConformanceOutcome::Failed, OutputFormat::Text);
        assert!(failed.text.contains("FAILED") && failed.text.contains("success"), "{}", failed.text);
        assert_eq!(failed.verdict().unwrap_err().to_string(), "1 of 1 checks failed");
        for outcome in [ConformanceOutcome::Passed, ConformanceOutcome::Skipped] {
            report(outcome, OutputFormat::Text).verdict().unwrap();
        }
    }

    #[test]
    fn programs_get_json() {
        let document: serde_json::Value =
            serde_json::from_str(&report(ConformanceOutcome::Failed, OutputFormat::Json).text).unwrap();
        assert_eq!(document["failed"], 1);
        assert_eq!(document["checks"][0]["result"], "failed");
        assert_eq!(document["checks"][0]["advice"], "a VM that is gone already is success");
    }
}
