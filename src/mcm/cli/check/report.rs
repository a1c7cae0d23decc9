//! Findings as text and as JSON.

use std::fmt::Write as _;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::finding::{Finding, Level, count, exit};
use crate::cli::{
    document::Document,
    exit::Exit,
    terminal::{Look, wrapped},
};

/// Columns of a mark and the space behind it.
const MARK: usize = 2;
/// Columns of the name of a check and the spaces behind it.
const NAME: usize = 13;

/// One paragraph for each finding, and a summary.
pub(in crate::cli) fn text(look: Look, findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        push(look, &mut text, finding);
    }
    let _ = writeln!(text, "{}", look.bold(&summary(findings)));
    text
}

fn push(look: Look, text: &mut String, finding: &Finding) {
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

fn summary(findings: &[Finding]) -> String {
    let number = |level| findings.iter().filter(|finding| finding.result == level).count();
    let parts = [(Level::Problem, "problem"), (Level::Note, "note"), (Level::Unknown, "open question")];
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(level, thing)| (number(level), thing))
        .filter(|(number, _)| *number > 0)
        .map(|(number, thing)| count(number, thing))
        .collect();
    let ready = if exit(findings) == Exit::No { "Not ready" } else { "Ready" };
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    format!("{ready}{parts}. Nothing was written.")
}

/// The answer as JSON.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Check")]
struct Checks<'a> {
    namespace: &'a str,
    /// Nothing prevents the controllers from working.
    is_ready: bool,
    checks: &'a [Finding],
}

/// One document.
///
/// # Errors
/// It cannot be serialized, which does not happen.
pub(in crate::cli) fn json(
    kind: &'static str,
    namespace: &str,
    now: Timestamp,
    findings: &[Finding],
) -> serde_json::Result<String> {
    Document::of(kind, now, Checks { namespace, is_ready: exit(findings) == Exit::Good, checks: findings }).pretty()
}

/// The schema is published, and a document fits it.
#[cfg(test)]
pub(super) fn published(text: &str) {
    crate::cli::document::tests::published::<Document<Checks<'_>>>("check");
    crate::cli::document::tests::fits::<Document<Checks<'_>>>(&serde_json::from_str(text).unwrap());
}
