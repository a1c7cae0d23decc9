use std::sync::Arc;

use super::apply::StandInDeploymentReconciler;
use crate::stand_in::{
    observe::{PreconditionReader, add_those_of, keys},
    settings::{ROLE_NAME, Settings},
};
use mcm_api::{
    labels,
    machine::{self as native, MachineClass},
};
use mcm_controllers::{object::owner, secret::MetadataOfSecret};
use mcm_conversion::types::{Cluster, MCMMachineTemplate, MCMMigration, MachineDeployment, MachineHealthCheck};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::{CellBuilder, Kind},
    enqueue::EnqueueMapper,
    queue::{QueuePacing, WorkQueue},
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let deployments = Arc::new(StandInDeploymentReconciler::new(builder, settings));
    let queue = WorkQueue::new("standinmachinedeployment", QueuePacing::OF_OWNERS);
    builder.reconciler_of::<MachineDeployment, _>(&deployments, &queue, &Arc::default(), settings.concurrency);
    builder.report_unreadable::<MachineDeployment>();
    builder.report_unreadable::<MachineHealthCheck>();
    let enqueue = EnqueueMapper::new(&deployments, &queue);
    builder.on_change(enqueue.on(own::<MachineDeployment>));
    builder.on_change(enqueue.on(own::<MCMMigration>));
    builder.on_change(enqueue.on(own::<native::MachineDeployment>));
    builder.on_change(enqueue.on(of_set));
    builder.on_change(enqueue.on(of_machine));
    builder.on_change(enqueue.on(beside::<Cluster>));
    builder.on_change(enqueue.on(beside::<MachineHealthCheck>));
    builder.on_change(enqueue.on(beside::<MCMMachineTemplate>));
    builder.on_change(enqueue.on(beside::<MachineClass>));
    builder.on_change(enqueue.on(beside::<MetadataOfSecret>));
    let (objects, migrations) = (Arc::clone(&deployments.objects), Arc::clone(&deployments.migrations));
    deployments.ground.on_change(builder, move |namespace| {
        add_those_of(namespace, keys(&objects).chain(keys(&migrations)), &queue);
    });
}

impl StandInDeploymentReconciler {
    fn new(builder: &mut CellBuilder<'_>, settings: &Settings) -> Self {
        Self {
            objects: builder.objects(),
            migrations: builder.objects(),
            clusters: builder.objects(),
            health_checks: builder.objects(),
            templates: builder.objects(),
            classes: builder.objects(),
            secrets: builder.objects(),
            natives: builder.objects(),
            native_sets: builder.objects(),
            native_machines: builder.objects(),
            sets: builder.objects(),
            machines: builder.objects(),
            ground: PreconditionReader::new(builder),
            control: builder.config().control.clone(),
            watch_filter: settings.watch_filter.clone(),
            clock: Arc::clone(&builder.config().shared.clock),
        }
    }
}

fn own<K>(_: &StandInDeploymentReconciler, change: &ObjectChange<K>) -> Vec<Key> {
    vec![change.key.clone()]
}

/// The deployment of a deleted native set.
fn of_set<C>(_: &C, change: &ObjectChange<native::MachineSet>) -> Vec<Key> {
    let deployment = owner::controller_of(&change.meta).filter(|_| change.gone);
    deployment.map(|deployment| Key::beside(&change.meta, &deployment.name)).into_iter().collect()
}

/// The deployment of a deleted native Machine.
fn of_machine<C>(_: &C, change: &ObjectChange<native::Machine>) -> Vec<Key> {
    let deployment = change.meta.labels.as_ref().and_then(|all| all.get(labels::DEPLOYMENT_NAME));
    let deployment = deployment.filter(|_| change.gone);
    deployment.map(|deployment| Key::beside(&change.meta, deployment)).into_iter().collect()
}

/// A deployment names objects of its namespace, where deployments are few.
fn beside<K>(caches: &StandInDeploymentReconciler, change: &ObjectChange<K>) -> Vec<Key> {
    keys(&caches.objects).filter(|key| key.namespace == change.key.namespace).collect()
}
