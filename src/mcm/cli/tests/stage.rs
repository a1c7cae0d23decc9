//! The shipped controllers and the simulated cloud on virtual time, for one pool.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{super::run::default_settings, readers::ClusterState};
use crate::{
    api::patch,
    simulated_cloud::{CloudApi, CloudSimulator, SimulationSettings, driver::SimulatedDriver, keep_nodes},
};
use mcm_controllers::{KINDS, MACHINES, SETS, node};
use mcm_driver::{Driver, DriverGuards};
use mcm_driver_host::DriverCatalogue;
use mcm_fake_api::{
    ApiCall, ApiServer, ApiVerb, CLASSES, CallDelivery, DEPLOYMENTS, DeliveryOutcome, Kind, MACHINES as MACHINE_KIND,
    NAMESPACES, NetworkModel, PODS, SECRETS, ServerObject, clock::VirtualClock, kinds::ALL,
};
use mcm_runtime::{
    cell::{CellConfig, CellScope, ControllerCell, SharedCellState},
    clock::TimeSource,
    events::EventRecorder,
    lead::lead,
    leader::{LeaderElection, LeaseConfig, LeaseTiming},
    metrics::MetricsRegistry,
    role::ControllerRole,
    target::{CellTargets, TargetAssignment, TargetClients, TargetId},
};

pub const NAMESPACE: &str = "demo";
/// The name of the client of the controllers.
const MANAGER: &str = "manager";
const ROLES: [ControllerRole; 2] = [SETS, MACHINES];
/// Period of checks for a state.
const LOOK: Duration = Duration::from_secs(1);
/// A pool that is not as wanted after this time stays so.
const PATIENCE: Duration = Duration::from_hours(3);

/// The creations and deletions of Machines.
#[derive(Clone, Debug, Default)]
pub struct MachineChanges {
    pub created: Vec<String>,
    /// Machines that got a deletion timestamp.
    pub deleted: Vec<String>,
    /// The most Machines at a time.
    pub most: usize,
}

