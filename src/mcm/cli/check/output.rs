//! The answer of a check.

use anyhow::Result;
use jiff::Timestamp;

use super::{
    finding::{CheckFinding, exit},
    report,
};
use crate::cli::{
    exit::CommandAnswer,
    format::{OutputFormat, OutputOptions},
};
use mcm_insight::read_only::ReadOnlyClients;
use mcm_rules::plan::shell::is_of_target;

/// The findings as an answer.
pub(super) fn answer(
    kind: &'static str,
    reach: &ReadOnlyClients,
    findings: Vec<CheckFinding>,
    output: OutputOptions,
) -> Result<CommandAnswer> {
    let addressed = |next: String| reach.place.call.addressed(&next, is_of_target(&next));
    let findings: Vec<CheckFinding> =
        findings.into_iter().map(|one| CheckFinding { next: one.next.map(addressed), ..one }).collect();
    let namespace = reach.namespace.as_str();
    let text = match output.format {
        OutputFormat::Text => reach.place.head(namespace) + &report::text(output.look(), &findings),
        OutputFormat::Json => report::json(kind, namespace, Timestamp::now(), &findings)?,
    };
    Ok(CommandAnswer { text, exit: exit(&findings) })
}
