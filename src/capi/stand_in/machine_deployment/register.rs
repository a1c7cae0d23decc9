use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    Action, Memory, Session, Snapshot,
    apply::{self, MachineDeployments},
    plan,
};
use crate::{
    api::{
        labels,
        machine::{self as native, MachineClass},
    },
    capi::{
        object::apply::read,
        stand_in::{
            observe::{Ground, add_those_of, keys},
            settings::{ROLE_NAME, Settings},
        },
        types::{Cluster, MCMMachineTemplate, MCMMigration, MachineDeployment},
    },
    controllers::{object::owner, secret::MetadataOfSecret},
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

impl Reconciler for MachineDeployments {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = Memory;
    type Session = Session;

    fn observe(&self, key: &Key, memory: &Memory, session: &Session) -> Option<Snapshot> {
        self.snapshot(key, memory, *session)
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

    async fn resolve(&self, _: &Key, write: &UnresolvedWrite) -> Result<(), ReconcileError> {
        match write.kind.as_str() {
            "MCMMigration" => drop(read(&self.migrations, &write.key).await?),
            "MachineClass" => drop(read(&self.classes, &write.key).await?),
            // The kinds of both sides have one name.
            "MachineDeployment" => {
                read(&self.objects, &write.key).await?;
                read(&self.natives, &write.key).await?;
            }
            // A native Machine or a Secret: the next plan writes it again if that is needed.
            _ => {}
        }
        Ok(())
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus(_))
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let objects = builder.objects::<MachineDeployment>();
    let ground = Ground::new(builder);
    let reconciler = MachineDeployments {
        objects: Arc::clone(&objects),
        migrations: builder.objects(),
        clusters: builder.objects(),
        templates: builder.objects(),
        classes: builder.objects(),
        secrets: builder.objects(),
        natives: builder.objects(),
        native_sets: builder.objects(),
        native_machines: builder.objects(),
        sets: builder.objects(),
        machines: builder.objects(),
        ground: ground.clone(),
        control: builder.config().control.clone(),
        watch_filter: settings.watch_filter.clone(),
        clock: Arc::clone(&builder.config().shared.clock),
    };
    let migrations = Arc::clone(&reconciler.migrations);
    let queue = Queue::new("standinmachinedeployment", Pacing::OF_OWNERS);
    builder.reconciler(reconciler, &queue, &Arc::default(), settings.concurrency);
    builder.report_unreadable::<MachineDeployment>();

    let own = Arc::clone(&queue);
    builder.on_change::<MachineDeployment>(move |change| own.add(change.key.clone()));
    let of_authority = Arc::clone(&queue);
    builder.on_change::<MCMMigration>(move |change| of_authority.add(change.key.clone()));
    let of_native = Arc::clone(&queue);
    builder.on_change::<native::MachineDeployment>(move |change| of_native.add(change.key.clone()));
    let of_set = Arc::clone(&queue);
    builder.on_change::<native::MachineSet>(move |change| {
        if let Some(deployment) = owner::controller_of(&change.meta).filter(|_| change.gone) {
            of_set.add(Key::beside(&change.meta, &deployment.name));
        }
    });
    let of_machine = Arc::clone(&queue);
    builder.on_change::<native::Machine>(move |change| {
        let deployment = change.meta.labels.as_ref().and_then(|all| all.get(labels::DEPLOYMENT_NAME));
        if let Some(deployment) = deployment.filter(|_| change.gone) {
            of_machine.add(Key::beside(&change.meta, deployment));
        }
    });
    around(builder, &queue, &objects);
    ground.on_change(builder, move |namespace| {
        add_those_of(namespace, keys(&objects).chain(keys(&migrations)), &queue);
    });
}

/// The objects that a deployment names. All deployments of the namespace are enqueued, because they are few.
fn around(builder: &mut Builder<'_>, queue: &Arc<Queue<Key>>, objects: &Arc<Objects<MachineDeployment>>) {
    let (all, target) = (Arc::clone(objects), Arc::clone(queue));
    let beside = Arc::new(move |meta: &ObjectMeta| {
        add_those_of(meta.namespace.as_deref(), keys(&all), &target);
    });
    let changed = Arc::clone(&beside);
    builder.on_change::<Cluster>(move |change| changed(&change.meta));
    let changed = Arc::clone(&beside);
    builder.on_change::<MCMMachineTemplate>(move |change| changed(&change.meta));
    let changed = Arc::clone(&beside);
    builder.on_change::<MachineClass>(move |change| changed(&change.meta));
    builder.on_change::<MetadataOfSecret>(move |change| beside(&change.meta));
}
