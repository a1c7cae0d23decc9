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

/// The findings as an answer.
pub(super) fn answer(
    kind: &'static str,
    namespace: &str,
    findings: &[CheckFinding],
    output: OutputOptions,
) -> Result<CommandAnswer> {
    let text = match output.format {
        OutputFormat::Text => report::text(output.look(), findings),
        OutputFormat::Json => report::json(kind, namespace, Timestamp::now(), findings)?,
    };
    Ok(CommandAnswer { text, exit: exit(findings) })
}
