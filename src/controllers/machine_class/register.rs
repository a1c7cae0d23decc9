use std::sync::Arc;

use kube::ResourceExt;

use super::apply::MachineClasses;
use mcm_api::{
    labels,
    machine::{Machine, MachineClass},
};
use mcm_driver::ProblemsHook;
use mcm_runtime::{
    cache::{Key, ObjectCache, ObjectChange},
    cell::CellBuilder,
    enqueue::EnqueueMapper,
    queue::{QueuePacing, WorkQueue},
};
use {
    crate as controllers,
    crate::{Kind, Settings, machine, secret::MetadataOfSecret},
};

pub const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

const WORKERS: usize = 16;

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let classes = Arc::new(MachineClasses {
        classes: builder.objects(),
        machines: builder.objects(),
        secrets: builder.objects(),
        drivers: Arc::clone(&settings.drivers),
        events: builder.config().events.with_component(controllers::MACHINES.lease),
    });
    let queue = WorkQueue::new("machineclass", QueuePacing::OF_OWNERS);
    builder.controller::<MachineClass, _>(&classes, &queue, &Arc::default(), WORKERS, |_| true);

    // A driver that is another process validates a class in its own time.
    let validated = Arc::downgrade(&queue);
    let hook: ProblemsHook = Arc::new(move |class| {
        if let Some(queue) = validated.upgrade() {
            queue.add(Key::from_meta(&class.metadata));
        }
    });
    settings.drivers.on_problems(&hook);

    let enqueue = EnqueueMapper::new(&classes, &queue);
    builder.on_change(enqueue.on(class_of));
    builder.on_change(enqueue.on(naming_secret));
}

/// The classes of a Machine whose finalizer may have to change.
fn class_of(caches: &MachineClasses, change: &ObjectChange<Machine>) -> Vec<Key> {
    let (classes, machines) = (&caches.classes.cache, &caches.machines.cache);
    classes_of(change).into_iter().filter(|class| !is_held(classes, machines, class)).collect()
}

/// The class has its finalizer and a Machine, and is not being deleted: it does not depend on the number of its Machines.
fn is_held(classes: &ObjectCache<MachineClass>, machines: &ObjectCache<Machine>, key: &Key) -> bool {
    let Some(class) = classes.get(key) else { return false };
    let has_finalizer = class.finalizers().iter().any(|finalizer| finalizer == labels::FINALIZER);
    has_finalizer
        && class.metadata.deletion_timestamp.is_none()
        && machine::naming_class(machines, key).next().is_some()
}

/// The class of a Machine, and its class before the change.
fn classes_of(change: &ObjectChange<Machine>) -> Vec<Key> {
    let class = |machine: &Arc<Machine>| machine.spec.class.name.clone();
    let (old, new) = (change.old.as_ref().map(class), change.new.as_ref().map(class));
    if old == new {
        return Vec::new();
    }
    old.into_iter().chain(new).map(|name| Key::new(&change.key.namespace, name)).collect()
}

fn naming_secret(caches: &MachineClasses, change: &ObjectChange<MetadataOfSecret>) -> Vec<Key> {
    super::naming(&caches.classes.cache, &change.key).map(|class| Key::from_meta(&class.metadata)).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn machine(class: &str) -> Machine {
        serde_json::from_value(
            json!({ "metadata": { "name": "m", "namespace": "ns" }, "spec": { "class": { "name": class } } }),
        )
        .unwrap()
    }

    #[rstest]
    #[case::it_is_new(None, Some("a"), &["ns/a"])]
    #[case::it_is_gone(Some("a"), None, &["ns/a"])]
    #[case::it_has_another_class(Some("a"), Some("b"), &["ns/a", "ns/b"])]
    #[case::something_else_changed(Some("a"), Some("a"), &[])]
    fn a_machine_concerns_its_classes_when_they_change(
        #[case] old: Option<&str>,
        #[case] new: Option<&str>,
        #[case] expected: &[&str],
    ) {
        let keys = classes_of(&ObjectChange::between(old.map(machine), new.map(machine)));
        assert_eq!(keys.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[rstest]
    #[case::another_machine(json!({ "finalizers": [labels::FINALIZER] }), &["m"], true)]
    #[case::without_a_finalizer(json!({}), &["m"], false)]
    #[case::its_last_machine_is_gone(json!({ "finalizers": [labels::FINALIZER] }), &[], false)]
    #[case::it_is_being_deleted(
        json!({ "finalizers": [labels::FINALIZER], "deletionTimestamp": "2026-11-27T00:00:00Z" }), &["m"], false
    )]
    fn a_class_that_is_held_is_not_reconciled_for_each_machine(
        #[case] metadata: serde_json::Value,
        #[case] users: &[&str],
        #[case] expected: bool,
    ) {
        let (classes, machines) = (crate::machine_class::CACHE.empty(), crate::machine::CACHE.empty());
        let mut class = json!({ "metadata": { "name": "c", "namespace": "ns", "uid": "c", "resourceVersion": "1" } });
        crate::testing::merge(&mut class, &json!({ "metadata": metadata }));
        classes.wrote(serde_json::from_value(class).unwrap());
        for name in users {
            let mut user = machine("c");
            (user.metadata.name, user.metadata.uid) = (Some((*name).to_owned()), Some((*name).to_owned()));
            machines.wrote(user);
        }
        assert_eq!(is_held(&classes, &machines, &Key::new("ns", "c")), expected);
    }
}
