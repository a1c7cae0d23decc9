use std::sync::Arc;

use super::apply::MachineSets;
use crate::stand_in::{
    observe::{Deployments, Ground, add_those_of, keys},
    settings::{ROLE_NAME, Settings},
};
use mcm_api::machine as native;
use mcm_controllers::machine_set::BY_CONTROLLER;
use mcm_conversion::types::{Cluster, MCMMigration, MachineDeployment, MachineSet};
use mcm_runtime::{
    cache::{Change, Key},
    cell::{Builder, Kind},
    enqueue::Enqueue,
    queue::{Pacing, Queue},
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let ground = Ground::new(builder);
    let sets = Arc::new(MachineSets {
        mirrors: builder.objects(),
        natives: builder.objects(),
        deployments: Arc::new(Deployments::new(builder)),
        ground: ground.clone(),
        clock: Arc::clone(&builder.config().shared.clock),
    });
    let queue = Queue::new("standinmachineset", Pacing::default());
    builder.reconciler_of::<MachineSet, _>(&sets, &queue, &Arc::default(), settings.concurrency);
    builder.report_unreadable::<MachineSet>();
    let enqueue = Enqueue::new(&sets, &queue);
    builder.on_change(enqueue.on(|_, change: &Change<MachineSet>| vec![change.key.clone()]));
    builder.on_change(enqueue.on(|_, change: &Change<native::MachineSet>| vec![change.key.clone()]));
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
fn of_deployment<K>(caches: &MachineSets, change: &Change<K>) -> Vec<Key> {
    let uid = caches.deployments.native_uid(&change.key);
    let sets = uid.map(|uid| caches.natives.cache.by(BY_CONTROLLER, &uid)).unwrap_or_default();
    sets.iter().map(|set| Key::of(&set.metadata)).collect()
}

/// The end of a pause concerns all sets beside a Cluster; they are few.
fn of_cluster(caches: &MachineSets, change: &Change<Cluster>) -> Vec<Key> {
    keys(&caches.natives).filter(|key| key.namespace == change.key.namespace).collect()
}
