//! Plays the controllers of one MachineDeployment, or of one MachineSet without any, on virtual time, until nothing happens any more.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    cloud::{ClassValidator, RehearsalTiming, RehearsedCloud, RehearsedDriver},
    record::{RehearsalCourse, RehearsalEnding, RehearsalRecord, RehearsalWait, RehearsedObject},
};
use mcm_api::{machine::Machine, node::Node};
use mcm_controllers::{self as controllers, KINDS, Settings, node};
use mcm_driver::{Driver, DriverGuards};
use mcm_driver_host::DriverCatalogue;
use mcm_fake_api::{ApiServer, DEPLOYMENTS, Kind, MACHINES, NODES, PerfectNetwork, SETS, clock::VirtualClock};
use mcm_runtime::{
    cache::Key,
    cell::{CellConfig, CellScope, ControllerCell, SharedCellState},
    events::EventRecorder,
    metrics::MetricsRegistry,
    role::ControllerRole,
    target::{CellTargets, TargetAssignment, TargetClients, TargetId},
};

const ROLES: [ControllerRole; 2] = [controllers::SETS, controllers::MACHINES];
/// The controllers whose waits are asked for at the end, with the kinds of their objects.
const ASKED: [(&str, &Kind); 3] = [("machinedeployment", &DEPLOYMENTS), ("machineset", &SETS), ("machine", &MACHINES)];
/// The most objects of a kind whose waits are asked for.
const MOST_ASKED: usize = 20;
/// Cost of a plan. Kinds that plan over many objects make so few plans that each takes a small share of the time.
const COST: Duration = Duration::from_millis(6);
/// Virtual time between two checks for progress.
const LOOK: Duration = Duration::from_secs(1);
/// It is over if the desired state lasts this long.
const SETTLED: Duration = Duration::from_secs(3);
/// It is over if no Machine is under way and nothing was written for this long.
const QUIET: Duration = Duration::from_mins(10);
/// It is over after this time without a Machine that joins, is updated or disappears. Longer than the default of the timeouts
/// for the creation and the health of Machines.
const PATIENCE: Duration = Duration::from_mins(45);

/// An object at the beginning.
pub type SeedObject = (&'static Kind, Value);

/// A step of a user.
#[derive(Clone, Debug)]
pub enum DeploymentWrite {
    /// Creates the MachineDeployment.
    Create(Value),
    /// Gives it this content; the MachineSet if there is no such MachineDeployment.
    Write(Value),
    /// Deletes it.
    Delete,
}

/// The beginning of a rehearsal.
pub struct RehearsalSetup {
    /// The time of the objects.
    pub now: Timestamp,
    /// The namespace of the objects.
    pub namespace: String,
    /// The MachineDeployment, or the MachineSet if no deployment has this name.
    pub name: String,
    /// The objects, with their status.
    pub seeds: Vec<SeedObject>,
    /// The changes. Each is made once its predecessor is played to its end.
    pub cues: Vec<DeploymentWrite>,
    /// The settings of the controllers, with other drivers.
    pub settings: Settings,
    /// The controllers have a target cluster with Nodes.
    pub has_target: bool,
    /// How long the parts take.
    pub pace: RehearsalTiming,
    /// Users select Nodes for an in-place update at once.
    pub selects: bool,
    /// Classes of which the cloud creates no VM.
    pub out_of_stock: BTreeSet<String>,
    /// Checks classes.
    pub judge: ClassValidator,
    /// Real time after which a change is not played any further.
    pub budget: Duration,
}

/// A rehearsal did not come to an end.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// The thread or its runtime cannot be started.
    #[error("start the rehearsal")]
    Start(#[from] std::io::Error),
    /// The controllers ended unexpectedly.
    #[error("the rehearsal ended unexpectedly: please report this as a bug")]
    Ended,
    /// It took longer than the limit, in real time.
    #[error("the rehearsal took longer than {} s", .0.as_secs())]
    TooLong(Duration),
}

/// Plays each cue to its end, at most for so long in real time. Counts the Machines that joined or disappeared in `progress`.
///
/// # Errors
/// It did not come to an end.
pub async fn play(
    stage: RehearsalSetup,
    progress: &Arc<AtomicUsize>,
    limit: Duration,
) -> Result<Vec<RehearsalCourse>, RehearsalError> {
    let (send, played) = oneshot::channel();
    let progress = Arc::clone(progress);
    // Virtual time advances whenever all tasks of its runtime wait, so this runtime has a thread and nothing else.
    thread::Builder::new().name("rehearsal".to_owned()).spawn(move || drop(send.send(run(stage, &progress))))?;
    match tokio::time::timeout(limit, played).await {
        Err(_) => Err(RehearsalError::TooLong(limit)),
        Ok(Err(_)) => Err(RehearsalError::Ended),
        Ok(Ok(courses)) => courses,
    }
}

fn run(stage: RehearsalSetup, progress: &Arc<AtomicUsize>) -> Result<Vec<RehearsalCourse>, RehearsalError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(async { RehearsalRun::from_setup(stage, progress).play().await }))
}