/// Requests of the controllers that the API server refuses.
#[derive(Default)]
struct RefusingNetwork(Mutex<Vec<(ApiVerb, &'static Kind)>>);

impl NetworkModel for RefusingNetwork {
    fn fate(&self, call: &ApiCall) -> CallDelivery {
        let is_refused = &*call.caller == MANAGER && self.0.lock().contains(&(call.verb, call.kind));
        let outcome = if is_refused { DeliveryOutcome::Refused(403) } else { DeliveryOutcome::Answered };
        CallDelivery { there: Duration::ZERO, back: Duration::ZERO, outcome }
    }
}

/// A namespace with a manager, a cloud, and a cluster that the Nodes join.
pub struct PoolStage {
    pub control: ApiServer,
    pub target: ApiServer,
    is_apart: bool,
    pub cloud: Arc<CloudSimulator>,
    clock: VirtualClock,
    network: Arc<RefusingNetwork>,
    manager: Mutex<Option<AbortOnDropHandle<()>>>,
    changes: Arc<Mutex<MachineChanges>>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// Plays on virtual time, in which waiting takes no time.
pub fn play<T>(act: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(act())
}

impl PoolStage {
    /// A stage with two classes and their Secret, and no pool.
    pub fn new(is_apart: bool) -> Self {
        let clock = VirtualClock::starting(Timestamp::now());
        let network = Arc::new(RefusingNetwork::default());
        let server = || ApiServer::new(&clock, Arc::<RefusingNetwork>::clone(&network));
        let control = server();
        let target = if is_apart { server() } else { control.clone() };
        let changes: Arc<Mutex<MachineChanges>> = Arc::default();
        let seen = Arc::clone(&changes);
        control.observe(move |write| {
            if write.call.kind == &MACHINE_KIND {
                seen.lock().note(write.before, write.after);
            }
        });
        let settings: SimulationSettings =
            serde_json::from_value(json!({ "latency": { "create": "1s", "boot": "30s", "delete": "2s" } })).unwrap();
        let cloud = Arc::new(CloudSimulator::new(7, settings));
        let kubelets = keep_nodes(Arc::clone(&cloud), target.client("kubelets"), CancellationToken::new());
        let tasks = vec![
            AbortOnDropHandle::new(tokio::spawn(kubelets)),
            AbortOnDropHandle::new(tokio::spawn(end_pods(target.clone(), clock.clone()))),
        ];
        let stage = Self {
            control,
            target,
            is_apart,
            cloud,
            clock,
            network,
            manager: Mutex::default(),
            changes,
            _tasks: tasks,
        };
        for server in [&stage.control, &stage.target] {
            for name in [NAMESPACE, "kube-node-lease", "kube-system"] {
                // Both may be one.
                let _ = server.create(&NAMESPACES, json!({ "metadata": { "name": name } }));
            }
        }
        let user_data = json!({ "metadata": meta("pool"), "data": { "userData": "eA==" } });
        stage.control.create(&SECRETS, user_data).unwrap();
        for name in ["small", "large"] {
            stage.control.create(&CLASSES, class(name)).unwrap();
        }
        stage
    }

    /// The manager starts, or starts again.
    pub fn start_manager(&self) {
        let cell = self.cell();
        let leases = self.control.client(MANAGER);
        let candidates: Vec<_> = ROLES
            .into_iter()
            .map(|role| {
                let config = LeaseConfig {
                    namespace: NAMESPACE.to_owned(),
                    name: role.lease.to_owned(),
                    identity: MANAGER.to_owned(),
                    timing: LeaseTiming::default(),
                };
                let election = LeaderElection::new(leases.clone(), config, Arc::new(self.clock.clone())).unwrap();
                (role, Some(election.showing(Arc::clone(cell.targets().freeze()))))
            })
            .collect();
        let run = async move {
            // A Lease that is lost ends the manager.
            let _ = lead(&cell, candidates, &|_| {}, &CancellationToken::new()).await;
        };
        *self.manager.lock() = Some(AbortOnDropHandle::new(tokio::spawn(run)));
    }

    /// The manager dies where it is.
    pub fn kill_manager(&self) {
        drop(self.manager.lock().take());
    }

    fn cell(&self) -> Arc<ControllerCell> {
        let targets = CellTargets::new(TargetAssignment::One(TargetId::only()), node::cache_for(&ROLES));
        drop(targets.connect(&TargetId::only(), &TargetClients::one(&self.target.client(MANAGER))));
        let cloud: Arc<dyn CloudApi> = Arc::<CloudSimulator>::clone(&self.cloud);
        let driver: Arc<dyn Driver> = Arc::new(SimulatedDriver::new(cloud));
        let catalogue = DriverCatalogue::from_drivers([driver], &DriverGuards::unobserved());
        let (control, serial) = (self.control.client(MANAGER), AtomicU64::new(1));
        let shared = SharedCellState {
            clock: Arc::new(self.clock.clone()),
            metrics: MetricsRegistry::new(),
            caches: Arc::default(),
            entropy: Arc::new(move || serial.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)),
            cells: Arc::default(),
        };
        let config = CellConfig {
            name: String::new(),
            scope: CellScope::Namespace(NAMESPACE.to_owned()),
            events: EventRecorder::start(control.clone(), MANAGER, Arc::clone(&shared.clock), shared.metrics.clone()),
            control,
            targets,
            kinds: mcm_controllers::kind_caches(),
            shared,
        };
        ControllerCell::new(config, KINDS, &ROLES, &default_settings(catalogue))
    }

    /// From now on the API server refuses such requests of the manager.
    pub fn refuse(&self, verb: ApiVerb, kind: &'static Kind) {
        self.network.0.lock().push((verb, kind));
    }

    /// The objects of both clusters now.
    pub fn state(&self) -> ClusterState {
        let objects = |server: &ApiServer| {
            let of_kind = |kind: &'static Kind| server.all(kind).into_iter().map(move |one| (kind, one.value.clone()));
            ALL.into_iter().flat_map(of_kind).collect()
        };
        ClusterState {
            now: self.clock.now(),
            namespace: NAMESPACE.to_owned(),
            control: objects(&self.control),
            target: self.is_apart.then(|| objects(&self.target)),
        }
    }

    /// The changes of Machines since the last call.
    pub fn take_changes(&self) -> MachineChanges {
        let count = self.control.all(&MACHINE_KIND).len();
        std::mem::replace(&mut self.changes.lock(), MachineChanges { most: count, ..MachineChanges::default() })
    }

    /// A merge patch of an object.
    pub fn patch(&self, kind: &'static Kind, name: &str, change: &Value) {
        let server =
            if kind.is_namespaced && kind.is_custom || *kind == SECRETS { &self.control } else { &self.target };
        let namespace = if kind.is_namespaced { NAMESPACE } else { "" };
        server.edit(kind, namespace, name, |object| patch::apply(object, change)).unwrap();
    }

    /// Waits until each deployment has its Machines, all of them available and of the current template.
    pub async fn settle(&self) {
        let begun = Instant::now();
        while !self.is_settled() {
            let machines: BTreeMap<String, Value> = (self.control.all(&MACHINE_KIND).iter())
                .map(|one| (one.name().to_owned(), one.value["status"]["lastOperation"].clone()))
                .collect();
            assert!(begun.elapsed() < PATIENCE, "the pool does not settle: {machines:#?}");
            sleep(LOOK).await;
        }
        // Its last events and status.
        sleep(LOOK * 5).await;
    }

    fn is_settled(&self) -> bool {
        let machines = self.control.all(&MACHINE_KIND);
        let deployments = self.control.all(&DEPLOYMENTS);
        let wanted: u64 = deployments.iter().filter_map(|one| one.value["spec"]["replicas"].as_u64()).sum();
        let is_met = |deployment: &Arc<ServerObject>| {
            let (spec, status) = (&deployment.value["spec"]["replicas"], &deployment.value["status"]);
            let counts = ["replicas", "updatedReplicas", "availableReplicas"];
            let is_equal =
                |field: &&str| status[*field].as_u64().unwrap_or_default() == spec.as_u64().unwrap_or_default();
            let observed = status["observedGeneration"].as_u64().unwrap_or_default();
            counts.iter().all(is_equal)
                && observed >= deployment.value["metadata"]["generation"].as_u64().unwrap_or_default()
                && !deployment.is_terminating()
        };
        deployments.iter().all(is_met) && u64::try_from(machines.len()).unwrap() == wanted
    }
}

impl MachineChanges {
    fn note(&mut self, before: Option<&ServerObject>, after: Option<&ServerObject>) {
        let is_going = |object: Option<&ServerObject>| object.is_none_or(ServerObject::is_terminating);
        match (before, after) {
            (None, Some(new)) => self.created.push(new.name().to_owned()),
            (Some(old), after) if !old.is_terminating() && is_going(after) => self.deleted.push(old.name().to_owned()),
            _ => {}
        }
    }
}

/// Ends deleted pods, as kubelets do.
async fn end_pods(target: ApiServer, clock: VirtualClock) {
    loop {
        sleep(Duration::from_secs(5)).await;
        let is_over = |pod: &ServerObject| {
            let at = pod.value["metadata"]["deletionTimestamp"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
            at.is_some_and(|at| at <= clock.now()) && pod.finalizers().next().is_none()
        };
        for pod in target.all(&PODS).into_iter().filter(|pod| is_over(pod)) {
            // It may be gone.
            let _ = target.delete_now(&PODS, &pod);
        }
    }
}

pub fn meta(name: &str) -> Value {
    json!({ "name": name, "namespace": NAMESPACE })
}

pub fn class(name: &str) -> Value {
    json!({
        "metadata": meta(name), "provider": "simulated", "providerSpec": { "instanceType": name },
        "secretRef": { "name": "pool", "namespace": NAMESPACE },
    })
}

/// A pool of machines of the class `small`.
pub fn pool(replicas: u32) -> Value {
    json!({
        "metadata": meta("pool"),
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "pool": "pool" } },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 1 } },
            "template": {
                "metadata": { "labels": { "pool": "pool" } },
                "spec": { "class": { "kind": "MachineClass", "name": "small" } },
            },
        },
    })
}
