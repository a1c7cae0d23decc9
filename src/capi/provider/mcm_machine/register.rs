use std::sync::Arc;

use super::{
    apply::MCMMachines,
    cache::{BY_BOOTSTRAP, BY_CLUSTER},
    in_place::may_differ,
};
use crate::provider::{
    observe::cluster_name,
    settings::{COMPONENT, ROLE_NAME, Settings},
};
use mcm_api::machine::{self as native, MachineClass};
use mcm_controllers::secret::MetadataOfSecret;
use mcm_conversion::types::{Cluster, INFRASTRUCTURE_GROUP, MCMCluster, MCMMachine, Machine};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::{CellBuilder, Kind},
    enqueue::EnqueueMapper,
    objects::CachedApi,
    queue::{QueuePacing, WorkQueue},
    secrets::SecretCache,
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let secrets = builder.objects::<MetadataOfSecret>();
    let credentials = SecretCache::new(Arc::clone(&secrets.cache), &builder.config().control);
    let machines = Arc::new(MCMMachines {
        objects: builder.objects(),
        machines: builder.objects(),
        clusters: builder.objects(),
        infrastructures: builder.objects(),
        natives: builder.objects(),
        classes: builder.objects(),
        secrets,
        drivers: Arc::clone(&settings.native.drivers),
        credentials,
        managers: builder.shared(),
        watch_filter: settings.watch_filter.clone(),
        events: builder.config().events.with_component(COMPONENT),
        clock: Arc::clone(&builder.config().shared.clock),
    });
    let queue = WorkQueue::new("mcmmachine", QueuePacing::default());
    builder.controller::<MCMMachine, _>(&machines, &queue, &Arc::default(), settings.concurrency, |_| true);
    let enqueue = EnqueueMapper::new(&machines, &queue);
    machines.managers.on_change(enqueue.all(|caches| keys(&caches.objects.cache.all())));
    builder.on_change(enqueue.on(of_machine));
    builder.on_change(enqueue.on(of_native));
    builder.on_change(enqueue.on(of_cluster));
    builder.on_change(enqueue.on(of_infrastructure));
    builder.on_change(enqueue.on(of_class));
    builder.on_change(enqueue.on(of_secret));
}

/// The objects of a Machine, before and after the change.
fn of_machine(_: &MCMMachines, change: &ObjectChange<Machine>) -> Vec<Key> {
    change.old.iter().chain(&change.new).filter_map(|machine| infrastructure_of(machine)).collect()
}

/// The object of a native Machine. After its deletion its VM, or its name, is free for others.
fn of_native(caches: &MCMMachines, change: &ObjectChange<native::Machine>) -> Vec<Key> {
    let waiting = if change.gone { waiting_in(&caches.objects, &change.key.namespace) } else { Vec::new() };
    [vec![change.key.clone()], keys(&waiting)].concat()
}

fn of_cluster(caches: &MCMMachines, change: &ObjectChange<Cluster>) -> Vec<Key> {
    keys(&caches.objects.cache.by(BY_CLUSTER, &change.key))
}

fn of_infrastructure(caches: &MCMMachines, change: &ObjectChange<MCMCluster>) -> Vec<Key> {
    let cluster = cluster_name(&change.meta).map(|name| Key::new(&change.key.namespace, name));
    cluster.map(|cluster| keys(&caches.objects.cache.by(BY_CLUSTER, &cluster))).unwrap_or_default()
}

/// A class may be that of a zone, so every object that has no VM yet may need it, and each whose class was changed in place.
fn of_class(caches: &MCMMachines, change: &ObjectChange<MachineClass>) -> Vec<Key> {
    keys(&waiting_in(&caches.objects, &change.key.namespace))
}

/// The objects whose Machines name a Secret with bootstrap data.
fn of_secret(caches: &MCMMachines, change: &ObjectChange<MetadataOfSecret>) -> Vec<Key> {
    let machines = caches.machines.cache.by(BY_BOOTSTRAP, &change.key);
    machines.iter().filter_map(|machine| infrastructure_of(machine)).collect()
}

/// The objects of a namespace that have no VM yet, may have another class than their VM, or are being deleted.
fn waiting_in(objects: &CachedApi<MCMMachine>, namespace: &str) -> Vec<Arc<MCMMachine>> {
    let is_waiting = |object: &Arc<MCMMachine>| {
        let is_waiting = !is_provisioned(object) || may_differ(object);
        object.metadata.namespace.as_deref() == Some(namespace) && is_waiting
    };
    objects.cache.all().into_iter().filter(is_waiting).collect()
}

fn is_provisioned(object: &MCMMachine) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| status.initialization.provisioned == Some(true))
        && object.metadata.deletion_timestamp.is_none()
}

fn keys(objects: &[Arc<MCMMachine>]) -> Vec<Key> {
    objects.iter().map(|object| Key::from_meta(&object.metadata)).collect()
}

/// The MCMMachine of a Machine.
fn infrastructure_of(machine: &Machine) -> Option<Key> {
    let reference = &machine.spec.infrastructure_ref;
    let is_ours = reference.kind == "MCMMachine" && reference.api_group == INFRASTRUCTURE_GROUP;
    is_ours.then(|| Key::beside(&machine.metadata, &reference.name))
}
