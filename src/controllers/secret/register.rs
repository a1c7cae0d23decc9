use std::{sync::Arc, time::Duration};

use super::{MetadataOfSecret, apply::ClassSecrets};
use mcm_api::{labels, machine::MachineClass};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::CellBuilder,
    enqueue::EnqueueMapper,
    queue::{QueuePacing, WorkQueue},
};
use {
    crate as controllers,
    crate::{Kind, Settings, machine_class},
};

pub const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

/// Changes of classes and Secrets come in bursts when many are applied.
const PACING: QueuePacing = QueuePacing { gather: Duration::from_millis(50), per_cost: 0 };
const WORKERS: usize = 16;

fn register(builder: &mut CellBuilder<'_>, _: &Settings) {
    let secrets = Arc::new(ClassSecrets { secrets: builder.objects(), classes: builder.objects() });
    let queue = WorkQueue::new("secret", PACING);
    let known = Arc::clone(&secrets);
    builder.controller(&secrets, &queue, &Arc::default(), WORKERS, move |change| is_of_class(&known, change));
    let enqueue = EnqueueMapper::new(&secrets, &queue);
    builder.on_change(enqueue.on(secrets_of));
}

/// A class names the Secret, or did so: it has the finalizer.
fn is_of_class(caches: &ClassSecrets, change: &ObjectChange<MetadataOfSecret>) -> bool {
    let is_held = change.meta.finalizers.iter().flatten().any(|finalizer| finalizer == labels::SECRET_FINALIZER);
    is_held || machine_class::naming(&caches.classes.cache, &change.key).next().is_some()
}

/// The Secrets that a class names, or named before.
fn secrets_of<C>(_: &C, change: &ObjectChange<MachineClass>) -> Vec<Key> {
    let names = change.old.iter().chain(&change.new).flat_map(|class| machine_class::secret_names(class));
    names.map(|name| Key::new(&change.key.namespace, name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(secret: &str) -> MachineClass {
        serde_json::from_value(
            json!({ "metadata": { "name": "c", "namespace": "ns" }, "secretRef": { "name": secret } }),
        )
        .unwrap()
    }

    #[test]
    fn a_class_concerns_the_secrets_that_it_names_and_named() {
        let keys = secrets_of(&(), &ObjectChange::between(Some(class("a")), Some(class("b"))));
        assert_eq!(keys, [Key::new("ns", "a"), Key::new("ns", "b")]);
        assert_eq!(secrets_of(&(), &ObjectChange::between(Some(class("a")), None)), [Key::new("ns", "a")]);
    }
}
