use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    MetadataOfSecret, Snapshot,
    apply::{self, ClassSecrets},
    observe, plan,
};
use crate::{
    api::{labels, machine::MachineClass},
    controllers::{self, Kind, Settings, machine_class},
    plan::{Plan, Step},
    runtime::{
        cache::Key,
        cell::Builder,
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, States, Turn},
        worker::ReconcileError,
    },
};

pub(crate) const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

/// Changes of classes and Secrets come in bursts when many are applied.
const PACING: Pacing = Pacing { gather: Duration::from_millis(50), per_cost: 0 };
const WORKERS: usize = 16;

impl Reconciler for ClassSecrets {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Value;
    type Memory = ();
    type Session = ();

    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        observe::observe(key, self)
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<Value> {
        plan(snapshot)
    }

    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Value>>,
        _: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        apply::apply(&snapshot, steps, self).await
    }
}

fn register(builder: &mut Builder<'_>, _: &Settings) {
    let (secrets, classes) = (builder.objects::<MetadataOfSecret>(), builder.objects::<MachineClass>());
    let queue = Queue::new("secret", PACING);

    let (named_by, known) = (Arc::clone(&classes), Arc::clone(&queue));
    let reconciler = ClassSecrets { secrets, classes };
    let is_ours = move |change: &crate::runtime::cache::Change<MetadataOfSecret>| {
        let is_held = change.meta.finalizers.iter().flatten().any(|finalizer| finalizer == labels::SECRET_FINALIZER);
        is_held || machine_class::naming(&named_by.cache, &change.key).next().is_some()
    };
    builder.controller(reconciler, &queue, &Arc::<States<ClassSecrets>>::default(), WORKERS, is_ours);

    builder.on_change::<MachineClass>(move |change| {
        let classes = change.old.iter().chain(&change.new);
        for secret in classes.flat_map(|class| machine_class::secret_names(class)) {
            known.add(Key::new(&change.key.namespace, secret));
        }
    });
}
