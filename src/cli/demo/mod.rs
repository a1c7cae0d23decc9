//! The demo: creates, rolls, kills, drains and deletes machines, and shows it on the screen.

mod acts;
mod cloud;
mod process;
mod scene;
mod screen;
mod simulated;
mod stage;
mod summary;
mod view;

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

pub use self::cloud::{Cloud, Vms};
use self::{process::Process, screen::Screen, simulated::Simulated, stage::Stage};

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

/// Runs the demo in the simulated cloud.
///
/// # Errors
/// A process cannot be started, or an act does not reach its goal in time.
pub async fn run(options: DemoOptions) -> Result<()> {
    let program = std::env::current_exe().context("find this program")?;
    let (cloud, process) = Simulated::start(&program, &options).await.context("prepare the demo")?;
    play(&options, &program, Arc::new(cloud), Some(process)).await
}

/// Runs the demo in a cloud that lives as long as this process does. `program` is mcm.
///
/// # Errors
/// As [`run`].
pub async fn run_in(options: &DemoOptions, program: &Path, cloud: Arc<dyn Cloud>) -> Result<()> {
    play(options, program, cloud, None).await
}

/// Runs the demo in a cloud. `program` is mcm; `process` is that of the cloud and ends with the demo.
async fn play(
    options: &DemoOptions,
    program: &Path,
    cloud: Arc<dyn Cloud>,
    mut process: Option<Process>,
) -> Result<()> {
    let live = std::io::stderr().is_terminal() && std::env::var_os("CI").is_none();
    let screen = Screen::new(live, options.record.clone());
    let mut stage = Stage::set(options, program, cloud).await.context("prepare the demo")?;
    let own = Some(std::process::id());
    record(&options.logs, [process.as_ref().map_or(own, Process::id), stage.process()])?;
    let outcome = acts::play(&stage, &screen, options.keep).await;
    let outcome = outcome.with_context(|| format!("see the logs in {}", options.logs.display()));
    if !options.keep || outcome.is_err() {
        stage.clear().await;
        if let Some(process) = &mut process {
            process.stop().await;
        }
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

/// For `hack/demo stop`.
fn record(logs: &Path, processes: [Option<u32>; 2]) -> Result<()> {
    let pids: Vec<String> = processes.into_iter().flatten().map(|pid| pid.to_string()).collect();
    std::fs::write(logs.join("pids"), pids.join("\n")).context("record the processes")
}
