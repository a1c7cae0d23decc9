//! Findings as text and as JSON.

use std::fmt::Write as _;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::finding::{CheckFinding, CheckLevel, count, exit};
use crate::cli::{document::JsonDocument, exit::CommandExit};
use mcm_insight::terminal::{TerminalLook, wrapped};

/// Columns of a mark and the space behind it.
const MARK: usize = 2;
/// Columns of the name of a check and the spaces behind it.
const NAME: usize = 13;

/// One paragraph for each finding, and a summary.
pub(in crate::cli) fn text(look: TerminalLook, findings: &[CheckFinding]) -> String {
    let mut text = String::new();
    for finding in findings {
        push(look, &mut text, finding);
    }
    let _ = writeln!(text, "{}", look.bold(&summary(findings)));
    text
}

fn push(look: TerminalLook, text: &mut String, finding: &CheckFinding) {
    let width = look.width - MARK - NAME;
    let indent = " ".repeat(MARK + NAME);
    for (number, line) in wrapped(&finding.text, width).iter().enumerate() {
        let head = format!("{} {:<NAME$}", look.mark(finding.result.mark()), finding.check);
        let _ = writeln!(text, "{}{line}", if number == 0 { &head } else { &indent });
    }
    if let Some(next) = &finding.next {
        // In one line, so that a command can be copied.
        let _ = writeln!(text, "{indent}{} {next}", if look.unicode { "→" } else { ">" });
    }
}

fn summary(findings: &[CheckFinding]) -> String {
    let number = |level| findings.iter().filter(|finding| finding.result == level).count();
    let parts = [(CheckLevel::Problem, "problem"), (CheckLevel::Note, "note"), (CheckLevel::Unknown, "open question")];
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(level, thing)| (number(level), thing))
        .filter(|(number, _)| *number > 0)
        .map(|(number, thing)| count(number, thing))
        .collect();
    let ready = match (number(CheckLevel::Problem), exit(findings)) {
        (0, CommandExit::No) => "Not known to be ready",
        (0, _) => "Ready",
        _ => "Not ready",
    };
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    format!("{ready}{parts}. Nothing was written.")
}

/// The answer as JSON.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Check")]
struct CheckDocument<'a> {
    namespace: &'a str,
    /// Nothing prevents the controllers from working.
    is_ready: bool,
    checks: &'a [CheckFinding],
}

/// One document.
///
/// # Errors
/// It cannot be serialized, which does not happen.
pub(in crate::cli) fn json(
    kind: &'static str,
    namespace: &str,
    now: Timestamp,
    findings: &[CheckFinding],
) -> serde_json::Result<String> {
    JsonDocument::new(
        kind,
        now,
        CheckDocument { namespace, is_ready: exit(findings) == CommandExit::Good, checks: findings },
    )
    .pretty()
}

/// The schema is published, and a document fits it.
#[cfg(test)]
pub(super) fn published(text: &str) {
    crate::cli::document::tests::published::<JsonDocument<CheckDocument<'_>>>("check");
    crate::cli::document::tests::fits::<JsonDocument<CheckDocument<'_>>>(&serde_json::from_str(text).unwrap());
}
