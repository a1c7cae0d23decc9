use std::sync::Arc;

use super::apply::MCMClusters;
use crate::provider::settings::{COMPONENT, ROLE_NAME, Settings};
use mcm_api::machine::MachineClass;
use mcm_controllers::secret::MetadataOfSecret;
use mcm_conversion::types::{Cluster, INFRASTRUCTURE_GROUP, MCMCluster};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::{CellBuilder, Kind},
    enqueue::EnqueueMapper,
    queue::{QueuePacing, WorkQueue},
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let clusters = Arc::new(MCMClusters {
        objects: builder.objects(),
        clusters: builder.objects(),
        classes: builder.objects(),
        secrets: builder.objects(),
        watch_filter: settings.watch_filter.clone(),
        events: builder.config().events.with_component(COMPONENT),
        clock: Arc::clone(&builder.config().shared.clock),
    });
    let queue = WorkQueue::new("mcmcluster", QueuePacing::default());
    builder.controller::<MCMCluster, _>(&clusters, &queue, &Arc::default(), settings.concurrency, |_| true);
    let enqueue = EnqueueMapper::new(&clusters, &queue);
    builder.on_change(enqueue.on(infrastructure_of));
    builder.on_change(enqueue.on(of_class));
    builder.on_change(enqueue.on(of_secret));
}

/// The MCMClusters of a Cluster, before and after the change.
fn infrastructure_of<C>(_: &C, change: &ObjectChange<Cluster>) -> Vec<Key> {
    let references = change.old.iter().chain(&change.new).map(|cluster| &cluster.spec.infrastructure_ref);
    let ours = references.filter(|one| one.kind == "MCMCluster" && one.api_group == INFRASTRUCTURE_GROUP);
    ours.map(|reference| Key::beside(&change.meta, &reference.name)).collect()
}

/// The objects that name a class, if it was created or deleted.
fn of_class(caches: &MCMClusters, change: &ObjectChange<MachineClass>) -> Vec<Key> {
    naming(caches, change, |object, class| {
        let domains = &object.spec.failure_domains;
        domains.iter().any(|domain| domain.machine_class_overrides.values().any(|name| name == class))
    })
}

/// The objects that name a Secret, if it was created or deleted.
fn of_secret(caches: &MCMClusters, change: &ObjectChange<MetadataOfSecret>) -> Vec<Key> {
    naming(caches, change, |object, secret| {
        object.spec.credentials_secret_ref.as_ref().is_some_and(|reference| reference.name == secret)
    })
}

fn naming<K>(caches: &MCMClusters, change: &ObjectChange<K>, names: fn(&MCMCluster, &str) -> bool) -> Vec<Key> {
    if change.old.is_some() && change.new.is_some() {
        return Vec::new();
    }
    let all = caches.objects.cache.all();
    all.iter().filter(|one| names(one, &change.key.name)).map(|one| Key::from_meta(&one.metadata)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(kind: &str, name: &str) -> Cluster {
        let reference = json!({ "apiGroup": INFRASTRUCTURE_GROUP, "kind": kind, "name": name });
        serde_json::from_value(
            json!({ "metadata": { "name": "c", "namespace": "ns" }, "spec": { "infrastructureRef": reference } }),
        )
        .unwrap()
    }

    #[test]
    fn a_cluster_concerns_its_infrastructure_if_that_is_ours() {
        let change = ObjectChange::between(Some(cluster("MCMCluster", "a")), Some(cluster("AWSCluster", "b")));
        assert_eq!(infrastructure_of(&(), &change), [Key::new("ns", "a")]);
    }
}
