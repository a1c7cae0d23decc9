use std::sync::Arc;

use super::{
    Action, Snapshot,
    apply::{self, MachineSets},
    plan,
};
use crate::{
    api::machine as native,
    capi::{
        object::apply::read,
        stand_in::{
            observe::{Deployments, Ground, add_those_of, keys},
            settings::{ROLE_NAME, Settings},
        },
        types::{Cluster, MCMMigration, MachineDeployment, MachineSet},
    },
    controllers::machine_set::BY_CONTROLLER,
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

impl Reconciler for MachineSets {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = ();
    /// A live read showed that the native set does not exist.
    type Session = bool;

    fn observe(&self, key: &Key, (): &(), is_gone: &bool) -> Option<Snapshot> {
        self.snapshot(key, *is_gone)
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
        read(&self.mirrors, key).await.map(drop)
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus { .. })
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let (mirrors, natives) = (builder.objects::<MachineSet>(), builder.objects::<native::MachineSet>());
    let ground = Ground::new(builder);
    let reconciler = MachineSets {
        mirrors: Arc::clone(&mirrors),
        natives: Arc::clone(&natives),
        deployments: Arc::new(Deployments::new(builder)),
        ground: ground.clone(),
        clock: Arc::clone(&builder.config().shared.clock),
    };
    let deployments = Arc::clone(&reconciler.deployments);
    let queue = Queue::new("standinmachineset", Pacing::default());
    builder.reconciler(reconciler, &queue, &Arc::default(), settings.concurrency);
    builder.report_unreadable::<MachineSet>();

    let of_mirror = Arc::clone(&queue);
    builder.on_change::<MachineSet>(move |change| of_mirror.add(change.key.clone()));
    let of_native = Arc::clone(&queue);
    builder.on_change::<native::MachineSet>(move |change| of_native.add(change.key.clone()));

    // All sets of the deployment of a name.
    let (sets, target) = (Arc::clone(&natives), Arc::clone(&queue));
    let of_deployment = Arc::new(move |deployment: &Key| {
        let uid = deployments.native_uid(deployment);
        let sets = uid.map(|uid| sets.cache.by(BY_CONTROLLER, &uid)).unwrap_or_default();
        sets.iter().for_each(|set| target.add(Key::of(&set.metadata)));
    });
    let changed = Arc::clone(&of_deployment);
    builder.on_change::<native::MachineDeployment>(move |change| changed(&change.key));
    let changed = Arc::clone(&of_deployment);
    builder.on_change::<MachineDeployment>(move |change| changed(&change.key));
    let changed = Arc::clone(&of_deployment);
    builder.on_change::<MCMMigration>(move |change| changed(&change.key));
    // The end of a pause; sets are few.
    let (all, unpaused) = (Arc::clone(&natives), Arc::clone(&queue));
    builder.on_change::<Cluster>(move |change| {
        add_those_of(Some(&change.key.namespace), keys(&all), &unpaused);
    });

    ground.on_change(builder, move |namespace| {
        add_those_of(namespace, keys(&natives).chain(keys(&mirrors)), &queue);
    });
}
