//! The answer of a check.

use anyhow::Result;
use jiff::Timestamp;

use super::{
    finding::{Finding, exit},
    report,
};
use crate::cli::{
    exit::Answer,
    format::{Format, OutputOptions},
};

/// The findings as an answer.
pub(super) fn answer(
    kind: &'static str,
    namespace: &str,
    findings: &[Finding],
    output: OutputOptions,
) -> Result<Answer> {
    let text = match output.format {
        Format::Text => report::text(output.look(), findings),
        Format::Json => report::json(kind, namespace, Timestamp::now(), findings)?,
    };
    Ok(Answer { text, exit: exit(findings) })
}
