use std::sync::Arc;

use super::{Action, BY_CONTROLLER, InFlightWrites, MachineSets, Snapshot, apply::Memory, lint::lint, metrics, plan};
use crate::{
    api::{
        machine::{Machine, MachineDeployment, MachineSet},
        selector::Selector,
    },
    controllers::{
        self, Kind, Settings,
        object::{self, owner},
    },
    plan::{Plan, Step},
    runtime::{
        cache::{Cache, Change, Key},
        cell::Builder,
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, Turn, UnresolvedWrite},
        worker::ReconcileError,
    },
};

pub(crate) const KIND: Kind = Kind { role: controllers::SETS.name, register };

const WORKERS: usize = 64;

impl Reconciler for MachineSets {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = Memory;
    type Session = ();

    fn observe(&self, key: &Key, memory: &Memory, (): &()) -> Option<Snapshot> {
        self.snapshot(key, memory.failure.clone(), self.clock.now(), (self.entropy)())
    }

    fn is_unreadable(&self, key: &Key) -> bool {
        self.sets.cache.is_unreadable(key)
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<Action> {
        plan(snapshot)
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
        self.execute(&snapshot, steps, turn).await?;
        turn.remember(|memory| memory.failure = None);
        Ok(Next::Plan)
    }

    async fn resolve(&self, key: &Key, write: &UnresolvedWrite) -> Result<(), ReconcileError> {
        let read = self.machines.read_again(&write.key).await;
        read.map_err(|source| ReconcileError::read(format!("machine {}", write.key), source))?;
        if let Some(set) = self.sets.cache.get(key) {
            self.in_flight.settle(&set, &write.key.name);
        }
        Ok(())
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus(_))
    }

    /// Clears the failure once there is nothing left to retry.
    fn settle(memory: &mut Memory) -> bool {
        memory.failure.take().is_some()
    }
}

fn register(builder: &mut Builder<'_>, _: &Settings) {
    let config = builder.config();
    let (events, shared) = (config.events.clone(), config.shared.clone());
    let (sets, in_flight) = (builder.objects::<MachineSet>(), builder.shared::<InFlightWrites>());
    let holds = object::holds(builder);
    let reconciler = MachineSets {
        sets: Arc::clone(&sets),
        machines: builder.objects(),
        deployments: Arc::clone(&builder.objects::<MachineDeployment>().cache),
        classes: builder.objects(),
        secrets: builder.objects(),
        in_flight: Arc::clone(&in_flight),
        holds: Arc::clone(&holds),
        events,
        clock: shared.clock,
        measured: shared.metrics.of(),
        entropy: shared.entropy,
    };
    let queue = Queue::new("machineset", Pacing::OF_OWNERS);
    builder.controller::<MachineSet, _>(reconciler, &queue, &Arc::default(), WORKERS, |_| true);
    let held = Arc::clone(&queue);
    holds.on_change(move |key| held.add(key.clone()));
    builder.export::<MachineSet>(|sets, out| metrics::machine_sets(sets, out));
    builder.on_change::<MachineSet>(move |change| {
        if change.gone {
            in_flight.forget(change.meta.uid.as_deref().unwrap_or_default());
        }
    });

    let (owned, all) = (Arc::clone(&queue), Arc::clone(&sets));
    builder.on_change::<Machine>(move |change| {
        for set in owners_of(change) {
            owned.add(set);
        }
        let orphan = change.new.as_ref().filter(|machine| owner::controller_of(&machine.metadata).is_none());
        for set in orphan.into_iter().flat_map(|machine| selecting(&all.cache, machine)) {
            owned.add(set);
        }
    });

    // The deployment may have to release a set that it owns, or adopt one that it selects.
    builder.on_change::<MachineDeployment>(move |change| {
        for set in sets.cache.by(BY_CONTROLLER, change.meta.uid.as_deref().unwrap_or_default()) {
            queue.add(Key::of(&set.metadata));
        }
    });
}

/// The sets that control a Machine, or did so before the change.
fn owners_of(change: &Change<Machine>) -> impl Iterator<Item = Key> + '_ {
    let old = change.old.as_ref().and_then(|old| owner::controller_of(&old.metadata));
    let new = owner::controller_of(&change.meta);
    let old = old.filter(|old| new.is_none_or(|new| new.uid != old.uid));
    let sets = old.into_iter().chain(new).filter(|reference| reference.kind == "MachineSet");
    sets.map(|reference| Key::new(&change.key.namespace, &reference.name))
}

fn selecting<'a>(sets: &Cache<MachineSet>, machine: &'a Machine) -> impl Iterator<Item = Key> + use<'a> {
    let selects = move |set: &Arc<MachineSet>| {
        let selector = Selector::parse(set.spec.selector.as_ref());
        set.metadata.namespace == machine.metadata.namespace
            && selector.is_ok_and(|selector| selector.matches(machine.metadata.labels.as_ref()))
    };
    sets.all().into_iter().filter(selects).map(|set| Key::of(&set.metadata))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::cell::Kept;

    #[test]
    fn a_machine_without_a_set_wakes_every_set_of_its_namespace_that_selects_it() {
        let sets = MachineSet::cache();
        for (name, namespace, selector) in [
            ("a", "ns", json!({ "matchLabels": { "pool": "x" } })),
            ("b", "ns", json!({ "matchExpressions": [{ "key": "pool", "operator": "Exists" }] })),
            ("c", "ns", json!({ "matchLabels": { "pool": "y" } })),
            ("d", "elsewhere", json!({ "matchLabels": { "pool": "x" } })),
            ("e", "ns", Value::Null),
        ] {
            let metadata = json!({ "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1" });
            let set = json!({ "metadata": metadata, "spec": { "selector": selector, "template": {} } });
            sets.wrote(serde_json::from_value(set).unwrap());
        }
        let orphan = json!({ "metadata": { "name": "m", "namespace": "ns", "labels": { "pool": "x" } }, "spec": {} });
        let orphan: Machine = serde_json::from_value(orphan).unwrap();
        let mut woken: Vec<String> = selecting(&sets, &orphan).map(|key| key.name).collect();
        woken.sort_unstable();
        assert_eq!(woken, ["a", "b"]);
    }
}
