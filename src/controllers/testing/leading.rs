//! A cell that plays all roles of some kinds against an API server in memory, on virtual time.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{Wire, clock::VirtualClock};
use crate::{Kind, MACHINES, SETS, Settings, machine, machine_deployment, node, orphans, overshoot};
use mcm_driver_host::Catalogue;
use mcm_rules::safety::{api_server::Probing, meltdown};
use mcm_runtime::{
    cell::{Cell, Config, Ended, Scope, Shared},
    events::Events,
    metrics::Metrics,
    role::Role,
    target::{Assignment, TargetClients, TargetId, Targets},
};

const ROLES: [Role; 2] = [SETS, MACHINES];

/// A process that leads; it ends when dropped.
pub(crate) struct Leading {
    pub metrics: Metrics,
    pub cell: Arc<Cell>,
    _tasks: Vec<AbortOnDropHandle<Ended>>,
}

/// A process that watches and does not lead yet.
pub(crate) struct Standby {
    cell: Arc<Cell>,
    metrics: Metrics,
}

/// Defaults of the flags, without drivers.
pub(crate) fn settings() -> Settings {
    Settings {
        machine: machine::Policy::default(),
        deployment: machine_deployment::Policy { annotate_nodes: true, has_target: false },
        overshoot: overshoot::Policy::default(),
        orphans: orphans::Policy::default(),
        probing: Probing::default(),
        node: node::Policy {
            creation_timeout: jiff::SignedDuration::from_mins(20),
            marks_strangers: true,
            finalizer_grace: jiff::SignedDuration::from_secs(30),
            unhealthy_replacements: meltdown::Limits::default(),
        },
        drivers: Arc::new(Catalogue::default()),
        slots: 4,
    }
}

impl Leading {
    /// The namespace `shoot` without a target cluster.
    pub(crate) fn start(wire: &Wire, kinds: &[Kind], settings: &Settings) -> Self {
        Standby::with_targets(wire, kinds, settings, Targets::new(Assignment::None, node::cache)).lead()
    }

    /// The same with the Nodes of the same API server.
    pub(crate) fn start_with_target(wire: &Wire, kinds: &[Kind], settings: &Settings) -> Self {
        Standby::start_with_target(wire, kinds, settings).lead()
    }
}

impl Standby {
    /// The namespace `shoot` with the Nodes of the same API server.
    pub(crate) fn start_with_target(wire: &Wire, kinds: &[Kind], settings: &Settings) -> Self {
        let targets = Targets::new(Assignment::One(TargetId::only()), node::cache);
        targets.connect(&TargetId::only(), &TargetClients::one(&wire.client()));
        Self::with_targets(wire, kinds, settings, targets)
    }

    /// The namespace `shoot`, whose objects have the label `target` with the name of the API server of their Nodes.
    pub(crate) fn start_with_targets(
        wire: &Wire,
        kinds: &[Kind],
        settings: &Settings,
        named: &[(&str, &Wire)],
    ) -> Self {
        let targets = Targets::new(Assignment::Label("target".to_owned()), node::cache);
        for (name, target) in named {
            targets.connect(&TargetId::named(name), &TargetClients::one(&target.client()));
        }
        Self::with_targets(wire, kinds, settings, targets)
    }

    fn with_targets(wire: &Wire, kinds: &[Kind], settings: &Settings, targets: Arc<Targets>) -> Self {
        let control = wire.client();
        let shared = Shared {
            clock: Arc::new(VirtualClock::new()),
            metrics: Metrics::new(),
            caches: Arc::default(),
            entropy: Arc::new(|| 7),
            cells: Arc::default(),
        };
        let metrics = shared.metrics.clone();
        let config = Config {
            name: String::new(),
            scope: Scope::Namespace("shoot".to_owned()),
            events: Events::start(control.clone(), "test", Arc::clone(&shared.clock), metrics.clone()),
            control,
            targets,
            kinds: crate::kind_caches(),
            shared,
        };
        Self { cell: Cell::new(config, kinds, &ROLES, settings), metrics }
    }

    /// It becomes leader.
    pub(crate) fn lead(self) -> Leading {
        let tasks = ROLES.into_iter().map(|role| {
            let cell = Arc::clone(&self.cell);
            AbortOnDropHandle::new(tokio::spawn(async move { cell.lead(&role, &CancellationToken::new()).await }))
        });
        Leading { _tasks: tasks.collect(), metrics: self.metrics, cell: self.cell }
    }
}

/// Lets time pass until it is so; how much passed.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_hours(2), "never: {what}");
        sleep(Duration::from_millis(250)).await;
    }
    begun.elapsed()
}
