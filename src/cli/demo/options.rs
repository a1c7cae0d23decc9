//! Flags of the demo.

use std::{io::IsTerminal, path::PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::{screen::Screen, summary::Summary};

/// Flags of `mcm demo`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct DemoOptions {
    /// Kubeconfig of the cluster to use; the demo installs the CRDs and creates the namespace `demo`
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,

    /// Flags of every demo.
    #[command(flatten)]
    pub show: ShowOptions,
}

/// Flags of every demo.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ShowOptions {
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

impl ShowOptions {
    /// The screen, redrawn in place on a terminal.
    #[must_use]
    pub fn screen(&self) -> Screen {
        let live = std::io::stderr().is_terminal() && std::env::var_os("CI").is_none();
        Screen::new(live, self.record.clone())
    }

    /// Writes the final report.
    ///
    /// # Errors
    /// It cannot be serialized.
    pub fn report(&self, screen: &Screen, summary: &Summary) -> Result<()> {
        match self.output {
            Output::Json => println!("{}", serde_json::to_string_pretty(summary)?),
            Output::Text => screen.say(&summary.text(screen.width())),
        }
        Ok(())
    }

    /// Records the processes that `hack/demo stop` ends.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn record_processes(&self, processes: impl IntoIterator<Item = u32>) -> Result<()> {
        let pids: Vec<String> = processes.into_iter().map(|pid| pid.to_string()).collect();
        std::fs::write(self.logs.join("pids"), pids.join("\n")).context("record the processes")
    }
}
