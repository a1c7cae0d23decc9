use std::sync::Arc;

use super::apply::StandInSetReconciler;
use crate::stand_in::{
    observe::{DeploymentCaches, PreconditionReader, add_those_of, keys},
    settings::{ROLE_NAME, Settings},
};
use mcm_api::machine as native;
use mcm_controllers::machine_set::BY_CONTROLLER;
use mcm_conversion::types::{Cluster, MCMMigration, MachineDeployment, MachineSet};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::{CellBuilder, Kind},
    enqueue::EnqueueMapper,
    queue::{QueuePacing, WorkQueue},
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let ground = PreconditionReader::new(builder);
    let sets = Arc::new(StandInSetReconciler {
        mirrors: builder.objects(),
        natives: builder.objects(),
        deployments: Arc::new(DeploymentCaches::new(builder)),
        ground: ground.clone(),
        clock: Arc::clone(&builder.config().shared.clock),
    });
    let queue = WorkQueue::new("standinmachineset", QueuePacing::default());
    builder.reconciler_of::<MachineSet, _>(&sets, &queue, &Arc::default(), settings.concurrency);
    builder.report_unreadable::<MachineSet>();
    let enqueue = EnqueueMapper::new(&sets, &queue);
    builder.on_change(enqueue.on(|_, change: &ObjectChange<MachineSet>| vec![change.key.clone()]));
    builder.on_change(enqueue.on(|_, change: &ObjectChange<native::MachineSet>| vec![change.key.clone()]));
    builder.on_change(enqueue.on(of_deployment::<native::MachineDeployment>));
    builder.on_change(enqueue.on(of_deployment::<MachineDeployment>));
    builder.on_change(enqueue.on(of_deployment::<MCMMigration>));
    builder.on_change(enqueue.on(of_cluster));
    let (natives, mirrors) = (Arc::clone(&sets.natives), Arc::clone(&sets.mirrors));
    ground.on_change(builder, move |namespace| {
        add_those_of(namespace, keys(&natives).chain(keys(&mirrors)), &queue);
    });
}

/// All sets of the native deployment of a name.
fn of_deployment<K>(caches: &StandInSetReconciler, change: &ObjectChange<K>) -> Vec<Key> {
    let uid = caches.deployments.native_uid(&change.key);
    let sets = uid.map(|uid| caches.natives.cache.by(BY_CONTROLLER, &uid)).unwrap_or_default();
    sets.iter().map(|set| Key::from_meta(&set.metadata)).collect()
}

/// The end of a pause concerns all sets beside a Cluster; they are few.
fn of_cluster(caches: &StandInSetReconciler, change: &ObjectChange<Cluster>) -> Vec<Key> {
    keys(&caches.natives).filter(|key| key.namespace == change.key.namespace).collect()
}
