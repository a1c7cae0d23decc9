use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use rstest::rstest;
use serde_json::{Value, json};

use super::NativeHoldCaches;
use crate::provider::native_managers::ManagerRegistry;
use mcm_api::patch;
use mcm_runtime::{cache::ObjectCache, kind_cache::CachedKind, target::NodePlacement};

fn native(change: &Value) -> ObjectMeta {
    let mut meta = json!({
        "name": "m", "namespace": "ns", "labels": { "cluster.x-k8s.io/cluster-name": "c" },
        "ownerReferences": [{
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine", "name": "m", "uid": "u",
            "controller": true,
        }],
    });
    patch::apply(&mut meta, change);
    serde_json::from_value(meta).unwrap()
}

/// A cell with synchronized, empty caches.
fn empty() -> NativeHoldCaches {
    fn filled<K: CachedKind>() -> Arc<ObjectCache<K>> {
        let cache = crate::kind_caches().get::<K>().empty();
        cache.observe(Event::Init);
        cache.observe(Event::InitDone);
        cache
    }
    NativeHoldCaches {
        clusters: filled(),
        objects: filled(),
        pools: filled(),
        deployments: filled(),
        sets: filled(),
        machines: filled(),
        resumed: Arc::default(),
        managers: ManagerRegistry::known_for_tests(&[]),
        watch_filter: None,
    }
}

fn put<K: CachedKind>(cache: &ObjectCache<K>, name: &str, change: &Value) {
    let metadata = json!({ "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1" });
    let mut object = json!({ "metadata": metadata, "spec": {} });
    patch::apply(&mut object, change);
    cache.wrote(serde_json::from_value(object).unwrap());
}

/// The wait of an object.
fn said(around: &NativeHoldCaches, meta: &ObjectMeta) -> Option<String> {
    around.held(meta).map(|hold| hold.on)
}

/// The wait of a native Machine in a cell with this Cluster and MCMMachine.
fn on(native: &ObjectMeta, cluster: Option<Value>, object: Option<Value>, filter: Option<&str>) -> Option<String> {
    let around = NativeHoldCaches { watch_filter: filter.map(str::to_owned), ..empty() };
    if let Some(spec) = cluster {
        put(&around.clusters, "c", &json!({ "spec": spec }));
    }
    if let Some(annotations) = object {
        put_owner(&around, &json!({ "annotations": annotations, "labels": native.labels }));
    }
    said(&around, native)
}

/// The MCMMachine that controls the native Machine.
fn put_owner(around: &NativeHoldCaches, metadata: &Value) {
    put(&around.objects, "m", &json!({ "metadata": { "uid": "u" } , "spec": {} }));
    let mut owner = json!({ "metadata": { "uid": "u", "resourceVersion": "2" } });
    patch::apply(&mut owner["metadata"], metadata);
    put(&around.objects, "m", &owner);
}

fn released() -> Value {
    json!({ "annotations": { "machine.mcm/delete-vm": "" } })
}

/// Z4, Z5, T26: a native Machine is touched only if it is ours and no object around it is paused.
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

