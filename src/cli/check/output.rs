//! The answer of a check.

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;

use super::{
    finding::{Finding, exit},
    report,
};
use crate::cli::{exit::Answer, format::Format, terminal::LookOptions};

/// Options of the output.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct OutputOptions {
    /// Format of the answer
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    look: LookOptions,
}

/// The findings as an answer.
pub(super) fn answer(
    kind: &'static str,
    namespace: &str,
    findings: &[Finding],
    output: OutputOptions,
) -> Result<Answer> {
    let text = match output.output {
        Format::Text => report::text(output.look.stdout(), findings),
        Format::Json => report::json(kind, namespace, Timestamp::now(), findings)?,
    };
    Ok(Answer { text, exit: exit(findings) })
}
