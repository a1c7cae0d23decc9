use std::sync::Arc;

use super::{
    Action, Snapshot,
    apply::{MachineDeployments, Memory, Session},
    metrics, plan,
    rollout::lint::lint,
};
use crate::{
    api::{
        labels,
        machine::{Machine, MachineDeployment, MachineSet, StrategyType},
        node::Node,
        selector::Selector,
    },
    controllers::{
        self, Kind, Settings,
        machine::{self, metrics::MachineMetrics},
        machine_set::InFlightWrites,
        object::{self, owner},
    },
    plan::{Plan, Step},
    runtime::{
        cache::{Cache, Change, Key},
        cell::Builder,
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, Turn, UnresolvedWrite},
        target::NodeKey,
        worker::ReconcileError,
    },
};

pub(crate) const KIND: Kind = Kind { role: controllers::SETS.name, register };

const WORKERS: usize = 64;

impl Reconciler for MachineDeployments {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = Memory;
    type Session = Session;

    fn observe(&self, key: &Key, memory: &Memory, _: &Session) -> Option<Snapshot> {
        self.snapshot(key, memory, self.clock.now())
    }

    fn is_unreadable(&self, key: &Key) -> bool {
        self.deployments.cache.is_unreadable(key)
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
        self.execute(&snapshot, steps, turn).await?;
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

    /// Clears the failure once no set is left to create.
    fn settle(memory: &mut Memory) -> bool {
        memory.failure.take().is_some()
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let config = builder.config();
    let (targets, events, shared) = (Arc::clone(&config.targets), config.events.clone(), config.shared.clone());
    let (deployments, in_flight) = (builder.objects::<MachineDeployment>(), builder.shared::<InFlightWrites>());
    let holds = object::holds(builder);
    let reconciler = MachineDeployments {
        deployments: Arc::clone(&deployments),
        sets: builder.objects(),
        machines: builder.objects(),
        targets: Arc::clone(&targets),
        in_flight: Arc::clone(&in_flight),
        holds: Arc::clone(&holds),
        policy: settings.deployment,
        events,
        clock: shared.clock,
    };
    let queue = Queue::new("machinedeployment", Pacing::OF_OWNERS);
    builder.controller::<MachineDeployment, _>(reconciler, &queue, &Arc::default(), WORKERS, |_| true);
    let held = Arc::clone(&queue);
    holds.on_change(move |key| held.add(key.clone()));
    builder.export::<MachineDeployment>(|deployments, out| metrics::machine_deployments(deployments, out));
    let measured = shared.metrics.of::<MachineMetrics>();
    builder.on_change::<MachineDeployment>(move |change| {
        if change.gone {
            measured.forget(&change.key.namespace, &change.key.name);
        }
    });
    let in_place = Arc::clone(&deployments);
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

    // The result of an in-place update may reach this process with the Machine before it does with the Node.
    let (updating, known) = (Arc::clone(&queue), Arc::clone(&targets));
    let (all_machines, all_sets) = (builder.objects::<Machine>(), builder.objects::<MachineSet>());
    targets.on_node_change(move |target, change| {
        // A Node that this process learns of after its Machine gets its annotation and taint now.
        let has_come = change.new.is_some() && change.old.is_none();
        if !has_come && !is_about_update(change) {
            return;
        }
        let node = NodeKey::new(&target.id, &change.key.name);
        for machine in machine::of_node(&all_machines.cache, &known, &node) {
            let Some(of_machine) = owner::controller_of(&machine.metadata) else { continue };
            let set = all_sets.cache.get(&Key::beside(&machine.metadata, &of_machine.name));
            if let Some(of_set) = set.as_ref().and_then(|set| owner::controller_of(&set.metadata)) {
                let key = Key::beside(&machine.metadata, &of_set.name);
                let deployment = in_place.cache.get(&key);
                if deployment.is_some_and(|it| has_come || is_updated_in_place(&it)) {
                    updating.add(key);
                }
            }
        }
    });

    let (trusting, all) = (Arc::clone(&queue), builder.objects::<MachineDeployment>());
    targets.on_trust_change(move |_, _| {
        let updated = all.cache.all().into_iter().filter(|it| is_updated_in_place(it));
        updated.for_each(|deployment| trusting.add(Key::of(&deployment.metadata)));
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

fn is_updated_in_place(deployment: &MachineDeployment) -> bool {
    deployment.spec.strategy.kind() == Some(StrategyType::InPlaceUpdate)
}

/// A label of a Node's in-place update changed.
fn is_about_update(change: &Change<Node>) -> bool {
    const LABELS: [&str; 3] = [labels::CANDIDATE_FOR_UPDATE, labels::SELECTED_FOR_UPDATE, labels::UPDATE_RESULT];
    let of = |node: Option<&Arc<Node>>| {
        let labels = node?.metadata.labels.clone().unwrap_or_default();
        Some(LABELS.map(|label| labels.get(label).cloned()))
    };
    change.new.is_some() && of(change.old.as_ref()) != of(change.new.as_ref())
}

fn selecting<'a>(deployments: &Cache<MachineDeployment>, set: &'a MachineSet) -> impl Iterator<Item = Key> + use<'a> {
    let selects = move |deployment: &Arc<MachineDeployment>| {
        let selector = Selector::parse(deployment.spec.selector.as_ref());
        deployment.metadata.namespace == set.metadata.namespace
            && selector.is_ok_and(|selector| selector.matches(set.metadata.labels.as_ref()))
    };
    deployments.all().into_iter().filter(selects).map(|deployment| Key::of(&deployment.metadata))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::it_came(None, Some(json!({})), true)]
    #[case::the_result(Some(json!({})), Some(json!({ labels::UPDATE_RESULT: "failed" })), true)]
    #[case::another_result(Some(json!({ labels::UPDATE_RESULT: "failed" })), Some(json!({ labels::UPDATE_RESULT: "successful" })), true)]
    #[case::a_user_selects_it(Some(json!({})), Some(json!({ labels::SELECTED_FOR_UPDATE: "true" })), true)]
    #[case::another_label(Some(json!({})), Some(json!({ "zone": "a" })), false)]
    #[case::it_is_gone(Some(json!({})), None, false)]
    fn the_labels_of_an_in_place_update_concern_the_deployment(
        #[case] old: Option<Value>,
        #[case] new: Option<Value>,
        #[case] expected: bool,
    ) {
        let node = |labels: Value| -> Arc<Node> {
            serde_json::from_value(json!({ "metadata": { "name": "n", "labels": labels } })).unwrap()
        };
        let (old, new) = (old.map(node), new.map(node));
        let gone = new.is_none();
        let key = Key::new("", "n");
        let change = Change { key, meta: Default::default(), old, new, gone, unreadable: None };
        assert_eq!(is_about_update(&change), expected);
    }
}
