use std::sync::Arc;

use super::{BY_CONTROLLER, MachineSetReconciler, metrics};
use mcm_api::{
    machine::{Machine, MachineDeployment, MachineSet},
    selector::Selector,
};
use mcm_runtime::{
    cache::{Key, ObjectCache, ObjectChange},
    cell::CellBuilder,
    enqueue::{EnqueueMapper, itself},
    queue::{QueuePacing, WorkQueue},
};
use {
    crate as controllers,
    crate::{
        Kind, Settings,
        object::{self, owner},
    },
};

pub const KIND: Kind = Kind { role: controllers::SETS.name, register };

const WORKERS: usize = 64;

fn register(builder: &mut CellBuilder<'_>, _: &Settings) {
    let sets = Arc::new(MachineSetReconciler::new(builder));
    let queue = WorkQueue::new("machineset", QueuePacing::OF_OWNERS);
    builder.controller::<MachineSet, _>(&sets, &queue, &Arc::default(), WORKERS, |_| true);
    builder.export::<MachineSet>(|sets, out| metrics::machine_sets(sets, out));
    let in_flight = Arc::clone(&sets.in_flight);
    builder.on_change::<MachineSet>(move |change| {
        if change.gone {
            in_flight.forget(change.meta.uid.as_deref().unwrap_or_default());
        }
    });
    let enqueue = EnqueueMapper::new(&sets, &queue);
    sets.holds.on_change(enqueue.on(itself));
    builder.on_change(enqueue.on(of_machine));
    builder.on_change(enqueue.on(of_deployment));
}

impl MachineSetReconciler {
    fn new(builder: &mut CellBuilder<'_>) -> Self {
        let (sets, machines, classes, secrets) =
            (builder.objects(), builder.objects(), builder.objects(), builder.objects());
        let deployments = Arc::clone(&builder.objects::<MachineDeployment>().cache);
        let (in_flight, holds) = (builder.shared(), object::holds(builder));
        let config = builder.config();
        let shared = config.shared.clone();
        Self {
            sets,
            machines,
            deployments,
            classes,
            secrets,
            in_flight,
            recent: Arc::default(),
            holds,
            events: config.events.clone(),
            clock: shared.clock,
            measured: shared.metrics.collector(),
            entropy: shared.entropy,
        }
    }
}

/// The sets that control a Machine, or did so before. One without a controller concerns every set that selects it.
fn of_machine(caches: &MachineSetReconciler, change: &ObjectChange<Machine>) -> Vec<Key> {
    let orphan = change.new.as_ref().filter(|machine| owner::controller_of(&machine.metadata).is_none());
    let selecting = orphan.into_iter().flat_map(|machine| selecting(&caches.sets.cache, machine));
    owners_of(change).chain(selecting).collect()
}

/// The sets of a deployment: it may have to release one that it owns, or adopt one that it selects.
fn of_deployment(caches: &MachineSetReconciler, change: &ObjectChange<MachineDeployment>) -> Vec<Key> {
    let sets = caches.sets.cache.by(BY_CONTROLLER, change.meta.uid.as_deref().unwrap_or_default());
    sets.iter().map(|set| Key::from_meta(&set.metadata)).collect()
}

/// The sets that control a Machine, or did so before the change.
fn owners_of(change: &ObjectChange<Machine>) -> impl Iterator<Item = Key> + '_ {
    let old = change.old.as_ref().and_then(|old| owner::controller_of(&old.metadata));
    let new = owner::controller_of(&change.meta);
    let old = old.filter(|old| new.is_none_or(|new| new.uid != old.uid));
    let sets = old.into_iter().chain(new).filter(|reference| reference.kind == "MachineSet");
    sets.map(|reference| Key::new(&change.key.namespace, &reference.name))
}

fn selecting<'a>(sets: &ObjectCache<MachineSet>, machine: &'a Machine) -> impl Iterator<Item = Key> + use<'a> {
    let selects = move |set: &Arc<MachineSet>| {
        let selector = Selector::parse(set.spec.selector.as_ref());
        set.metadata.namespace == machine.metadata.namespace
            && selector.is_ok_and(|selector| selector.matches(machine.metadata.labels.as_ref()))
    };
    sets.all().into_iter().filter(selects).map(|set| Key::from_meta(&set.metadata))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_machine_without_a_set_wakes_every_set_of_its_namespace_that_selects_it() {
        let sets = crate::machine_set::CACHE.empty();
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
