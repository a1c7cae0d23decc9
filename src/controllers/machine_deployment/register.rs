use std::{sync::Arc, time::Duration};

use super::{
    Action, Snapshot,
    apply::{MachineDeployments, Memory},
    metrics, plan,
    rollout::lint::lint,
};
use crate::{
    api::{
        machine::{Machine, MachineDeployment, MachineSet},
        selector::Selector,
    },
    controllers::{
        self, Kind, Settings,
        machine::metrics::MachineMetrics,
        machine_set::InFlightWrites,
        object::{owner, prune},
    },
    plan::{Plan, Step},
    runtime::{
        cache::{Cache, Key},
        cell::{Builder, Kept},
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, Turn, UnresolvedWrite},
        worker::ReconcileError,
    },
};

pub(crate) const KIND: Kind = Kind { role: controllers::SETS.name, register };

const WORKERS: usize = 64;
/// Bursts of changes of sets and Machines are gathered. The pause after a reconcile is this multiple of its planning
/// time.
const PACING: Pacing = Pacing { gather: Duration::from_millis(50), per_cost: 100 };

impl Kept for MachineDeployment {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[], prune)
    }
}

impl Reconciler for MachineDeployments {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = Memory;
    type Session = ();

    fn observe(&self, key: &Key, memory: &Memory, (): &()) -> Option<Snapshot> {
        self.snapshot(key, memory, self.clock.now())
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<Action> {
        plan(snapshot, &self.policy)
    }

    fn lint(&self, snapshot: &Snapshot, plan: &Plan<Action>) -> Option<String> {
        lint(snapshot, &plan.steps).first().map(ToString::to_string)
    }

    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        turn.remember(|memory| memory.node_retries.retain(|node, _| snapshot.nodes.contains_key(node)));
        self.carry_out(&snapshot, steps, turn).await?;
        Ok(Next::Plan)
    }

    /// The replicas of one set depend on all sets, and no resource version guards that.
    async fn resolve(&self, _: &Key, write: &UnresolvedWrite) -> Result<(), ReconcileError> {
        let read = self.sets.read_again(&write.key).await;
        read.map_err(|source| ReconcileError::read(format!("machine set {}", write.key), source))?;
        Ok(())
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus(_))
    }

    /// Clears the failure once there is no set left to create.
    fn settle(memory: &mut Memory) -> bool {
        memory.failure.take().is_some()
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let config = builder.config();
    let (targets, events, shared) = (Arc::clone(&config.targets), config.events.clone(), config.shared.clone());
    let (deployments, in_flight) = (builder.objects::<MachineDeployment>(), builder.shared::<InFlightWrites>());
    let reconciler = MachineDeployments {
        deployments: Arc::clone(&deployments),
        sets: builder.objects(),
        machines: builder.objects(),
        targets,
        in_flight: Arc::clone(&in_flight),
        policy: settings.deployment,
        events,
        clock: shared.clock,
    };
    let queue = Queue::new("machinedeployment", PACING);
    builder.controller::<MachineDeployment, _>(reconciler, &queue, &Arc::default(), WORKERS, |_| true);
    builder.export::<MachineDeployment>(|deployments, out| metrics::machine_deployments(deployments, out));
    let measured = shared.metrics.of::<MachineMetrics>();
    builder.on_change::<MachineDeployment>(move |change| {
        if change.gone {
            measured.forget(&change.key.namespace, &change.key.name);
        }
    });
    let settled = Arc::clone(&queue);
    in_flight.on_settled(move |deployment| settled.add(deployment.clone()));

    let owned = Arc::clone(&queue);
    builder.on_change::<MachineSet>(move |change| {
        let owners = [change.old.as_ref().map(|old| &old.metadata), Some(&change.meta)];
        for reference in owners.into_iter().flatten().filter_map(owner::controller_of) {
            owned.add(Key::new(&change.key.namespace, &reference.name));
        }
        let orphan = change.new.as_ref().filter(|set| owner::controller_of(&set.metadata).is_none());
        for deployment in orphan.into_iter().flat_map(|set| selecting(&deployments.cache, set)) {
            owned.add(deployment);
        }
    });

    let sets = builder.objects::<MachineSet>();
    builder.on_change::<Machine>(move |change| {
        let owners = [change.old.as_ref().map(|old| &old.metadata), Some(&change.meta)];
        for reference in owners.into_iter().flatten().filter_map(owner::controller_of) {
            let set = sets.cache.get(&Key::new(&change.key.namespace, &reference.name));
            let set = set.filter(|set| set.metadata.uid.as_ref() == Some(&reference.uid));
            if let Some(deployment) = set.as_ref().and_then(|set| owner::controller_of(&set.metadata)) {
                queue.add(Key::new(&change.key.namespace, &deployment.name));
            }
        }
    });
}

fn selecting<'a>(deployments: &Cache<MachineDeployment>, set: &'a MachineSet) -> impl Iterator<Item = Key> + use<'a> {
    let selects = move |deployment: &Arc<MachineDeployment>| {
        let selector = Selector::parse(deployment.spec.selector.as_ref());
        deployment.metadata.namespace == set.metadata.namespace
            && selector.is_ok_and(|selector| selector.matches(set.metadata.labels.as_ref()))
    };
    deployments.all().into_iter().filter(selects).map(|deployment| Key::of(&deployment.metadata))
}
