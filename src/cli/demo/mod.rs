//! The demo: creates, rolls, kills, drains and deletes machines, and shows it on the screen.

mod acts;
mod cloud;
mod options;
mod process;
mod scene;
mod screen;
mod simulated;
mod stage;
mod summary;
mod view;

use std::{io::IsTerminal, path::Path, sync::Arc};

use anyhow::{Context, Result};

pub use self::{
    cloud::{Cloud, Vms},
    options::{DemoOptions, Output},
};
use self::{process::Process, screen::Screen, simulated::Simulated, stage::Stage};

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
