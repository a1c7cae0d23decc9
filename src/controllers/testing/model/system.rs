//! The processes under test: the only place that depends on how the product is assembled.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::SignedDuration;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    super::clock::VirtualClock,
    cloud::ModelDriver,
    world::{NAMESPACE, World},
};
use crate::{KINDS, MACHINES, SETS, Settings, machine, machine_deployment, node, orphans, overshoot};
use mcm_api::GoDuration;
use mcm_driver::{Driver, DriverGuards};
use mcm_driver_host::DriverCatalogue;
use mcm_rules::safety::{api_server::ProbeTiming, meltdown};
use mcm_runtime::{
    cell::{CellConfig, CellScope, ControllerCell, SharedCellState},
    events::EventRecorder,
    lead::lead,
    leader::{LeaderElection, LeaseConfig, LeaseTiming},
    role::ControllerRole,
    target::{CellTargets, TargetAssignment, TargetClients, TargetId},
};

/// Slower than a real one, so that hours pass with few renewals.
const TIMING: LeaseTiming = LeaseTiming {
    lease_duration: Duration::from_secs(60),
    renew_deadline: Duration::from_secs(40),
    retry_period: Duration::from_secs(10),
};
/// Long enough for a successor to be sure that there is no leader.
pub(super) const TAKE_OVER: Duration = Duration::from_secs(90);

/// The program to start.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Name of the process in callers, identity and log.
    pub name: String,
    pub roles: Vec<ControllerRole>,
    /// Waits for its Leases; otherwise it works at once.
    pub elects: bool,
    /// Control namespace.
    pub namespace: String,
    pub creation_timeout: Duration,
}

impl Program {
    pub(super) fn everything(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            roles: vec![SETS, MACHINES],
            elects: true,
            namespace: NAMESPACE.to_owned(),
            creation_timeout: Duration::from_mins(20),
        }
    }

    pub(super) fn with_roles(self, roles: &[ControllerRole]) -> Self {
        Self { roles: roles.to_vec(), ..self }
    }

    pub(super) fn without_election(self) -> Self {
        Self { elects: false, ..self }
    }
}

/// A process that runs. Dropped, it is killed: everything that was under way ends where it is.
pub(super) struct Process {
    pub program: Program,
    pub clock: VirtualClock,
    stop: CancellationToken,
    leads: Arc<AtomicBool>,
    task: AbortOnDropHandle<()>,
}

impl Process {
    pub(super) fn start(world: &Arc<World>, program: &Program) -> Self {
        world.say(format!("{} starts", program.name));
        world.ledger.lock().process_starts(&program.name);
        let (clock, stop, leads) = (world.faults.clock.of_another_host(), CancellationToken::new(), Arc::default());
        let run = run(Arc::clone(world), program.clone(), clock.clone(), stop.clone(), Arc::clone(&leads));
        Self { program: program.clone(), clock, stop, leads, task: AbortOnDropHandle::new(tokio::spawn(run)) }
    }

    /// Has got a Lease.
    pub(super) fn has_led(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    pub(super) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// SIGTERM: running reconciles are finished, and the Leases are released.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        // The role has ended or its Lease was already lost.
        let _ = self.task.await;
    }
}

async fn run(
    world: Arc<World>,
    program: Program,
    clock: VirtualClock,
    stop: CancellationToken,
    leads: Arc<AtomicBool>,
) {
    let cell = cell(&world, &program, &clock);
    let candidates = program.roles.iter().map(|role| {
        let lease_config = LeaseConfig {
            namespace: program.namespace.clone(),
            name: role.lease.to_owned(),
            identity: program.name.clone(),
            timing: TIMING,
        };
        let leases = world.control.client(&program.name);
        let election = || LeaderElection::new(leases, lease_config, Arc::new(clock.clone())).unwrap();
        (*role, program.elects.then(election))
    });
    let begun = |role: &ControllerRole| {
        leads.store(true, Ordering::Relaxed);
        if program.elects {
            world.say(format!("{} leads {}", program.name, role.name));
            if *role == MACHINES {
                world.ledger.lock().process_leads(&program.name);
            }
        }
    };
    if lead(&cell, candidates.collect(), &begun, &stop).await.is_err() {
        world.say(format!("{} lost its lease", program.name));
    }
}

pub(super) fn cell(world: &Arc<World>, program: &Program, clock: &VirtualClock) -> Arc<ControllerCell> {
    let control = world.control.client(&program.name);
    let targets = CellTargets::new(TargetAssignment::One(TargetId::only()), node::cache_for(&program.roles));
    targets.connect(&TargetId::only(), &TargetClients::one(&world.target.client(&program.name)));
    let faults = Arc::clone(&world.faults);
    let shared = SharedCellState {
        clock: Arc::new(clock.clone()),
        metrics: world.metrics.clone(),
        caches: Arc::default(),
        entropy: Arc::new(move || faults.rng(super::rng::Rng::roll)),
        cells: Arc::default(),
    };
    let driver: Arc<dyn Driver> = Arc::new(ModelDriver::new(world));
    let settings = Settings {
        machine: machine::MachinePolicy {
            creation_timeout: GoDuration::from_secs(i64::try_from(program.creation_timeout.as_secs()).unwrap()),
            ..machine::MachinePolicy::default()
        },
        deployment: machine_deployment::DeploymentPolicy { annotate_nodes: true, has_target: true },
        overshoot: overshoot::OvershootPolicy::default(),
        orphans: orphans::OrphanPolicy::default(),
        probing: ProbeTiming::default(),
        node: node::NodePolicy {
            creation_timeout: SignedDuration::try_from(program.creation_timeout).unwrap(),
            marks_strangers: true,
            finalizer_grace: SignedDuration::from_secs(30),
            unhealthy_replacements: meltdown::MeltdownLimits::default(),
        },
        drivers: Arc::new(DriverCatalogue::from_drivers([driver], &DriverGuards::unobserved())),
        slots: 4,
    };
    let config = CellConfig {
        kinds: crate::kind_caches(),
        name: program.name.clone(),
        scope: CellScope::Namespace(program.namespace.clone()),
        events: EventRecorder::start(control.clone(), "model", Arc::clone(&shared.clock), shared.metrics.clone()),
        control,
        targets,
        shared,
    };
    ControllerCell::new(config, KINDS, &program.roles, &settings)
}
