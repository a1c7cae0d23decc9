use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    apply::MCMMachinePools,
    cache::{BY_BOOTSTRAP, BY_CLUSTER},
};
use crate::{
    object::observe::is_in,
    provider::{
        observe::{cluster_name, pool_of},
        settings::{COMPONENT, ROLE_NAME, Settings},
        workload::target_of,
    },
};
use mcm_api::machine::{self as native, MachineClass, MachineDeployment, MachineSet};
use mcm_controllers::{object::owner, secret::MetadataOfSecret};
use mcm_conversion::types::{
    Cluster, INFRASTRUCTURE_GROUP, MCMCluster, MCMMachine, MCMMachinePool, Machine, MachinePool,
};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::{CellBuilder, Kind},
    enqueue::EnqueueMapper,
    objects::CachedApi,
    queue::{QueuePacing, WorkQueue},
    target::TargetCluster,
    trust::CacheTrust,
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let pools = Arc::new(MCMMachinePools::new(builder, settings));
    let queue = WorkQueue::new("mcmmachinepool", QueuePacing::OF_OWNERS);
    builder.controller::<MCMMachinePool, _>(&pools, &queue, &Arc::default(), settings.concurrency, |_| true);
    let enqueue = EnqueueMapper::new(&pools, &queue);
    // Objects of core, and of its other providers.
    builder.on_change(enqueue.on(of_owner));
    builder.on_change(enqueue.on(of_cluster));
    builder.on_change(enqueue.on(of_infrastructure));
    builder.on_change(enqueue.on(of_secret));
    builder.on_change(enqueue.on(of_machine));
    builder.on_change(enqueue.on(of_member));
    // Native objects.
    builder.on_change(enqueue.on(of_deployment));
    builder.on_change(enqueue.on(of_native));
    builder.on_change(enqueue.on(of_set));
    builder.on_change(enqueue.on(of_class));
    pools.workloads.on_change(enqueue.on(of_cluster_key));
    pools.managers.on_change(enqueue.all(all));
    pools.resumed.on_change(enqueue.all(all));
    pools.targets.on_trust_change(enqueue.within(of_target));
}

impl MCMMachinePools {
    fn new(builder: &mut CellBuilder<'_>, settings: &Settings) -> Self {
        Self {
            objects: builder.objects(),
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
        }
    }
}

fn all(caches: &MCMMachinePools) -> Vec<Key> {
    keys(&caches.objects.cache.all())
}

/// The objects of a MachinePool, before and after the change.
fn of_owner(_: &MCMMachinePools, change: &ObjectChange<MachinePool>) -> Vec<Key> {
    change.old.iter().chain(&change.new).filter_map(|pool| infrastructure_of(pool)).collect()
}

fn of_cluster(caches: &MCMMachinePools, change: &ObjectChange<Cluster>) -> Vec<Key> {
    of_cluster_key(caches, &change.key)
}

fn of_cluster_key(caches: &MCMMachinePools, cluster: &Key) -> Vec<Key> {
    keys(&caches.objects.cache.by(BY_CLUSTER, cluster))
}

fn of_infrastructure(caches: &MCMMachinePools, change: &ObjectChange<MCMCluster>) -> Vec<Key> {
    let cluster = cluster_name(&change.meta).map(|name| Key::new(&change.key.namespace, name));
    cluster.map(|cluster| of_cluster_key(caches, &cluster)).unwrap_or_default()
}

/// The objects whose MachinePools name a Secret with bootstrap data.
fn of_secret(caches: &MCMMachinePools, change: &ObjectChange<MetadataOfSecret>) -> Vec<Key> {
    let pools = caches.pools.cache.by(BY_BOOTSTRAP, &change.key);
    pools.iter().filter_map(|pool| infrastructure_of(pool)).collect()
}

/// The Machine of a member has its name.
fn of_machine(caches: &MCMMachinePools, change: &ObjectChange<Machine>) -> Vec<Key> {
    let member = caches.members.cache.get(&change.key);
    member.and_then(|member| labelled(&member.metadata)).into_iter().collect()
}

fn of_member(_: &MCMMachinePools, change: &ObjectChange<MCMMachine>) -> Vec<Key> {
    labelled(&change.meta).into_iter().collect()
}

/// A deployment that is only shown has no label.
fn of_deployment(caches: &MCMMachinePools, change: &ObjectChange<MachineDeployment>) -> Vec<Key> {
    labelled(&change.meta).into_iter().chain(showing(&caches.objects, &change.key)).collect()
}

fn of_native(caches: &MCMMachinePools, change: &ObjectChange<native::Machine>) -> Vec<Key> {
    if let Some(pool) = labelled(&change.meta) {
        return vec![pool];
    }
    let set = owner::controller_of(&change.meta).map(|set| Key::beside(&change.meta, &set.name));
    let set = set.and_then(|set| caches.sets.cache.get(&set));
    let deployment = set.as_ref().and_then(|set| owner::controller_of(&set.metadata));
    let deployment = deployment.map(|deployment| Key::beside(&change.meta, &deployment.name));
    deployment.into_iter().flat_map(|deployment| showing(&caches.objects, &deployment)).collect()
}

fn of_set(_: &MCMMachinePools, change: &ObjectChange<MachineSet>) -> Vec<Key> {
    labelled(&change.meta).filter(|_| change.gone).into_iter().collect()
}

fn of_class(caches: &MCMMachinePools, change: &ObjectChange<MachineClass>) -> Vec<Key> {
    let all = caches.objects.cache.all();
    all.iter()
        .filter(|pool| is_in(&pool.metadata, &change.key.namespace))
        .map(|pool| Key::from_meta(&pool.metadata))
        .collect()
}

/// The Nodes of a workload cluster become known or unknown.
fn of_target(caches: &MCMMachinePools, target: &TargetCluster, _: &CacheTrust) -> Vec<Key> {
    let is_there = |pool: &Arc<MCMMachinePool>| {
        let cluster = cluster_name(&pool.metadata).map(|name| Key::beside(&pool.metadata, name));
        cluster.is_some_and(|cluster| target_of(&cluster) == target.id)
    };
    let all = caches.objects.cache.all();
    all.iter().filter(|pool| is_there(pool)).map(|pool| Key::from_meta(&pool.metadata)).collect()
}

fn labelled(meta: &ObjectMeta) -> Option<Key> {
    pool_of(meta).map(|pool| Key::beside(meta, pool))
}

/// The pools that show a deployment.
fn showing(pools: &CachedApi<MCMMachinePool>, deployment: &Key) -> Vec<Key> {
    let shows = |pool: &Arc<MCMMachinePool>| {
        pool.spec.machine_deployment_ref.name == deployment.name
            && pool.metadata.namespace.as_deref() == Some(&deployment.namespace)
    };
    pools.cache.all().into_iter().filter(shows).map(|pool| Key::from_meta(&pool.metadata)).collect()
}

fn keys(pools: &[Arc<MCMMachinePool>]) -> Vec<Key> {
    pools.iter().map(|pool| Key::from_meta(&pool.metadata)).collect()
}

/// The MCMMachinePool of a MachinePool.
fn infrastructure_of(pool: &MachinePool) -> Option<Key> {
    let reference = &pool.spec.template.spec.infrastructure_ref;
    let is_ours = reference.kind == "MCMMachinePool" && reference.api_group == INFRASTRUCTURE_GROUP;
    is_ours.then(|| Key::beside(&pool.metadata, &reference.name))
}
