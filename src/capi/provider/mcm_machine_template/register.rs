use std::sync::Arc;

use super::{apply::MCMMachineTemplates, cache::BY_CLASS};
use crate::{
    object::observe::is_in,
    provider::{
        observe::cluster_name,
        settings::{ROLE_NAME, Settings},
    },
};
use mcm_api::machine::MachineClass;
use mcm_conversion::types::{Cluster, MCMMachineTemplate};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::{CellBuilder, Kind},
    enqueue::EnqueueMapper,
    queue::{QueuePacing, WorkQueue},
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let templates = Arc::new(MCMMachineTemplates {
        objects: builder.objects(),
        clusters: builder.objects(),
        classes: builder.objects(),
        watch_filter: settings.watch_filter.clone(),
    });
    let queue = WorkQueue::new("mcmmachinetemplate", QueuePacing::default());
    builder.controller::<MCMMachineTemplate, _>(&templates, &queue, &Arc::default(), settings.concurrency, |_| true);
    let enqueue = EnqueueMapper::new(&templates, &queue);
    builder.on_change(enqueue.on(of_class));
    builder.on_change(enqueue.on(of_cluster));
}

fn of_class(caches: &MCMMachineTemplates, change: &ObjectChange<MachineClass>) -> Vec<Key> {
    let templates = caches.objects.cache.by(BY_CLASS, &change.key);
    templates.iter().map(|template| Key::from_meta(&template.metadata)).collect()
}

/// The templates of a Cluster. Only a paused one matters, and few templates have the label.
fn of_cluster(caches: &MCMMachineTemplates, change: &ObjectChange<Cluster>) -> Vec<Key> {
    let is_of = |template: &MCMMachineTemplate| {
        cluster_name(&template.metadata) == Some(&change.key.name) && is_in(&template.metadata, &change.key.namespace)
    };
    let all = caches.objects.cache.all();
    all.iter().filter(|one| is_of(one)).map(|one| Key::from_meta(&one.metadata)).collect()
}
