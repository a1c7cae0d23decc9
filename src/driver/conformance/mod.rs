//! The conformance suite that every driver must pass.
//!
//! The suite creates and deletes real VMs: a few at a time, named with the prefix of the subject, all deleted at the
//! end. Calls that fail with a transient code are retried.

mod advice;
mod bench;
mod checks;
mod subject;

use std::fmt;

use bench::{CheckEnvironment, CheckStopReason};

pub use subject::ConformanceSubject;

pub use advice::advice;

/// Result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConformanceOutcome {
    /// The driver meets the requirement.
    Passed,
    /// The driver does not meet it.
    Failed,
    /// The driver lacks the capability, or the subject lacks the input.
    Skipped,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// The requirement.
    pub name: &'static str,
    /// The result for the driver.
    pub outcome: ConformanceOutcome,
    /// Why it failed or was skipped.
    pub detail: String,
}

/// The results of all checks, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConformanceReport {
    /// One for each check.
    pub results: Vec<CheckResult>,
}

impl ConformanceReport {
    /// Names of the checks that failed.
    pub fn failed(&self) -> Vec<&'static str> {
        self.results.iter().filter(|one| one.outcome == ConformanceOutcome::Failed).map(|one| one.name).collect()
    }
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for CheckResult { name, outcome, detail } in &self.results {
            let outcome = match outcome {
                ConformanceOutcome::Passed => "pass",
                ConformanceOutcome::Failed => "FAIL",
                ConformanceOutcome::Skipped => "skip",
            };
            let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
            writeln!(f, "{outcome}  {name}{detail}")?;
        }
        Ok(())
    }
}

/// Names of all checks, in the order of the report.
pub fn names() -> impl Iterator<Item = &'static str> {
    checks::ALL.iter().map(|(name, _)| *name).chain(checks::OF_TEXTS.iter().map(|(name, _)| *name))
}

/// Runs all checks, one after the other.
pub async fn run(subject: &ConformanceSubject<'_>) -> ConformanceReport {
    let mut report = ConformanceReport::default();
    let mut texts = Vec::new();
    for (number, (name, check)) in checks::ALL.iter().enumerate() {
        let bench = CheckEnvironment::new(subject, number);
        // Every other check creates VMs from the class, so each would only repeat the first failure.
        let verdict = match report.results.first() {
            Some(first) if first.outcome == ConformanceOutcome::Failed => {
                bench::skip("not run: no VM can be created from the class")
            }
            _ => check(&bench).await,
        };
        bench.clean_up().await;
        texts.extend(bench.into_texts());
        report.results.push(line(name, verdict));
    }
    for (name, check) in checks::OF_TEXTS {
        report.results.push(line(name, check(subject, &texts)));
    }
    report
}

fn line(name: &'static str, verdict: Result<(), CheckStopReason>) -> CheckResult {
    let (outcome, detail) = match verdict {
        Ok(()) => (ConformanceOutcome::Passed, String::new()),
        Err(CheckStopReason::Failed(detail)) => (ConformanceOutcome::Failed, detail),
        Err(CheckStopReason::Skipped(detail)) => (ConformanceOutcome::Skipped, detail),
    };
    CheckResult { name, outcome, detail }
}
