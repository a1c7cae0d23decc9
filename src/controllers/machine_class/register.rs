use std::sync::Arc;

use super::{
    Action, Snapshot,
    apply::{self, MachineClasses},
    observe, plan,
};
use crate::{
    api::machine::{Machine, MachineClass},
    controllers::{self, Kind, Settings, secret::MetadataOfSecret},
    driver::ProblemsHook,
    plan::{Plan, Step},
    runtime::{
        cache::{Change, Key},
        cell::Builder,
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, States, Turn},
        worker::ReconcileError,
    },
};

pub(crate) const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

const WORKERS: usize = 16;

impl Reconciler for MachineClasses {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = ();
    type Session = ();

    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        observe::observe(key, self)
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<Action> {
        plan(snapshot)
    }

    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        _: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        apply::apply(&snapshot, steps, self).await
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let reconciler = MachineClasses {
        classes: builder.objects::<MachineClass>(),
        machines: builder.objects::<Machine>(),
        secrets: builder.objects::<MetadataOfSecret>(),
        drivers: Arc::clone(&settings.drivers),
        events: builder.config().events.with_component(controllers::MACHINES.lease),
    };
    let queue = Queue::new("machineclass", Pacing::OF_OWNERS);
    let classes = Arc::clone(&reconciler.classes);
    builder.controller(
        reconciler,
        &queue,
        &Arc::<States<MachineClasses>>::default(),
        WORKERS,
        |_: &Change<MachineClass>| true,
    );

    // A driver that is another process validates a class in its own time.
    let validated = Arc::downgrade(&queue);
    let hook: ProblemsHook = Arc::new(move |class| {
        if let Some(queue) = validated.upgrade() {
            queue.add(Key::of(&class.metadata));
        }
    });
    settings.drivers.on_problems(&hook);

    let used = Arc::clone(&queue);
    builder.on_change::<Machine>(move |change| {
        let class = |machine: &Arc<Machine>| machine.spec.class.name.clone();
        let (old, new) = (change.old.as_ref().map(class), change.new.as_ref().map(class));
        if old != new {
            for name in old.into_iter().chain(new) {
                used.add(Key::new(&change.key.namespace, name));
            }
        }
    });

    builder.on_change::<MetadataOfSecret>(move |change| {
        for class in super::naming(&classes.cache, &change.key) {
            queue.add(Key::of(&class.metadata));
        }
    });
}
