//! The format and the look of an answer.

use clap::{Args, ValueEnum};

use super::terminal::LookOptions;
use mcm_insight::terminal::TerminalLook;

/// Text or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// Tables.
    Text,
    /// One JSON document.
    Json,
}

/// Options of commands whose answer is a text or a JSON document.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct OutputOptions {
    /// Format of the answer
    #[arg(short = 'o', long = "output", value_enum, value_name = "OUTPUT", default_value_t = OutputFormat::Text)]
    pub(super) format: OutputFormat,
    #[command(flatten)]
    look: LookOptions,
}

impl OutputOptions {
    /// The look for standard output.
    pub(super) fn look(self) -> TerminalLook {
        self.look.stdout()
    }
}
