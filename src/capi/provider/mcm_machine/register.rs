use std::sync::Arc;

use super::{
    Action, Session, Snapshot,
    apply::{self, MCMMachines},
    cache::{BY_BOOTSTRAP, BY_CLUSTER},
    plan,
};
use crate::{
    api::machine::{self as native, MachineClass},
    capi::{
        object::apply::read,
        provider::{
            observe::cluster_name,
            settings::{COMPONENT, ROLE_NAME, Settings},
        },
        types::{Cluster, INFRASTRUCTURE_GROUP, MCMCluster, MCMMachine, Machine},
    },
    controllers::secret::MetadataOfSecret,
    plan::{Plan, Step},
    runtime::{
        cache::Key,
        cell::{Builder, Kind},
        objects::Objects,
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, Turn, UnresolvedWrite},
        worker::ReconcileError,
    },
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

impl Reconciler for MCMMachines {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = ();
    type Session = Session;

    fn observe(&self, key: &Key, (): &(), session: &Session) -> Option<Snapshot> {
        self.snapshot(key, *session)
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<Action> {
        plan::plan(snapshot)
    }

    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        apply::apply(self, &snapshot, steps, turn).await
    }

    async fn resolve(&self, key: &Key, write: &UnresolvedWrite) -> Result<(), ReconcileError> {
        match write.kind.as_str() {
            "MCMMachine" => drop(read(&self.objects, key).await?),
            "MachineClass" => drop(read(&self.classes, key).await?),
            _ => drop(read(&self.natives, key).await?),
        }
        Ok(())
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus(_))
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let objects = builder.objects::<MCMMachine>();
    let reconciler = MCMMachines {
        objects: Arc::clone(&objects),
        machines: builder.objects(),
        clusters: builder.objects(),
        infrastructures: builder.objects(),
        natives: builder.objects(),
        classes: builder.objects(),
        secrets: builder.objects(),
        managers: builder.shared(),
        watch_filter: settings.watch_filter.clone(),
        events: builder.config().events.with_component(COMPONENT),
        clock: Arc::clone(&builder.config().shared.clock),
    };
    let (machines, managers) = (Arc::clone(&reconciler.machines), Arc::clone(&reconciler.managers));
    let queue = Queue::new("mcmmachine", Pacing::default());
    builder.controller::<MCMMachine, _>(reconciler, &queue, &Arc::default(), settings.concurrency, |_| true);

    let owned = Arc::clone(&queue);
    builder.on_change::<Machine>(move |change| {
        for machine in change.old.iter().chain(&change.new) {
            infrastructure_of(machine).into_iter().for_each(|key| owned.add(key));
        }
    });
    let (all, beside) = (Arc::clone(&objects), Arc::clone(&queue));
    managers.on_change(move || keys(&all.cache.all()).for_each(|key| beside.add(key)));
    let (all, native) = (Arc::clone(&objects), Arc::clone(&queue));
    builder.on_change::<native::Machine>(move |change| {
        native.add(change.key.clone());
        // Its VM, or its name, is free for other objects.
        if change.gone {
            keys(&waiting_in(&all, &change.key.namespace)).for_each(|key| native.add(key));
        }
    });
    let (all, of_cluster) = (Arc::clone(&objects), Arc::clone(&queue));
    builder.on_change::<Cluster>(move |change| {
        keys(&all.cache.by(BY_CLUSTER, &change.key)).for_each(|key| of_cluster.add(key));
    });
    let (all, of_infrastructure) = (Arc::clone(&objects), Arc::clone(&queue));
    builder.on_change::<MCMCluster>(move |change| {
        if let Some(name) = cluster_name(&change.meta) {
            let cluster = Key::new(&change.key.namespace, name);
            keys(&all.cache.by(BY_CLUSTER, &cluster)).for_each(|key| of_infrastructure.add(key));
        }
    });
    // A class may be that of a zone, so every object that has no VM yet may need it.
    let (all, of_class) = (Arc::clone(&objects), Arc::clone(&queue));
    builder.on_change::<MachineClass>(move |change| {
        keys(&waiting_in(&all, &change.key.namespace)).for_each(|key| of_class.add(key));
    });
    builder.on_change::<MetadataOfSecret>(move |change| {
        for machine in machines.cache.by(BY_BOOTSTRAP, &change.key) {
            infrastructure_of(&machine).into_iter().for_each(|key| queue.add(key));
        }
    });
}

/// The objects of a namespace that have no VM yet, or are being deleted.
fn waiting_in(objects: &Objects<MCMMachine>, namespace: &str) -> Vec<Arc<MCMMachine>> {
    let is_waiting =
        |object: &Arc<MCMMachine>| object.metadata.namespace.as_deref() == Some(namespace) && !is_provisioned(object);
    objects.cache.all().into_iter().filter(is_waiting).collect()
}

fn is_provisioned(object: &MCMMachine) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| status.initialization.provisioned == Some(true))
        && object.metadata.deletion_timestamp.is_none()
}

fn keys(objects: &[Arc<MCMMachine>]) -> impl Iterator<Item = Key> {
    objects.iter().map(|object| Key::of(&object.metadata))
}

/// The MCMMachine of a Machine.
fn infrastructure_of(machine: &Machine) -> Option<Key> {
    let reference = &machine.spec.infrastructure_ref;
    let is_ours = reference.kind == "MCMMachine" && reference.api_group == INFRASTRUCTURE_GROUP;
    is_ours.then(|| Key::beside(&machine.metadata, &reference.name))
}
