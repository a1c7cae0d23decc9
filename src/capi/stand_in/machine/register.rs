use std::sync::Arc;

use super::{
    Action, Session, Snapshot,
    apply::{self, Machines},
    plan,
};
use crate::{
    api::machine::{self as native, MachineClass},
    capi::{
        object::apply::read,
        stand_in::{
            observe::{Deployments, Ground, add_those_of, keys},
            settings::{ROLE_NAME, Settings},
        },
        types::{Cluster, MCMMigration, Machine, MachineDeployment, MachineSet},
    },
    controllers::{machine as machines, machine_set},
    plan::{Plan, Step},
    runtime::{
        cache::Key,
        cell::{Builder, Kind},
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, Turn, UnresolvedWrite},
        worker::ReconcileError,
    },
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

impl Reconciler for Machines {
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
        _: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        apply::apply(self, steps, turn).await
    }

    async fn resolve(&self, key: &Key, _: &UnresolvedWrite) -> Result<(), ReconcileError> {
        read(&self.mirrors, key).await?;
        read(&self.natives, key).await.map(drop)
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus { .. })
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let (mirrors, natives) = (builder.objects::<Machine>(), builder.objects::<native::Machine>());
    let ground = Ground::new(builder);
    let reconciler = Machines {
        mirrors: Arc::clone(&mirrors),
        natives: Arc::clone(&natives),
        sets: builder.objects(),
        native_sets: builder.objects(),
        deployments: Arc::new(Deployments::new(builder)),
        classes: builder.objects(),
        ground: ground.clone(),
        clock: Arc::clone(&builder.config().shared.clock),
    };
    let (native_sets, deployments) = (Arc::clone(&reconciler.native_sets), Arc::clone(&reconciler.deployments));
    let queue = Queue::new("standinmachine", Pacing::default());
    builder.reconciler(reconciler, &queue, &Arc::default(), settings.concurrency);
    builder.report_unreadable::<Machine>();

    let of_mirror = Arc::clone(&queue);
    builder.on_change::<Machine>(move |change| of_mirror.add(change.key.clone()));
    let of_native = Arc::clone(&queue);
    builder.on_change::<native::Machine>(move |change| of_native.add(change.key.clone()));
    let (all, of_class) = (Arc::clone(&natives), Arc::clone(&queue));
    builder.on_change::<MachineClass>(move |change| {
        machines::naming_class(&all.cache, &change.key).for_each(|one| of_class.add(Key::of(&one.metadata)));
    });

    // All machines of the set of a name, and of the deployment of a name.
    let (all, sets, target) = (Arc::clone(&natives), Arc::clone(&native_sets), Arc::clone(&queue));
    let of_set = Arc::new(move |set: &Key| {
        let uid = sets.cache.get(set).and_then(|one| one.metadata.uid.clone());
        let machines = uid.map(|uid| all.cache.by(machines::BY_CONTROLLER, &uid)).unwrap_or_default();
        machines.iter().for_each(|machine| target.add(Key::of(&machine.metadata)));
    });
    let below = Arc::clone(&of_set);
    let of_deployment = Arc::new(move |deployment: &Key| {
        let uid = deployments.native_uid(deployment);
        let sets = uid.map(|uid| native_sets.cache.by(machine_set::BY_CONTROLLER, &uid)).unwrap_or_default();
        sets.iter().for_each(|set| below(&Key::of(&set.metadata)));
    });
    builder.on_change::<MachineSet>(move |change| of_set(&change.key));
    let changed = Arc::clone(&of_deployment);
    builder.on_change::<MachineDeployment>(move |change| {
        let shown = |one: &Arc<MachineDeployment>| {
            let meta = one.metadata.clone();
            (one.spec.clone(), meta.finalizers, meta.annotations, meta.deletion_timestamp)
        };
        if change.old.as_ref().map(shown) != change.new.as_ref().map(shown) {
            changed(&change.key);
        }
    });
    builder.on_change::<MCMMigration>(move |change| of_deployment(&change.key));

    let (all, unpaused) = (Arc::clone(&natives), Arc::clone(&queue));
    builder.on_change::<Cluster>(move |change| {
        let is_paused = |one: &Arc<Cluster>| one.spec.paused;
        if change.old.as_ref().map(is_paused) != change.new.as_ref().map(is_paused) {
            add_those_of(Some(&change.key.namespace), keys(&all), &unpaused);
        }
    });
    ground.on_change(builder, move |namespace| {
        add_those_of(namespace, keys(&natives).chain(keys(&mirrors)), &queue);
    });
}
