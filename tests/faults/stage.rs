//! The common part of all runs: a world, a recorder, and values that must not be printed.

use std::{
    env,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::{
    meter,
    recorder::Recorder,
    run::Run,
    secrets::Markers,
    support::{
        control_plane::ControlPlane,
        objects,
        scene::Scene,
        world::{Manager, World},
    },
};

/// Longer than any recovery takes; only a failure waits this long.
const LIMIT: Duration = Duration::from_secs(1200);
/// How soon a program that ended is started again.
const RESTART: Duration = Duration::from_millis(200);
/// Period of progress messages.
const NEWS: Duration = Duration::from_secs(10);

/// A manager that is started again whenever it ends, as a kubelet would.
pub struct Kept {
    manager: Arc<Mutex<Option<Manager>>>,
    restarts: Arc<AtomicUsize>,
    keeper: AbortHandle,
}

impl Kept {
    pub fn new(manager: Manager) -> Self {
        let manager = Arc::new(Mutex::new(Some(manager)));
        let restarts = Arc::<AtomicUsize>::default();
        let keeper = tokio::spawn(keep(Arc::clone(&manager), Arc::clone(&restarts))).abort_handle();
        Self { manager, restarts, keeper }
    }

    /// The manager, and how often it was started again.
    pub fn end(self) -> (Manager, usize) {
        let manager = self.manager.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap();
        (manager, self.restarts.load(Ordering::SeqCst))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

async fn keep(manager: Arc<Mutex<Option<Manager>>>, restarts: Arc<AtomicUsize>) {
    loop {
        tokio::time::sleep(RESTART).await;
        let mut manager = manager.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(manager) = &mut *manager else { return };
        if manager.program.has_ended() {
            manager.program.start_again();
            restarts.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The folder with the Go programs, which `hack/faults` builds.
pub fn go_programs() -> Option<PathBuf> {
    env::var_os("MCM_REFERENCE").map(PathBuf::from).filter(|folder| folder.join("machine-controller").exists())
}

pub struct Stage {
    pub run: Run,
    pub world: World,
    pub recorder: Recorder,
    pub markers: Markers,
    /// How long a wait may take.
    pub limit: Duration,
}

impl Stage {
    /// A world between two clusters, or in one, whose cloud has extra flags.
    pub async fn set(run: Run, control: &ControlPlane, target: &ControlPlane, flags: &[&str]) -> Self {
        let world = World::between(control, target, &run.name().replace('_', "-"), flags).await;
        let recorder = Recorder::start(&world);
        let markers = Markers::new(world.target.clone());
        run.say(format!("logs are in {}", world.folder().display()));
        Self { run, world, recorder, markers, limit: LIMIT }
    }

    /// Classes `small` and `large`, changed by a merge patch, and their Secret.
    pub async fn classes(&self, change: Value) {
        self.world.apply(self.markers.secret("pool")).await;
        for name in ["small", "large"] {
            let mut class = objects::class(name);
            objects::merge(&mut class, change.clone());
            self.world.apply(class).await;
        }
    }

    /// Classes and the deployment `pool`, which is changed by a merge patch.
    pub async fn pool(&self, replicas: usize, change: Value) {
        self.classes(json!({})).await;
        self.deployment("pool", replicas, change).await;
    }

    /// A deployment, changed by a merge patch.
    pub async fn deployment(&self, name: &str, replicas: usize, change: Value) {
        let mut deployment = objects::deployment(name, replicas.try_into().unwrap());
        objects::merge(&mut deployment, change);
        self.world.apply(deployment).await;
    }

    /// Sets the number of machines of the deployment `pool`.
    pub async fn scale(&self, replicas: usize) {
        self.world.scale(replicas.try_into().unwrap()).await;
    }

    /// Waits until the deployment `pool` has the desired machines and reports it; returns the time that took.
    pub async fn settled(&self, count: usize, class: &str) -> Duration {
        let all = i32::try_from(count).unwrap();
        let what = format!("{count} machines of class {class} that serve");
        self.until(&what, |scene| scene.settled(count, class) && scene.complete("pool", all)).await
    }

    /// Waits until the scene is as it should be, and prints its state from time to time.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Scene) -> bool) -> Duration {
        self.run.say(format!("waits for {what}"));
        let start = Instant::now();
        let news = async {
            loop {
                tokio::time::sleep(NEWS).await;
                self.run.say(self.summary());
            }
        };
        tokio::select! {
            () = self.world.scene.find(what, self.limit, |scene| is_so(scene).then_some(())) => {}
            _ = news => {}
        }
        start.elapsed()
    }

    /// How many machines are in which phase.
    fn summary(&self) -> String {
        let scene = self.world.scene.now();
        let mut phases = std::collections::BTreeMap::<String, usize>::new();
        for machine in scene.machines.values() {
            let phase = machine.phase();
            let name = if phase.as_str().is_empty() { "new" } else { phase.as_str() };
            *phases.entry(name.to_owned()).or_default() += 1;
        }
        let phases: Vec<String> = phases.into_iter().map(|(phase, count)| format!("{count} {phase}")).collect();
        format!("{} machines: {}", scene.machines.len(), phases.join(", "))
    }

    /// From now on a share of all calls of the cloud fails.
    pub async fn cloud_errors(&self, code: &str, rate: f64) {
        self.world.cloud.control(json!({"faults": [{"operation": "*", "rate": rate, "code": code}]})).await;
    }

    /// The end of every run: checks the recorded events, and that no secret was printed.
    pub async fn close(self, ever: Option<usize>, managers: &[&Manager]) {
        self.judge(ever, managers).await;
        // The logs are still there.
        self.run.assert_holds();
        self.end().finish();
    }

    /// Checks the recorded events, and that no secret was printed.
    pub async fn judge(&self, ever: Option<usize>, managers: &[&Manager]) {
        self.recorder.judge(&self.run, &self.world, ever).await;
        let places = self.markers.found(&self.world, managers).await;
        self.run.none("places with something secret", &places);
        for manager in managers {
            self.flawless(manager).await;
        }
    }

    /// Ends everything but the run.
    pub fn end(self) -> Run {
        self.run
    }

    /// No plan was refused as a bug.
    async fn flawless(&self, manager: &Manager) {
        let Some(text) = meter::metrics_of(manager).await else { return };
        let flawed: Vec<&str> = text.lines().filter(|line| line.starts_with("mcm_plans_flawed_total")).collect();
        self.run.none("plans that were bugs", &flawed);
    }
}
