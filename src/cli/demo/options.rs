//! Flags of the demo.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Flags of `mcm demo`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct DemoOptions {
    /// Kubeconfig of the cluster to use; the demo installs the CRDs and creates a namespace `demo`
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,

    /// Directory for the logs of the processes
    #[arg(long, value_name = "FOLDER", default_value = "target/demo")]
    pub logs: PathBuf,

    /// Leave everything running at the end
    #[arg(long)]
    pub keep: bool,

    /// Format of the final report
    #[arg(short, long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    pub output: Output,

    /// Write the last frame of each act to this folder, as SVG
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub record: Option<PathBuf>,
}

/// Format of the final report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table.
    Text,
    /// One JSON document on standard output.
    Json,
}