/// The VM of a control plane machine leaves its load balancer first, also if a user deletes the native Machine.
#[rstest]
#[case::registered(json!([{ "simulated": { "name": "cp" } }]), Some("MCMMachine m to deregister its VM from simulated load balancer cp"))]
#[case::deregistered(json!([]), None)]
fn a_native_machine_is_held_while_its_vm_is_registered(#[case] balancers: Value, #[case] expected: Option<&str>) {
    let around = empty();
    put(&around.clusters, "c", &json!({}));
    let owner = json!({ "metadata": { "uid": "u" }, "spec": {}, "status": { "loadBalancers": balancers } });
    put(&around.objects, "m", &owner);
    let mut change = released();
    assert_eq!(said(&around, &native(&change)), None, "it is not being deleted");
    change["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(said(&around, &native(&change)).as_deref(), expected);
}

/// 4.3: the confirmation that a migration waits for is written by the manager that has the Machine, and by no other.
#[test]
fn a_native_machine_that_is_moved_is_held_and_its_own_manager_confirms_it() {
    let around = empty();
    put_owner(&around, &json!({}));
    let moved = json!({ "annotations": { "machine.mcm/migration": "d" } });
    let hold = around.held(&native(&moved)).unwrap();
    assert_eq!((hold.on.as_str(), hold.is_confirmed), ("MCMMigration d to be complete", true));
    let mut of_nobody = moved;
    of_nobody["ownerReferences"] = Value::Null;
    assert!(!around.held(&native(&of_nobody)).unwrap().is_confirmed);
}

/// T26: the manager of a Lease in the same namespace takes native objects for its own.
#[test]
fn t26_native_objects_are_held_beside_a_native_manager() {
    let around =
        NativeHoldCaches { managers: ManagerRegistry::known_for_tests(&[("ns", "a Lease to expire")]), ..with_pool() };
    for meta in [native(&json!({})), of_pool(&json!({})), of_pool(&deleting()["metadata"])] {
        let hold = around.held(&meta).unwrap();
        assert_eq!((hold.on.as_str(), hold.is_pause), ("a Lease to expire", false));
    }
    let mut elsewhere = native(&json!({ "namespace": "other" }));
    elsewhere.deletion_timestamp = of_pool(&deleting()["metadata"]).deletion_timestamp;
    elsewhere.annotations = native(&released()).annotations;
    assert_eq!(said(&around, &elsewhere), None);
}

/// MV6: a VM that may be under creation is looked up only during a pause of its Cluster.
#[test]
fn mv6_a_hold_says_whether_the_cluster_is_paused() {
    let around = empty();
    put(&around.clusters, "c", &json!({ "spec": { "paused": true } }));
    assert!(around.held(&native(&json!({}))).unwrap().is_pause);
    assert!(around.held(&of_pool(&json!({}))).unwrap().is_pause);
    let moved = json!({ "annotations": { "clusterctl.cluster.x-k8s.io/delete-for-move": "" } });
    assert!(!around.held(&native(&moved)).unwrap().is_pause);
}

/// The VM is deleted only if the object requests it, even when the garbage collector deletes the object because its
/// owner is deleted.
#[rstest]
#[case::deleted_with_its_owner(deleting()["metadata"].clone(), Some(deleting()["metadata"].clone()), Some(("MCMMachine m to be deleted", false)))]
#[case::deleted_directly(deleting()["metadata"].clone(), Some(json!({})), Some(("MCMMachine m to be deleted", true)))]
#[case::owner_removed_by_force(deleting()["metadata"].clone(), None, Some(("MCMMachine m was removed by force", true)))]
#[case::another_owner_of_that_name(deleting()["metadata"].clone(), Some(json!({ "uid": "another" })), Some(("MCMMachine m was removed by force", true)))]
#[case::without_an_owner(json!({}), None, Some(("MCMMachine m, which controls it, to exist", false)))]
#[case::alive(json!({}), Some(json!({})), None)]
fn the_vm_of_a_native_machine_stays_unless_its_owner_or_a_user_released_it(
    #[case] machine: Value,
    #[case] owner: Option<Value>,
    #[case] expected: Option<(&str, bool)>,
    #[values(None, Some(json!({})))] cluster: Option<Value>,
) {
    let around = empty();
    cluster.into_iter().for_each(|spec| put(&around.clusters, "c", &json!({ "spec": spec })));
    owner.into_iter().for_each(|metadata| put_owner(&around, &metadata));
    let mut machine = native(&machine);
    let hold = around.held(&machine);
    let (text, is_shown) = expected.unzip();
    assert_eq!(hold.as_ref().map(|hold| hold.is_confirmed), is_shown, "{hold:?}");
    let on = hold.map(|hold| hold.on).unwrap_or_default();
    assert!(on.contains(text.unwrap_or_default()), "{on}");
    if machine.deletion_timestamp.is_some() {
        machine.annotations = native(&released()).annotations;
        assert_eq!(around.held(&machine), None, "and then it goes, whatever became of its owner");
    }
}

/// R3: of two managers with different filters only one touches the Machine.
#[test]
fn a_native_machine_has_the_manager_of_its_label() {
    let labelled = native(&json!({ "labels": { "cluster.x-k8s.io/watch-filter": "a" } }));
    let filtered = |filter| on(&labelled, Some(json!({})), Some(json!({})), Some(filter));
    assert_eq!(filtered("a"), None);
    assert!(filtered("b").is_some());
}

/// A native object of the pool `p`.
fn of_pool(change: &Value) -> ObjectMeta {
    let mut meta = json!({
        "name": "m", "namespace": "ns",
        "labels": { "cluster.x-k8s.io/cluster-name": "c", "machine.mcm/pool": "p" },
        "ownerReferences": [{
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s", "uid": "s", "controller": true,
        }],
    });
    patch::apply(&mut meta, change);
    serde_json::from_value(meta).unwrap()
}

/// A cell with the Cluster `c`, which was never paused, and the pool `p`.
fn with_pool() -> NativeHoldCaches {
    let around = empty();
    put(&around.clusters, "c", &json!({}));
    put(&around.pools, "p", &json!({}));
    resume(&around);
    around
}

fn resume(around: &NativeHoldCaches) {
    around.resumed.known_for_tests("c");
}

fn deleting() -> Value {
    json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"] } })
}

/// Z4, Z5: rollouts, replacements and deletions of a pool stop with everything that pauses it.
#[rstest]
#[case::nothing(|_: &NativeHoldCaches| {}, json!({}), None)]
#[case::paused_cluster(|around: &NativeHoldCaches| put(&around.clusters, "c", &json!({ "metadata": { "resourceVersion": "2" }, "spec": { "paused": true } })), json!({}), Some("Cluster c to be unpaused"))]
#[case::paused_pool(|around: &NativeHoldCaches| put(&around.pools, "p", &json!({ "metadata": { "resourceVersion": "2", "annotations": { "cluster.x-k8s.io/paused": "" } } })), json!({}), Some("annotation"))]
#[case::pool_on_the_move(|around: &NativeHoldCaches| put(&around.pools, "p", &json!({ "metadata": { "resourceVersion": "2", "annotations": { "clusterctl.cluster.x-k8s.io/delete-for-move": "" } } })), json!({}), Some("clusterctl move"))]
#[case::itself_on_the_move(|_: &NativeHoldCaches| {}, json!({ "annotations": { "clusterctl.cluster.x-k8s.io/delete-for-move": "" } }), Some("clusterctl move"))]
#[case::not_read_since(|around: &NativeHoldCaches| around.resumed.forget("c"), json!({}), Some("read live"))]
fn a_native_object_of_a_pool_is_held_by_everything_that_pauses_its_cluster(
    #[case] change: fn(&NativeHoldCaches),
    #[case] native: Value,
    #[case] expected: Option<&str>,
) {
    let around = with_pool();
    change(&around);
    let on = said(&around, &of_pool(&native));
    assert_eq!(on.is_some(), expected.is_some(), "{on:?}");
    assert!(on.unwrap_or_default().contains(expected.unwrap_or_default()));
}

/// Z5, T9: the source of a move, or a pool that was removed by force. A set whose Machines were moved must not create
/// others, and a VM is deleted only after its release.
#[test]
fn without_its_cluster_or_its_pool_a_native_object_is_only_deleted_if_that_was_said() {
    let around = empty();
    let is_kept = |around: &NativeHoldCaches| {
        let hold = around.held(&of_pool(&deleting()["metadata"])).unwrap();
        (hold.is_kept, hold.is_confirmed, hold.on.contains("MCMMachinePool p was removed by force"))
    };
    let mut told = released();
    patch::apply(&mut told, &deleting()["metadata"]);
    assert_eq!(said(&around, &of_pool(&json!({}))).as_deref(), Some("its Cluster to exist"));
    assert_eq!((is_kept(&around), said(&around, &of_pool(&told))), ((true, true, true), None));
    put(&around.clusters, "c", &json!({}));
    resume(&around);
    assert_eq!(said(&around, &of_pool(&json!({}))).as_deref(), Some("MCMMachinePool p to exist"));
    assert_eq!((is_kept(&around), said(&around, &of_pool(&told))), ((true, true, true), None));
}

/// Sets and Machines of a pool are deleted by the native controllers all the time, its deployments only by the pool.
#[rstest]
#[case::pool_lives(json!({}), "p", Some(true))]
#[case::pool_goes(deleting(), "p", Some(false))]
#[case::another_pool_of_that_name(json!({}), "former", Some(true))]
fn a_deployment_of_a_pool_that_is_deleted_directly_keeps_its_vms(
    #[case] pool: Value,
    #[case] uid: &str,
    #[case] is_shown: Option<bool>,
) {
    let around = with_pool();
    let mut newer = json!({ "metadata": { "resourceVersion": "2" } });
    patch::apply(&mut newer, &pool);
    put(&around.pools, "p", &newer);
    let owner = json!([{
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachinePool", "name": "p", "uid": uid,
        "controller": true,
    }]);
    let mut deployment = json!({ "ownerReferences": owner });
    patch::apply(&mut deployment, &deleting()["metadata"]);
    let hold = around.held(&of_pool(&deployment));
    assert_eq!(hold.map(|hold| hold.is_confirmed), is_shown);
    assert_eq!(said(&around, &of_pool(&deleting()["metadata"])), None, "a Machine of a set");
    patch::apply(&mut deployment, &released());
    assert_eq!(said(&around, &of_pool(&deployment)), None);
}

/// P14: the Node is drained by core, so the VM waits for it.
#[test]
fn a_machine_of_a_pool_with_machines_waits_until_core_has_drained_it() {
    let around = with_pool();
    let member = json!({ "metadata": { "labels": { "machine.mcm/pool": "p" } } });
    let native = of_pool(&deleting()["metadata"]);
    assert_eq!(said(&around, &native), None, "without an MCMMachine nobody else drains it");
    put(&around.objects, "m", &member);
    assert_eq!(said(&around, &of_pool(&json!({}))), None, "it lives");
    assert_eq!(said(&around, &native).as_deref(), Some("Cluster API core to drain its Node"));
    let mut drained = member.clone();
    patch::apply(&mut drained, &deleting());
    patch::apply(&mut drained, &json!({ "metadata": { "resourceVersion": "2" } }));
    put(&around.objects, "m", &drained);
    assert_eq!(said(&around, &native), None);
}

/// C14, O9: Nodes of a pool are in the workload cluster, unless that is being deleted; core manages those of
/// MCMMachines.
#[rstest]
#[case::lives(Some(json!({})), json!({}), "ns/c")]
#[case::deleted(Some(json!({})), deleting()["metadata"].clone(), "ns/c")]
#[case::lives_while_the_cluster_goes(Some(deleting()), json!({}), "ns/c")]
#[case::deleted_with_the_cluster(Some(deleting()), deleting()["metadata"].clone(), "nowhere")]
#[case::deleted_after_the_cluster(None, deleting()["metadata"].clone(), "nowhere")]
#[case::of_no_pool(Some(json!({})), json!({ "labels": { "machine.mcm/pool": null } }), "nowhere")]
fn the_nodes_of_pools_are_in_their_workload_cluster(
    #[case] cluster: Option<Value>,
    #[case] native: Value,
    #[case] expected: &str,
) {
    let around = empty();
    cluster.into_iter().for_each(|cluster| put(&around.clusters, "c", &cluster));
    let placement = match around.placement(&of_pool(&native)) {
        NodePlacement::Nowhere => "nowhere".to_owned(),
        NodePlacement::Unknown => "unknown".to_owned(),
        NodePlacement::In(target) => target.to_string(),
    };
    assert_eq!(placement, expected);
}
