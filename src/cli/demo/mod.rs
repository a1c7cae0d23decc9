//! The demo: creates, rolls, kills, drains and deletes machines, and shows it on the screen.

mod acts;
mod scene;
mod screen;
mod stage;
mod summary;
mod view;

use std::{io::IsTerminal, path::PathBuf};

use anyhow::{Context, Result};
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

/// Runs the demo.
///
/// # Errors
/// A process cannot be started, or an act does not reach its goal in time.
pub async fn run(options: DemoOptions) -> Result<()> {
    let live = std::io::stderr().is_terminal() && std::env::var_os("CI").is_none();
    let screen = screen::Screen::new(live, options.record.clone());
    let mut stage = stage::Stage::set(&options).await.context("prepare the demo")?;
    let outcome = acts::play(&stage, &screen, options.keep).await;
    let outcome = outcome.with_context(|| format!("see the logs in {}", options.logs.display()));
    if !options.keep || outcome.is_err() {
        stage.clear().await;
    }
    let summary = outcome?;
    match options.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&summary)?),
        Output::Text => screen.say(&view::summary(&summary)),
    }
    if options.keep {
        screen.say(&stage.how_to_look_around());
    }
    Ok(())
}
