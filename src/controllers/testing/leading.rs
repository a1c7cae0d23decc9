//! A cell that plays all roles of some kinds against an API server in memory, on virtual time.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{Wire, clock::VirtualClock};
use crate::{Kind, MACHINES, SETS, Settings, machine, machine_deployment, node, orphans, overshoot};
use mcm_driver_host::DriverCatalogue;
use mcm_rules::safety::{api_server::ProbeTiming, meltdown};
use mcm_runtime::{
    cell::{CellConfig, CellScope, ControllerCell, NamespaceRules, RoleEnd, SharedCellState},
    engaged::{claims::ClaimConfig, switch::DeploymentSwitch},
    events::EventRecorder,
    metrics::MetricsRegistry,
    role::ControllerRole,
    target::{CellTargets, NamespaceWatch, TargetAssignment, TargetClients, TargetId},
};

const ROLES: [ControllerRole; 2] = [SETS, MACHINES];

/// A process that leads; it ends when dropped.
pub(crate) struct Leading {
    pub metrics: MetricsRegistry,
    pub cell: Arc<ControllerCell>,
    _tasks: Vec<AbortOnDropHandle<RoleEnd>>,
    _namespaces: Option<NamespaceWatch>,
}

/// A process that watches and does not lead yet.
pub(crate) struct Standby {
    cell: Arc<ControllerCell>,
    metrics: MetricsRegistry,
    namespaces: Option<NamespaceWatch>,
}

/// Defaults of the flags, without drivers.
pub(crate) fn settings() -> Settings {
    Settings {
        machine: machine::MachinePolicy::default(),
        deployment: machine_deployment::DeploymentPolicy { annotate_nodes: true, has_target: false },
        overshoot: overshoot::OvershootPolicy::default(),
        orphans: orphans::OrphanPolicy::default(),
        probing: ProbeTiming::default(),
        node: node::NodePolicy {
            creation_timeout: jiff::SignedDuration::from_mins(20),
            marks_strangers: true,
            finalizer_grace: jiff::SignedDuration::from_secs(30),
            unhealthy_replacements: meltdown::MeltdownLimits::default(),
        },
        drivers: Arc::new(DriverCatalogue::default()),
        slots: 4,
    }
}

impl Leading {
    /// The namespace `shoot` without a target cluster.
    pub(crate) fn start(wire: &Wire, kinds: &[Kind], settings: &Settings) -> Self {
        Standby::with_targets(wire, kinds, settings, CellTargets::new(TargetAssignment::None, node::cache)).lead()
    }

    /// The same with the Nodes of the same API server.
    pub(crate) fn start_with_target(wire: &Wire, kinds: &[Kind], settings: &Settings) -> Self {
        Standby::start_with_target(wire, kinds, settings).lead()
    }
}

impl Standby {
    /// The namespace `shoot` with the Nodes of the same API server.
    pub(crate) fn start_with_target(wire: &Wire, kinds: &[Kind], settings: &Settings) -> Self {
        Self::with_targets(wire, kinds, settings, Self::only_target(wire))
    }

    /// The namespace `shoot`, whose Nodes are in the first of these API servers.
    pub(crate) fn start_with_targets(
        wire: &Wire,
        kinds: &[Kind],
        settings: &Settings,
        named: &[(&str, &Wire)],
    ) -> Self {
        let targets = CellTargets::new(TargetAssignment::Namespace, node::cache);
        for (name, target) in named {
            targets.connect(&TargetId::named(name), &TargetClients::one(&target.client()));
        }
        targets.assign("shoot", named.first().map(|(name, _)| TargetId::named(name)));
        Self::with_targets(wire, kinds, settings, targets)
    }

    /// All namespaces; the label `target` of each Namespace is the name of the API server of its Nodes.
    pub(crate) fn start_with_namespaces(
        wire: &Wire,
        kinds: &[Kind],
        settings: &Settings,
        named: &[(&str, &Wire)],
    ) -> Self {
        let targets = CellTargets::new(TargetAssignment::Namespace, node::cache);
        for (name, target) in named {
            targets.connect(&TargetId::named(name), &TargetClients::one(&target.client()));
        }
        let scope = CellScope::All;
        let follow = targets.follow_namespaces(&wire.client(), &scope, "target", "control", &Arc::default());
        Self {
            namespaces: Some(follow),
            ..Self::of_rules(wire, kinds, settings, targets, scope, &NamespaceRules::default())
        }
    }

    /// All namespaces, with the Nodes of the same API server. The Lease of each of them is needed as well.
    pub(crate) fn start_with_claims(wire: &Wire, kinds: &[Kind], settings: &Settings) -> Self {
        let clock = Arc::new(VirtualClock::new());
        let claims = ClaimConfig { leases: wire.client(), runtime: None, own: "system".to_owned(), clock };
        let rules = NamespaceRules { switch: None, claims: Some(claims), member: None };
        Self::of_rules(wire, kinds, settings, Self::only_target(wire), CellScope::All, &rules)
    }

    /// The namespace `shoot`, of which the Deployment is the switch, with the Nodes of the same API server.
    pub(crate) fn start_with_switch(wire: &Wire, kinds: &[Kind], settings: &Settings) -> Self {
        let scope = CellScope::Namespace("shoot".to_owned());
        let switch = DeploymentSwitch::start(&wire.client(), &scope, "control", &Arc::default());
        let rules = NamespaceRules { switch: Some(switch), claims: None, member: None };
        Self::of_rules(wire, kinds, settings, Self::only_target(wire), scope, &rules)
    }

    fn only_target(wire: &Wire) -> Arc<CellTargets> {
        let targets = CellTargets::new(TargetAssignment::One(TargetId::only()), node::cache);
        targets.connect(&TargetId::only(), &TargetClients::one(&wire.client()));
        targets
    }

    fn with_targets(wire: &Wire, kinds: &[Kind], settings: &Settings, targets: Arc<CellTargets>) -> Self {
        let scope = CellScope::Namespace("shoot".to_owned());
        Self::of_rules(wire, kinds, settings, targets, scope, &NamespaceRules::default())
    }

    fn of_rules(
        wire: &Wire,
        kinds: &[Kind],
        settings: &Settings,
        targets: Arc<CellTargets>,
        scope: CellScope,
        rules: &NamespaceRules,
    ) -> Self {
        let control = wire.client();
        let shared = SharedCellState {
            clock: Arc::new(VirtualClock::new()),
            metrics: MetricsRegistry::new(),
            caches: Arc::default(),
            entropy: Arc::new(|| 7),
            cells: Arc::default(),
        };
        let metrics = shared.metrics.clone();
        let config = CellConfig {
            name: String::new(),
            scope,
            events: EventRecorder::start(control.clone(), "test", Arc::clone(&shared.clock), metrics.clone()),
            control,
            targets,
            kinds: crate::kind_caches(),
            shared,
        };
        let cell = ControllerCell::with_rules(config, kinds, &ROLES, settings, rules);
        Self { cell, metrics, namespaces: None }
    }

    /// It becomes leader.
    pub(crate) fn lead(self) -> Leading {
        let tasks = ROLES.into_iter().map(|role| {
            let cell = Arc::clone(&self.cell);
            AbortOnDropHandle::new(tokio::spawn(async move { cell.lead(&role, &CancellationToken::new()).await }))
        });
        Leading { _tasks: tasks.collect(), metrics: self.metrics, cell: self.cell, _namespaces: self.namespaces }
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
