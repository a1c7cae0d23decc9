use std::sync::Arc;

use super::apply::MachineClasses;
use crate::{
    api::machine::{Machine, MachineClass},
    controllers::{self, Kind, Settings, secret::MetadataOfSecret},
    driver::ProblemsHook,
    runtime::{
        cache::{Change, Key},
        cell::Builder,
        enqueue::Enqueue,
        queue::{Pacing, Queue},
    },
};

pub(crate) const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

const WORKERS: usize = 16;

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let classes = Arc::new(MachineClasses {
        classes: builder.objects(),
        machines: builder.objects(),
        secrets: builder.objects(),
        drivers: Arc::clone(&settings.drivers),
        events: builder.config().events.with_component(controllers::MACHINES.lease),
    });
    let queue = Queue::new("machineclass", Pacing::OF_OWNERS);
    builder.controller::<MachineClass, _>(&classes, &queue, &Arc::default(), WORKERS, |_| true);

    // A driver that is another process validates a class in its own time.
    let validated = Arc::downgrade(&queue);
    let hook: ProblemsHook = Arc::new(move |class| {
        if let Some(queue) = validated.upgrade() {
            queue.add(Key::of(&class.metadata));
        }
    });
    settings.drivers.on_problems(&hook);

    let enqueue = Enqueue::new(&classes, &queue);
    builder.on_change(enqueue.on(class_of));
    builder.on_change(enqueue.on(naming_secret));
}

/// The class of a Machine, and the one that it had before.
fn class_of<C>(_: &C, change: &Change<Machine>) -> Vec<Key> {
    let class = |machine: &Arc<Machine>| machine.spec.class.name.clone();
    let (old, new) = (change.old.as_ref().map(class), change.new.as_ref().map(class));
    if old == new {
        return Vec::new();
    }
    old.into_iter().chain(new).map(|name| Key::new(&change.key.namespace, name)).collect()
}

fn naming_secret(caches: &MachineClasses, change: &Change<MetadataOfSecret>) -> Vec<Key> {
    super::naming(&caches.classes.cache, &change.key).map(|class| Key::of(&class.metadata)).collect()
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
        let keys = class_of(&(), &Change::between(old.map(machine), new.map(machine)));
        assert_eq!(keys.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }
}
