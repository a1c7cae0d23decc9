//! The kinds of the provider, and which native Machines it may touch.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    hold, mcm_cluster, mcm_machine, mcm_machine_template,
    observe::{cluster_name, view},
    settings::{ROLE_NAME, Settings},
    view::View,
};
use crate::{
    capi::types::{Cluster, INFRASTRUCTURE_GROUP, MCMMachine},
    controllers::{machine, machine_class, object::owner, secret},
    runtime::{
        cache::{Cache, Key},
        cell::{Builder, Kind, Role},
        holds::Holds,
    },
};

/// All kinds run under one Lease, which has the name that users of Cluster API expect.
pub(crate) const ROLE: Role = Role { name: ROLE_NAME, lease: "controller-leader-election-capmcm" };

/// All kinds. Orphan VMs are not collected: each VM has an object that its finalizer keeps, and while a cluster moves the
/// objects are elsewhere for a moment.
pub(crate) const KINDS: &[Kind<Settings>] = &[
    mcm_cluster::KIND,
    mcm_machine::KIND,
    mcm_machine_template::KIND,
    Kind { role: ROLE_NAME, register: native_machines },
    Kind { role: ROLE_NAME, register: |builder, settings| (machine_class::KIND.register)(builder, &settings.native) },
    Kind { role: ROLE_NAME, register: |builder, settings| (secret::KIND.register)(builder, &settings.native) },
];

/// Native Machines, each held while its cluster is paused or somebody else has it.
fn native_machines(builder: &mut Builder<'_>, settings: &Settings) {
    let holds = builder.shared::<Holds>();
    let (clusters, objects) = (builder.objects::<Cluster>(), builder.objects::<MCMMachine>());
    let (of_clusters, of_objects) = (Arc::clone(&clusters.cache), Arc::clone(&objects.cache));
    let filter = settings.watch_filter.clone();
    holds.judged_by(move |meta| held(meta, filter.as_deref(), &of_clusters, &of_objects));

    let (all, changed) = (Arc::clone(&objects), Arc::clone(&holds));
    builder.on_change::<Cluster>(move |change| {
        let was = change.old.as_ref().map(|cluster| cluster.spec.paused);
        if was != change.new.as_ref().map(|cluster| cluster.spec.paused) {
            for object in all.cache.by(mcm_machine::BY_CLUSTER, &change.key) {
                changed.changed(&Key::of(&object.metadata));
            }
        }
    });
    builder.on_change::<MCMMachine>(move |change| {
        let annotations = |object: &Arc<MCMMachine>| object.metadata.annotations.clone();
        if change.old.as_ref().map(annotations) != change.new.as_ref().map(annotations) {
            holds.changed(&change.key);
        }
    });
    (machine::KIND.register)(builder, &settings.native);
}

