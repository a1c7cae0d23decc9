//! The demo: creates, rolls, kills, drains and deletes machines, and shows it on the screen. And what other demos are made of.

mod acts;
mod cloud;
mod options;
mod process;
mod props;
mod scene;
mod screen;
mod show;
mod shown;
mod simulated;
mod stage;
mod summary;
mod svg;
mod view;

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};

use crate::driver::tls::use_ring;

pub use self::{
    cloud::{Cloud, Vms},
    options::{DemoOptions, Output, ShowOptions},
    process::run_here,
    scene::Scene,
    screen::{Picture, Screen},
    show::{Progress, Show},
    shown::{Shown, shortened, table},
    summary::{Act, Summary},
};
use self::{process::Process, simulated::Simulated, stage::Stage};

/// Runs the demo in the simulated cloud.
///
/// # Errors
/// A process cannot be started, or an act does not reach its goal in time.
pub async fn run(options: DemoOptions) -> Result<()> {
    let program = std::env::current_exe().context("find this program")?;
    stage::check(&options.kubeconfig).await?;
    let (cloud, process) = Simulated::start(&program, &options).await.context("prepare the demo")?;
    play(&options, &program, Arc::new(cloud), Some(process)).await
}

/// Runs the demo in a cloud that lives as long as this process does. `program` is mcm.
///
/// # Errors
/// As [`run`].
pub async fn run_in(options: &DemoOptions, program: &Path, cloud: Arc<dyn Cloud>) -> Result<()> {
    use_ring();
    play(options, program, cloud, None).await
}

/// Runs the demo in a cloud. `program` is mcm; `process` is that of the cloud and ends with the demo.
async fn play(
    options: &DemoOptions,
    program: &Path,
    cloud: Arc<dyn Cloud>,
    mut process: Option<Process>,
) -> Result<()> {
    let show = &options.show;
    let screen = show.screen();
    let mut stage = Stage::set(options, program, cloud).await.context("prepare the demo")?;
    let own = Some(std::process::id());
    show.record_processes([process.as_ref().map_or(own, Process::id), stage.process()].into_iter().flatten())?;
    let outcome = acts::play(&stage, &screen, show.keep).await;
    let outcome = outcome.with_context(|| format!("see the logs in {}", show.logs.display()));
    if !show.keep || outcome.is_err() {
        stage.clear().await;
        if let Some(process) = &mut process {
            process.stop().await;
        }
    }
    show.report(&screen, &outcome?)?;
    if show.keep {
        screen.say(&stage.how_to_look_around());
    }
    Ok(())
}
