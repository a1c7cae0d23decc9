use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    Action, Session, Snapshot,
    apply::{self, MCMMachinePools},
    cache::{BY_BOOTSTRAP, BY_CLUSTER},
    plan,
};
use crate::{
    api::machine::{self as native, MachineClass, MachineDeployment, MachineSet},
    capi::{
        object::apply::read,
        provider::{
            observe::{cluster_name, pool_of},
            settings::{COMPONENT, ROLE_NAME, Settings},
        },
        types::{Cluster, INFRASTRUCTURE_GROUP, MCMCluster, MCMMachine, MCMMachinePool, Machine, MachinePool},
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

impl Reconciler for MCMMachinePools {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = ();
    type Session = Session;

    fn observe(&self, key: &Key, (): &(), session: &Session) -> Option<Snapshot> {
        self.snapshot(key, session)
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
            "MCMMachinePool" => drop(read(&self.objects, &write.key).await?),
            "MachineClass" => drop(read(&self.classes, &write.key).await?),
            "MCMMachine" => drop(read(&self.members, &write.key).await?),
            "MachineDeployment" => drop(read(&self.deployments, &write.key).await?),
            "MachinePool" => drop(read(&self.pools, &write.key).await?),
            // A native Machine, or one of Cluster API: the next plan writes it again if that is needed.
            _ => {}
        }
        Ok(())
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus(_))
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let objects = builder.objects::<MCMMachinePool>();
    let reconciler = MCMMachinePools {
        objects: Arc::clone(&objects),
        pools: builder.objects(),
        clusters: builder.objects(),
        infrastructures: builder.objects(),
        deployments: builder.objects(),
        sets: builder.objects(),
        natives: builder.objects(),
        classes: builder.objects(),
        secrets: builder.objects(),
        members: builder.objects(),
        machines: builder.objects(),
        targets: Arc::clone(&builder.config().targets),
        workloads: builder.shared(),
        resumed: builder.shared(),
        managers: builder.shared(),
        watch_filter: settings.watch_filter.clone(),
        events: builder.config().events.with_component(COMPONENT),
        clock: Arc::clone(&builder.config().shared.clock),
    };
    let (pools, sets) = (Arc::clone(&reconciler.pools), Arc::clone(&reconciler.sets));
    let (targets, workloads) = (Arc::clone(&reconciler.targets), Arc::clone(&reconciler.workloads));
    let (resumed, managers) = (Arc::clone(&reconciler.resumed), Arc::clone(&reconciler.managers));
    let queue = Queue::new("mcmmachinepool", Pacing::OF_OWNERS);
    builder.controller::<MCMMachinePool, _>(reconciler, &queue, &Arc::default(), settings.concurrency, |_| true);

    of_core(builder, &queue, &objects, &pools);
    of_natives(builder, &queue, &objects, &sets);

    let (all, of_attempt) = (Arc::clone(&objects), Arc::clone(&queue));
    workloads.on_change(move |cluster| keys(&all.cache.by(BY_CLUSTER, cluster)).for_each(|key| of_attempt.add(key)));
    let (all, beside) = (Arc::clone(&objects), Arc::clone(&queue));
    managers.on_change(move || keys(&all.cache.all()).for_each(|key| beside.add(key)));
    let (all, read) = (Arc::clone(&objects), Arc::clone(&queue));
    resumed.on_change(move || keys(&all.cache.all()).for_each(|key| read.add(key)));
    // The Nodes of a workload cluster become known or unknown.
    targets.on_trust_change(move |target, _| {
        let is_there = |pool: &Arc<MCMMachinePool>| {
            let cluster = cluster_name(&pool.metadata).map(|name| Key::beside(&pool.metadata, name));
            cluster.is_some_and(|cluster| crate::capi::provider::workload::target_of(&cluster) == target.id)
        };
        let pools: Vec<_> = objects.cache.all().into_iter().filter(is_there).collect();
        keys(&pools).for_each(|key| queue.add(key));
    });
}

/// Objects of core, and of its other providers.
fn of_core(
    builder: &mut Builder<'_>,
    queue: &Arc<Queue<Key>>,
    objects: &Arc<Objects<MCMMachinePool>>,
    pools: &Arc<Objects<MachinePool>>,
) {
    let owned = Arc::clone(queue);
    builder.on_change::<MachinePool>(move |change| {
        for pool in change.old.iter().chain(&change.new) {
            infrastructure_of(pool).into_iter().for_each(|key| owned.add(key));
        }
    });
    let (all, of_cluster) = (Arc::clone(objects), Arc::clone(queue));
    builder.on_change::<Cluster>(move |change| {
        keys(&all.cache.by(BY_CLUSTER, &change.key)).for_each(|key| of_cluster.add(key));
    });
    let (all, of_infrastructure) = (Arc::clone(objects), Arc::clone(queue));
    builder.on_change::<MCMCluster>(move |change| {
        if let Some(name) = cluster_name(&change.meta) {
            let cluster = Key::new(&change.key.namespace, name);
            keys(&all.cache.by(BY_CLUSTER, &cluster)).for_each(|key| of_infrastructure.add(key));
        }
    });
    let (pools, booted) = (Arc::clone(pools), Arc::clone(queue));
    builder.on_change::<MetadataOfSecret>(move |change| {
        for pool in pools.cache.by(BY_BOOTSTRAP, &change.key) {
            infrastructure_of(&pool).into_iter().for_each(|key| booted.add(key));
        }
    });
    // The Machine of a member has its name.
    let members = builder.objects::<MCMMachine>();
    let of_machine = Arc::clone(queue);
    builder.on_change::<Machine>(move |change| {
        let pool = members.cache.get(&change.key).and_then(|member| labelled(&member.metadata));
        pool.into_iter().for_each(|pool| of_machine.add(pool));
    });
    let of_member = Arc::clone(queue);
    builder
        .on_change::<MCMMachine>(move |change| labelled(&change.meta).into_iter().for_each(|pool| of_member.add(pool)));
}

/// Native objects. Those of a deployment that is only shown have no label.
fn of_natives(
    builder: &mut Builder<'_>,
    queue: &Arc<Queue<Key>>,
    objects: &Arc<Objects<MCMMachinePool>>,
    sets: &Arc<Objects<MachineSet>>,
) {
    let (all, of_deployment) = (Arc::clone(objects), Arc::clone(queue));
    builder.on_change::<MachineDeployment>(move |change| {
        labelled(&change.meta).into_iter().for_each(|pool| of_deployment.add(pool));
        showing(&all, &change.key).for_each(|pool| of_deployment.add(pool));
    });
    let (all, sets, of_native) = (Arc::clone(objects), Arc::clone(sets), Arc::clone(queue));
    builder.on_change::<native::Machine>(move |change| {
        if let Some(pool) = labelled(&change.meta) {
            return of_native.add(pool);
        }
        let set = owner::controller_of(&change.meta).map(|set| Key::beside(&change.meta, &set.name));
        let set = set.and_then(|set| sets.cache.get(&set));
        let deployment = set.as_ref().and_then(|set| owner::controller_of(&set.metadata));
        if let Some(deployment) = deployment {
            showing(&all, &Key::beside(&change.meta, &deployment.name)).for_each(|pool| of_native.add(pool));
        }
    });
    let of_set = Arc::clone(queue);
    builder.on_change::<MachineSet>(move |change| {
        if change.gone {
            labelled(&change.meta).into_iter().for_each(|pool| of_set.add(pool));
        }
    });
    let (all, of_class) = (Arc::clone(objects), Arc::clone(queue));
    builder.on_change::<MachineClass>(move |change| {
        let beside = |pool: &Arc<MCMMachinePool>| pool.metadata.namespace.as_deref() == Some(&change.key.namespace);
        let pools: Vec<_> = all.cache.all().into_iter().filter(beside).collect();
        keys(&pools).for_each(|key| of_class.add(key));
    });
}

fn labelled(meta: &ObjectMeta) -> Option<Key> {
    pool_of(meta).map(|pool| Key::beside(meta, pool))
}

/// The pools that show a deployment.
fn showing(pools: &Objects<MCMMachinePool>, deployment: &Key) -> impl Iterator<Item = Key> {
    let shows = |pool: &Arc<MCMMachinePool>| {
        pool.spec.machine_deployment_ref.name == deployment.name
            && pool.metadata.namespace.as_deref() == Some(&deployment.namespace)
    };
    let found: Vec<_> = pools.cache.all().into_iter().filter(shows).collect();
    found.into_iter().map(|pool| Key::of(&pool.metadata))
}

fn keys(pools: &[Arc<MCMMachinePool>]) -> impl Iterator<Item = Key> {
    pools.iter().map(|pool| Key::of(&pool.metadata))
}

/// The MCMMachinePool of a MachinePool.
fn infrastructure_of(pool: &MachinePool) -> Option<Key> {
    let reference = &pool.spec.template.spec.infrastructure_ref;
    let is_ours = reference.kind == "MCMMachinePool" && reference.api_group == INFRASTRUCTURE_GROUP;
    is_ours.then(|| Key::beside(&pool.metadata, &reference.name))
}