/// Why a native Machine may not be touched; completes "waiting for".
fn held(
    meta: &ObjectMeta,
    watch_filter: Option<&str>,
    clusters: &Cache<Cluster>,
    objects: &Cache<MCMMachine>,
) -> Option<String> {
    if let Some(on) = hold::hands_off(meta, watch_filter) {
        return Some(on);
    }
    let controller = owner::controller_of(meta);
    let is_ours = |api_version: &str| api_version.split('/').next() == Some(INFRASTRUCTURE_GROUP);
    let Some(controller) = controller.filter(|one| one.kind == "MCMMachine" && is_ours(&one.api_version)) else {
        return Some("an MCMMachine to control it: this manager leaves other Machines alone".to_owned());
    };
    let cluster = match cluster_name(meta) {
        Some(name) => view(clusters, &Key::beside(meta, name)),
        None => View::Missing,
    };
    if let Some(on) = hold::paused(meta, &cluster) {
        return Some(on);
    }
    match view(objects, &Key::beside(meta, &controller.name)) {
        View::Unknown => Some(format!("MCMMachine {} to become readable", controller.name)),
        View::Missing => None,
        View::Present(object) => {
            let on = hold::hands_off(&object.metadata, watch_filter);
            on.or_else(|| hold::paused(&object.metadata, &View::Missing))
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::cell::Kept;

    fn native(change: &Value) -> ObjectMeta {
        let mut meta = json!({
            "name": "m", "namespace": "ns", "labels": { "cluster.x-k8s.io/cluster-name": "c" },
            "ownerReferences": [{
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine", "name": "m", "uid": "u",
                "controller": true,
            }],
        });
        crate::api::patch::apply(&mut meta, change);
        serde_json::from_value(meta).unwrap()
    }

    /// What a native Machine waits for in a cell whose Cluster and MCMMachine are these.
    fn on(native: &ObjectMeta, cluster: Option<Value>, object: Option<Value>, filter: Option<&str>) -> Option<String> {
        let (clusters, objects) = (Cluster::cache(), MCMMachine::cache());
        let meta = |name: &str| json!({ "name": name, "namespace": "ns", "uid": "u", "resourceVersion": "1" });
        clusters.observe(kube::runtime::watcher::Event::Init);
        clusters.observe(kube::runtime::watcher::Event::InitDone);
        objects.observe(kube::runtime::watcher::Event::Init);
        objects.observe(kube::runtime::watcher::Event::InitDone);
        if let Some(spec) = cluster {
            clusters.wrote(serde_json::from_value(json!({ "metadata": meta("c"), "spec": spec })).unwrap());
        }
        if let Some(annotations) = object {
            let mut metadata = meta("m");
            metadata["annotations"] = annotations;
            objects.wrote(serde_json::from_value(json!({ "metadata": metadata, "spec": {} })).unwrap());
        }
        held(native, filter, &clusters, &objects)
    }

    /// Z4, Z5, T26: a native Machine is touched only if nobody paused anything around it and it is ours.
    #[rstest]
    #[case::ours(json!({}), json!({}), json!({}), None)]
    #[case::paused_cluster(json!({}), json!({ "paused": true }), json!({}), Some("Cluster c to be unpaused"))]
    #[case::paused_object(json!({}), json!({}), json!({ "cluster.x-k8s.io/paused": "" }), Some("annotation"))]
    #[case::paused_itself(json!({ "annotations": { "cluster.x-k8s.io/paused": "" } }), json!({}), json!({}), Some("annotation"))]
    #[case::moving(
        json!({ "annotations": { "clusterctl.cluster.x-k8s.io/delete-for-move": "" }, "deletionTimestamp": "2026-01-01T00:00:00Z" }),
        json!({}),
        json!({}),
        Some("clusterctl move")
    )]
    #[case::moving_owner(json!({}), json!({}), json!({ "clusterctl.cluster.x-k8s.io/delete-for-move": "" }), Some("clusterctl move"))]
    #[case::of_nobody(json!({ "ownerReferences": null }), json!({}), json!({}), Some("an MCMMachine"))]
    #[case::of_a_set(
        json!({ "ownerReferences": [{ "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s", "uid": "s", "controller": true }] }),
        json!({}),
        json!({}),
        Some("an MCMMachine")
    )]
    fn a_native_machine_is_held_by_everything_that_pauses_its_cluster(
        #[case] machine: Value,
        #[case] cluster: Value,
        #[case] object: Value,
        #[case] expected: Option<&str>,
    ) {
        let on = on(&native(&machine), Some(cluster), Some(object), None);
        assert_eq!(on.is_some(), expected.is_some(), "{on:?}");
        assert!(on.unwrap_or_default().contains(expected.unwrap_or_default()));
    }

    #[test]
    fn a_native_machine_outlives_its_cluster_and_is_deleted_without_it() {
        assert_eq!(on(&native(&json!({})), None, None, None), None);
    }

    /// R3: of two managers with different filters only one touches the Machine.
    #[test]
    fn a_native_machine_has_the_manager_of_its_label() {
        let labelled = native(&json!({ "labels": { "cluster.x-k8s.io/watch-filter": "a" } }));
        let filtered = |filter| on(&labelled, Some(json!({})), None, Some(filter));
        assert_eq!(filtered("a"), None);
        assert!(filtered("b").is_some());
    }
}
