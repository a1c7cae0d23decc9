use std::sync::Arc;

use super::{
    apply::{CapacityReader, MCMMachineTemplates},
    cache::BY_CLASS,
    observe::cluster_of,
};
use crate::{
    object::observe::is_in,
    provider::{
        observe::cluster_name,
        settings::{ROLE_NAME, Settings},
    },
};
use mcm_api::machine::MachineClass;
use mcm_controllers::secret::MetadataOfSecret;
use mcm_conversion::types::{Cluster, MCMCluster, MCMMachineTemplate};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::{CellBuilder, Kind},
    enqueue::EnqueueMapper,
    queue::{QueuePacing, WorkQueue},
    secrets::SecretCache,
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let clock = Arc::clone(&builder.config().shared.clock);
    let secrets = builder.objects::<MetadataOfSecret>();
    let credentials = SecretCache::new(Arc::clone(&secrets.cache), &builder.config().control);
    let templates = Arc::new(MCMMachineTemplates {
        objects: builder.objects(),
        clusters: builder.objects(),
        infrastructures: builder.objects(),
        classes: builder.objects(),
        drivers: Arc::clone(&settings.native.drivers),
        credentials,
        capacities: CapacityReader::new(Arc::clone(&clock)),
        watch_filter: settings.watch_filter.clone(),
        clock,
    });
    let queue = WorkQueue::new("mcmmachinetemplate", QueuePacing::default());
    builder.controller::<MCMMachineTemplate, _>(&templates, &queue, &Arc::default(), settings.concurrency, |_| true);
    let enqueue = EnqueueMapper::new(&templates, &queue);
    builder.on_change(enqueue.on(of_class));
    builder.on_change(enqueue.on(of_cluster));
    builder.on_change(enqueue.on(of_infrastructure));
}

fn of_class(caches: &MCMMachineTemplates, change: &ObjectChange<MachineClass>) -> Vec<Key> {
    let templates = caches.objects.cache.by(BY_CLASS, &change.key);
    templates.iter().map(|template| Key::from_meta(&template.metadata)).collect()
}

/// The templates of a Cluster, which may be paused or have other infrastructure.
fn of_cluster(caches: &MCMMachineTemplates, change: &ObjectChange<Cluster>) -> Vec<Key> {
    templates_of(caches, &change.key.namespace, &change.key.name)
}

/// The templates of the Cluster of an MCMCluster, which may name their credentials.
fn of_infrastructure(caches: &MCMMachineTemplates, change: &ObjectChange<MCMCluster>) -> Vec<Key> {
    let cluster = cluster_name(&change.meta);
    cluster.map(|cluster| templates_of(caches, &change.key.namespace, cluster)).unwrap_or_default()
}

fn templates_of(caches: &MCMMachineTemplates, namespace: &str, cluster: &str) -> Vec<Key> {
    let is_of = |template: &MCMMachineTemplate| {
        cluster_of(&template.metadata) == Some(cluster) && is_in(&template.metadata, namespace)
    };
    let all = caches.objects.cache.all();
    all.iter().filter(|one| is_of(one)).map(|one| Key::from_meta(&one.metadata)).collect()
}
