//! The format of an answer.

use clap::ValueEnum;

/// Text or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Tables.
    Text,
    /// One JSON document.
    Json,
}