struct RehearsalRun {
    server: ApiServer,
    namespace: String,
    name: String,
    cues: Vec<DeploymentWrite>,
    record: Arc<Mutex<RehearsalRecord>>,
    cell: Arc<ControllerCell>,
    /// In real time.
    ends: std::time::Instant,
    _roles: Vec<AbortOnDropHandle<()>>,
}

impl RehearsalRun {
    fn from_setup(stage: RehearsalSetup, progress: &Arc<AtomicUsize>) -> Self {
        let clock = VirtualClock::starting(stage.now).with_cost_of_plans(COST);
        let ends = std::time::Instant::now() + stage.budget;
        let server = ApiServer::new(&clock, Arc::new(PerfectNetwork));
        let RehearsalSetup { namespace, name, seeds, mut cues, pace, selects, out_of_stock, judge, .. } = stage;
        let machines = seeds.iter().filter(|(kind, _)| *kind == &MACHINES);
        let machines: Vec<Machine> =
            machines.filter_map(|(_, value)| serde_json::from_value(value.clone()).ok()).collect();
        let is_named = |(kind, value): &SeedObject| *kind == &DEPLOYMENTS && value["metadata"]["name"] == name.as_str();
        let is_deployment = matches!(cues.first(), Some(DeploymentWrite::Create(_))) || seeds.iter().any(is_named);
        let object =
            RehearsedObject { kind: if is_deployment { DEPLOYMENTS.name } else { SETS.name }, name: name.clone() };
        let sets = seeds.iter().filter(|(kind, _)| *kind == &SETS).map(|(_, value)| value);
        let record = Arc::new(Mutex::new(RehearsalRecord::for_objects(object, sets, &machines)));
        let nodes = seeds.iter().filter(|(kind, _)| *kind == &NODES);
        let nodes: Vec<Node> = nodes.filter_map(|(_, value)| serde_json::from_value(value.clone()).ok()).collect();
        for (kind, value) in seeds {
            server.seed(kind, value);
        }
        // The controllers begin with the first change, as they would see it.
        if !cues.is_empty() {
            take(&server, &namespace, &name, cues.remove(0));
        }
        let cloud = RehearsedCloud::for_machines(&server, &machines, pace, selects, out_of_stock, judge);
        let (seen, agent, progress) = (Arc::clone(&record), Arc::clone(&cloud), Arc::clone(progress));
        server.observe(move |write| {
            if seen.lock().saw(write) {
                progress.fetch_add(1, Ordering::Relaxed);
            }
            agent.saw(write);
        });
        cloud.resume(nodes.into_iter());
        let driver: Arc<dyn Driver> = Arc::new(RehearsedDriver(cloud));
        let settings = Settings {
            drivers: Arc::new(DriverCatalogue::from_drivers([driver], &DriverGuards::unobserved())),
            ..stage.settings
        };
        let cell = cell(&server, &clock, &namespace, stage.has_target, &settings);
        let roles = ROLES.into_iter().map(|role| {
            let cell = Arc::clone(&cell);
            let lead = async move {
                cell.lead(&role, &CancellationToken::new()).await;
            };
            AbortOnDropHandle::new(tokio::spawn(lead))
        });
        Self { _roles: roles.collect(), server, namespace, name, cues, record, cell, ends }
    }

    async fn play(mut self) -> Vec<RehearsalCourse> {
        let mut courses = vec![self.to_its_end().await];
        for cue in std::mem::take(&mut self.cues) {
            self.record.lock().begin_again();
            take(&self.server, &self.namespace, &self.name, cue);
            courses.push(self.to_its_end().await);
        }
        courses
    }

