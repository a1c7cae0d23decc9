use std::sync::Arc;

use super::apply::StandInMachineReconciler;
use crate::stand_in::{
    observe::{DeploymentCaches, PreconditionReader, add_those_of, keys},
    settings::{ROLE_NAME, Settings},
};
use mcm_api::machine::{self as native, MachineClass};
use mcm_controllers::{machine as machines, machine_set};
use mcm_conversion::types::{Cluster, MCMMigration, Machine, MachineDeployment, MachineSet};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::{CellBuilder, Kind},
    enqueue::EnqueueMapper,
    queue::{QueuePacing, WorkQueue},
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let ground = PreconditionReader::new(builder);
    let kind = Arc::new(StandInMachineReconciler {
        mirrors: builder.objects(),
        natives: builder.objects(),
        sets: builder.objects(),
        native_sets: builder.objects(),
        deployments: Arc::new(DeploymentCaches::new(builder)),
        classes: builder.objects(),
        ground: ground.clone(),
        clock: Arc::clone(&builder.config().shared.clock),
    });
    let queue = WorkQueue::new("standinmachine", QueuePacing::default());
    builder.reconciler_of::<Machine, _>(&kind, &queue, &Arc::default(), settings.concurrency);
    builder.report_unreadable::<Machine>();
    let enqueue = EnqueueMapper::new(&kind, &queue);
    builder.on_change(enqueue.on(|_, change: &ObjectChange<Machine>| vec![change.key.clone()]));
    builder.on_change(enqueue.on(|_, change: &ObjectChange<native::Machine>| vec![change.key.clone()]));
    builder.on_change(enqueue.on(of_class));
    builder.on_change(enqueue.on(|caches, change: &ObjectChange<MachineSet>| of_set(caches, &change.key)));
    builder.on_change(enqueue.on(of_deployment));
    builder.on_change(enqueue.on(|caches, change: &ObjectChange<MCMMigration>| below(caches, &change.key)));
    builder.on_change(enqueue.on(of_cluster));
    let (natives, mirrors) = (Arc::clone(&kind.natives), Arc::clone(&kind.mirrors));
    ground.on_change(builder, move |namespace| {
        add_those_of(namespace, keys(&natives).chain(keys(&mirrors)), &queue);
    });
}

fn of_class(caches: &StandInMachineReconciler, change: &ObjectChange<MachineClass>) -> Vec<Key> {
    machines::naming_class(&caches.natives.cache, &change.key).map(|one| Key::from_meta(&one.metadata)).collect()
}

/// All machines of the native set of a name.
fn of_set(caches: &StandInMachineReconciler, set: &Key) -> Vec<Key> {
    let uid = caches.native_sets.cache.get(set).and_then(|one| one.metadata.uid.clone());
    let machines = uid.map(|uid| caches.natives.cache.by(machines::BY_CONTROLLER, &uid)).unwrap_or_default();
    machines.iter().map(|machine| Key::from_meta(&machine.metadata)).collect()
}

/// All machines of the native deployment of a name.
fn below(caches: &StandInMachineReconciler, deployment: &Key) -> Vec<Key> {
    let uid = caches.deployments.native_uid(deployment);
    let sets = uid.map(|uid| caches.native_sets.cache.by(machine_set::BY_CONTROLLER, &uid)).unwrap_or_default();
    sets.iter().flat_map(|set| of_set(caches, &Key::from_meta(&set.metadata))).collect()
}

/// The machines of a deployment of which something changed that they show.
fn of_deployment(caches: &StandInMachineReconciler, change: &ObjectChange<MachineDeployment>) -> Vec<Key> {
    let shown = |one: &Arc<MachineDeployment>| {
        let meta = one.metadata.clone();
        (one.spec.clone(), meta.finalizers, meta.annotations, meta.deletion_timestamp)
    };
    if change.old.as_ref().map(shown) == change.new.as_ref().map(shown) {
        return Vec::new();
    }
    below(caches, &change.key)
}

/// The machines beside a Cluster that is paused, or no longer.
fn of_cluster(caches: &StandInMachineReconciler, change: &ObjectChange<Cluster>) -> Vec<Key> {
    let is_paused = |one: &Arc<Cluster>| one.spec.paused;
    if change.old.as_ref().map(is_paused) == change.new.as_ref().map(is_paused) {
        return Vec::new();
    }
    keys(&caches.natives).filter(|key| key.namespace == change.key.namespace).collect()
}
