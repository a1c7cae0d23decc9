use std::sync::Arc;

use super::{Action, Snapshot, apply, observe, plan, secret_refs};
use crate::{
    api::machine::{Machine, MachineClass},
    controllers::{self, Kind, Settings, object::prune, secret::MetadataOfSecret},
    driver::{Catalogue, ProblemsHook},
    plan::{Plan, Step},
    runtime::{
        cache::{Cache, Cached, Change, Index, Key},
        cell::{Builder, Kept},
        events::Events,
        objects::Objects,
        queue::{Pacing, Queue},
        reconcile::{self, Next, States, Turn},
        worker::ReconcileError,
    },
};

pub(crate) const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

const WORKERS: usize = 16;

/// Index: the Secrets that a class refers to.
const BY_SECRET: &Index<MachineClass, Key> = &Index::new("secret", |class| {
    secret_refs(class).map(|secret| Key::beside(&class.metadata, &secret.name)).collect()
});

impl Kept for MachineClass {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[BY_SECRET], prune)
    }
}

/// The classes that name a Secret.
pub(crate) fn naming(classes: &Cache<MachineClass>, secret: &Key) -> impl Iterator<Item = Arc<MachineClass>> + use<> {
    classes.by(BY_SECRET, secret).into_iter()
}

/// Whether an object certainly does not exist.
pub(crate) fn is_missing<K: Cached>(cache: &Cache<K>, key: &Key) -> bool {
    cache.is_synced() && !cache.is_unreadable(key) && cache.get(key).is_none()
}

/// Whether a class, or a Secret that it names, certainly does not exist, so no driver can be called for it.
pub(crate) fn is_unusable(classes: &Cache<MachineClass>, secrets: &Cache<MetadataOfSecret>, class: &Key) -> bool {
    let Some(found) = classes.get(class) else { return is_missing(classes, class) };
    secret_refs(&found).any(|reference| {
        let is_elsewhere = !reference.namespace.is_empty() && reference.namespace != class.namespace;
        is_elsewhere || is_missing(secrets, &Key::new(&class.namespace, &reference.name))
    })
}

pub(crate) struct Reconciler {
    pub(super) classes: Arc<Objects<MachineClass>>,
    pub(super) machines: Arc<Objects<Machine>>,
    pub(super) secrets: Arc<Objects<MetadataOfSecret>>,
    pub(super) drivers: Arc<Catalogue>,
    pub(super) events: Events,
}

impl reconcile::Reconciler for Reconciler {
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
    let reconciler = Reconciler {
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
        &Arc::<States<Reconciler>>::default(),
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
