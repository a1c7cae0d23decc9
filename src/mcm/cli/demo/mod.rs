//! The demo: creates, rolls, kills, drains and deletes machines, and shows it on the screen. And what other demos are made of.

mod acts;
mod cloud;
mod control_plane;
mod embedded;
pub(super) mod identities;
mod kubelets;
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
mod view;

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};

use mcm_driver::tls::use_ring;

pub use self::{
    cloud::{DemoCloud, DemoVms},
    options::{DemoOptions, ShowOptions, StartedControlPlane, SummaryFormat},
    process::run_here,
    scene::LiveObjects,
    screen::{ActDisplay, DemoScreen},
    show::{ActProgress, DemoShow},
    shown::{DemoView, shortened, table},
    summary::{ActResult, DemoSummary},
};
use self::{
    control_plane::{ControlPlane, ControlPlanePrograms},
    embedded::EmbeddedControlPlane,
    process::ChildProcess,
    simulated::SimulatedDemoCloud,
    stage::DemoEnvironment,
};

/// Runs the demo in the simulated cloud, on a cluster, or on its own control plane.
///
/// # Errors
/// A process cannot be started, or an act does not reach its goal in time.
pub async fn run(mut options: DemoOptions) -> Result<()> {
    let program = std::env::current_exe().context("find this program")?;
    let folder = tempfile::Builder::new().prefix("mcm-demo-").tempdir().context("create a temporary directory")?;
    let own_logs = options.show.logs.is_none();
    options.show.logs.get_or_insert_with(|| folder.path().join("logs"));
    let state = folder.path().join("control-plane");
    let outcome = match options.kubeconfig.clone() {
        Some(kubeconfig) => on_cluster(&options, &program, &kubeconfig).await.map(drop),
        None => match options.started_control_plane() {
            StartedControlPlane::Embedded => on_embedded_control_plane(&options, &program, &state).await,
            StartedControlPlane::Real => on_own_control_plane(&options, &program, &state).await,
        },
    };
    if own_logs && (outcome.is_err() && options.show.logs().exists() || options.leaves_processes()) {
        std::fs::remove_dir_all(state).ok();
        let _ = folder.keep();
    }
    outcome
}

/// Runs the demo in a cloud that lives as long as this process does. `program` is mcm.
///
/// # Errors
/// As [`run`], or there is no `--kubeconfig`.
pub async fn run_in(options: &DemoOptions, program: &Path, cloud: Arc<dyn DemoCloud>) -> Result<()> {
    use_ring();
    let kubeconfig = options.kubeconfig.as_deref().context("this demo needs --kubeconfig")?;
    play(options, program, kubeconfig, cloud, None).await.map(drop)
}

async fn on_cluster(options: &DemoOptions, program: &Path, kubeconfig: &Path) -> Result<Option<FinishedDemo>> {
    stage::check(kubeconfig).await?;
    let (cloud, process) = SimulatedDemoCloud::start(program, options, kubeconfig).await.context("prepare the demo")?;
    play(options, program, kubeconfig, Arc::new(cloud), Some(process)).await
}

/// Whatever happens, Ctrl-C as well, all its processes end before this returns.
async fn on_embedded_control_plane(options: &DemoOptions, program: &Path, state: &Path) -> Result<()> {
    let mut kept = None;
    options.show.screen().say(
        "Starting the embedded API server, which is in memory. For etcd and Kubernetes: mcm demo --control-plane real, \
         or make demo CONTROL_PLANE=real",
    );
    let control_plane = EmbeddedControlPlane::start(state).await.context("start the embedded API server")?;
    let demo = async {
        kept = on_cluster(options, program, &control_plane.kubeconfig).await?;
        Ok(())
    };
    let outcome = run_here(demo, options.show.keep).await;
    if let Some(mut kept) = kept {
        kept.end().await;
    }
    outcome
}

/// Whatever happens, Ctrl-C as well, all its processes end before this returns.
async fn on_own_control_plane(options: &DemoOptions, program: &Path, state: &Path) -> Result<()> {
    let programs = ControlPlanePrograms::find(options.control_plane_binaries.as_deref())?;
    let (mut control_plane, mut kept) = (ControlPlane::default(), None);
    options
        .show
        .screen()
        .say("Starting a control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler");
    let demo = async {
        let started = control_plane.start(&programs, state, options.show.logs()).await;
        let kubeconfig = started.context("start a control plane for the demo")?;
        kept = on_cluster(options, program, &kubeconfig).await?;
        Ok(())
    };
    let outcome = run_here(demo, options.show.keep).await;
    if let Some(mut kept) = kept {
        kept.end().await;
    }
    control_plane.stop().await;
    outcome
}

/// A demo that is over and runs on.
struct FinishedDemo {
    stage: DemoEnvironment,
    process: Option<ChildProcess>,
}

impl FinishedDemo {
    async fn end(&mut self) {
        self.stage.clear().await;
        if let Some(process) = &mut self.process {
            process.stop().await;
        }
    }
}

/// Runs the demo in a cloud. `program` is mcm; `process` is that of the cloud and ends with the demo. With `--keep` all of it is
/// returned.
async fn play(
    options: &DemoOptions,
    program: &Path,
    kubeconfig: &Path,
    cloud: Arc<dyn DemoCloud>,
    process: Option<ChildProcess>,
) -> Result<Option<FinishedDemo>> {
    let show = &options.show;
    let screen = show.screen();
    let stage = DemoEnvironment::set(options, program, kubeconfig, cloud).await.context("prepare the demo")?;
    let own = Some(std::process::id());
    // A process with a control plane ends the others.
    let processes = match &options.kubeconfig {
        Some(_) => [process.as_ref().map_or(own, ChildProcess::id), stage.process()],
        None => [own, None],
    };
    show.record_processes(processes.into_iter().flatten())?;
    let outcome = acts::play(&stage, &screen, show.keep).await;
    let outcome = outcome.with_context(|| format!("see the logs in {}", show.logs().display()));
    let mut kept = FinishedDemo { stage, process };
    if !show.keep || outcome.is_err() {
        kept.end().await;
    }
    show.report(&screen, &outcome?)?;
    if show.keep {
        let end = if options.leaves_processes() { "hack/demo stop" } else { "Ctrl-C" };
        screen.say(&kept.stage.how_to_look_around(end));
    }
    Ok(show.keep.then_some(kept))
}