    async fn to_its_end(&self) -> RehearsalCourse {
        let begun = Instant::now();
        let mut settled_since = None;
        let ending = loop {
            sleep(LOOK).await;
            let now = Instant::now();
            let is_settled = self.is_settled();
            settled_since = if is_settled { settled_since.or(Some(now)) } else { None };
            let record = self.record.lock();
            let quiet = now - record.written.max(begun);
            if settled_since.is_some_and(|since| now - since >= SETTLED) && quiet >= SETTLED {
                break RehearsalEnding::Settled;
            }
            if quiet >= QUIET && !record.is_under_way() {
                break RehearsalEnding::Rests;
            }
            if now - record.progressed.max(begun) >= PATIENCE {
                break RehearsalEnding::Stuck;
            }
            if std::time::Instant::now() >= self.ends {
                break RehearsalEnding::Cut;
            }
        };
        let waits =
            if matches!(ending, RehearsalEnding::Settled | RehearsalEnding::Cut) { Vec::new() } else { self.waits() };
        let record = self.record.lock();
        let of_object = |kind: &'static Kind| {
            let all = self.server.all(kind).into_iter().filter(|object| record.has(kind, object));
            (kind.name, all.map(|object| object.value.clone()).collect())
        };
        let objects = [&DEPLOYMENTS, &SETS, &MACHINES].map(of_object);
        let nodes = self.server.all(&mcm_fake_api::NODES);
        let nodes = nodes.iter().map(|node| (node.name().to_owned(), node.value.clone())).collect();
        record.course(ending, begun, objects.into(), nodes, waits)
    }

    /// The deployment, or the set without any, and its Machines are as desired.
    fn is_settled(&self) -> bool {
        let record = self.record.lock();
        if record.is_under_way() {
            return false;
        }
        let counted: [(&Kind, &[&str]); 2] = [
            (&DEPLOYMENTS, &["replicas", "updatedReplicas", "availableReplicas"]),
            (&SETS, &["replicas", "availableReplicas"]),
        ];
        let found = |(kind, fields)| Some((self.server.get(kind, &self.namespace, &self.name)?, fields));
        let Some((object, fields)) = counted.into_iter().find_map(found) else {
            return record.is_empty();
        };
        let (spec, status) = (&object.value["spec"], &object.value["status"]);
        let wanted = spec["replicas"].as_i64().unwrap_or_default();
        let count = |field: &str| status[field].as_i64().unwrap_or_default();
        count("observedGeneration") == object.value["metadata"]["generation"].as_i64().unwrap_or_default()
            && fields.iter().all(|field| count(field) == wanted)
            && usize::try_from(wanted).is_ok_and(|wanted| record.running() == wanted)
    }

    /// The waits of the deployment, its sets, and the Machines that do not run.
    fn waits(&self) -> Vec<RehearsalWait> {
        let mut told = Vec::new();
        for (controller, kind) in ASKED {
            let mut all = self.server.all(kind);
            let record = self.record.lock();
            all.retain(|object| record.has(kind, object));
            drop(record);
            let is_running = |phase: &Value| phase["status"]["currentStatus"]["phase"] == "Running";
            let asked = all.iter().filter(|object| !is_running(&object.value) || object.is_terminating());
            for object in asked.take(MOST_ASKED) {
                let preview = self.cell.preview(controller, &Key::new(&self.namespace, object.name()));
                let waits = preview.into_iter().flat_map(|preview| preview.waits);
                told.extend(waits.map(|wait| RehearsalWait { kind: kind.name, name: object.name().to_owned(), wait }));
            }
        }
        told
    }
}

/// Carries a change out. The deployment, or the set without one, is there: a rehearsal begins with it.
fn take(server: &ApiServer, namespace: &str, name: &str, cue: DeploymentWrite) {
    match cue {
        DeploymentWrite::Create(value) => drop(server.create(&DEPLOYMENTS, value)),
        DeploymentWrite::Write(value) => {
            let is_deployment = server.get(&DEPLOYMENTS, namespace, name).is_some();
            let kind = if is_deployment { &DEPLOYMENTS } else { &SETS };
            drop(server.edit(kind, namespace, name, |stored| {
                stored["spec"] = value["spec"].clone();
                for field in ["labels", "annotations"] {
                    stored["metadata"][field] = value["metadata"][field].clone();
                }
            }));
        }
        DeploymentWrite::Delete => drop(server.delete(&DEPLOYMENTS, namespace, name)),
    }
}

fn cell(
    server: &ApiServer,
    clock: &VirtualClock,
    namespace: &str,
    has_target: bool,
    settings: &Settings,
) -> Arc<ControllerCell> {
    let control = server.client("mcm");
    let assignment = if has_target { TargetAssignment::One(TargetId::only()) } else { TargetAssignment::None };
    let targets = CellTargets::new(assignment, node::cache_for(&ROLES));
    if has_target {
        drop(targets.connect(&TargetId::only(), &TargetClients::one(&server.client("mcm"))));
    }
    let serial = AtomicU64::new(0);
    let shared = SharedCellState {
        clock: Arc::new(clock.clone()),
        metrics: MetricsRegistry::new(),
        caches: Arc::default(),
        entropy: Arc::new(move || spread(serial.fetch_add(1, Ordering::Relaxed))),
        cells: Arc::default(),
    };
    let config = CellConfig {
        name: String::new(),
        scope: CellScope::Namespace(namespace.to_owned()),
        events: EventRecorder::discarded("mcm", Arc::clone(&shared.clock), shared.metrics.clone()),
        control,
        targets,
        kinds: mcm_controllers::kind_caches(),
        shared,
    };
    ControllerCell::new(config, KINDS, &ROLES, settings)
}

/// Numbers that look random, and are the same each time (splitmix64).
const fn spread(serial: u64) -> u64 {
    let mut bits = serial.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
