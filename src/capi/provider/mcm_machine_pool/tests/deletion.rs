//! A pool is deleted after its VMs.

use rstest::rstest;
use serde_json::json;

use super::world::World;
use crate::testing::world::deleted;

/// C13, O7: deployment, machines, then the finalizer, after a live read.
#[test]
fn the_finalizer_is_removed_when_no_native_object_is_left() {
    let mut world = World::running();
    world.delete();
    assert_eq!(world.pass(), ["the VMs to be deleted"]);
    assert!(world.deployments["p"]["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(world.condition("Ready"), "False Deleting");
    world.deployments.clear();
    world.natives.retain(|name, _| name == "p-1");
    world.pass();
    assert!(world.object.is_some(), "a machine whose deployment is gone has its VM still");
    world.natives.clear();
    world.pass();
    assert!(world.object.is_none());
    assert!(world.log.contains(&"look for MCM objects live".to_owned()), "{:?}", world.log);
}

/// O7, O8: without its owner, its Cluster, its class, its data.
#[test]
fn a_pool_that_lost_everything_else_is_deleted_all_the_same() {
    let mut world = World::running();
    world.delete();
    (world.pool, world.cluster) = (None, None);
    world.classes.clear();
    world.secrets.clear();
    world.nodes_unknown = Some("the API server of the workload cluster does not answer".to_owned());
    world.pass();
    assert!(world.deployments["p"]["metadata"]["deletionTimestamp"].is_string());
    world.deployments.clear();
    world.natives.clear();
    world.pass();
    assert!(world.object.is_none());
}

/// Without the annotation the native controllers keep the VMs, also if the deletion began without it.
#[rstest]
fn the_vms_are_released_before_a_deployment_is_deleted(#[values(false, true)] is_deleted_already: bool) {
    let mut world = World::running();
    if is_deleted_already {
        mcm_api::patch::apply(world.deployments.get_mut("p").unwrap(), &deleted());
    }
    world.pass();
    assert!(world.deployments["p"]["metadata"]["annotations"]["machine.mcm/delete-vm"].is_null(), "the pool lives");
    world.delete();
    world.pass();
    let meta = &world.deployments["p"]["metadata"];
    assert_eq!(
        (&meta["annotations"]["machine.mcm/delete-vm"], meta["deletionTimestamp"].is_string()),
        (&json!(""), true)
    );
    let at = |what: &str| world.log.iter().position(|line| line.starts_with(what));
    assert!(is_deleted_already || at("patch MCM") < at("delete MCM"), "{:?}", world.log);
}

#[test]
fn a_pool_that_never_had_machines_is_deleted_at_once() {
    let mut world = World::new();
    world.secrets.clear();
    world.pass();
    world.delete();
    world.pass();
    assert!(world.object.is_none());
}

/// Unknown is not absent.
#[test]
fn a_pool_waits_for_native_objects_that_cannot_be_read() {
    let mut world = World::running();
    world.delete();
    world.deployments.clear();
    world.natives.clear();
    world.unreadable_machines.push("p-1".to_owned());
    assert_eq!(world.pass(), ["the MCM object p-1 to become readable"]);
    assert!(world.object.is_some());
}

/// Z5: at the source of a move the object is deleted, and its VMs stay.
#[test]
fn an_object_that_was_moved_is_left_to_clusterctl() {
    let mut world = World::running();
    world.cluster = None;
    let moved = json!({ "metadata": { "annotations": { "clusterctl.cluster.x-k8s.io/delete-for-move": "" } } });
    world.set_object(&deleted());
    world.set_object(&moved);
    world.pass();
    assert_eq!(world.log, [""; 0]);
}

/// As `kubectl delete --cascade=orphan` does it.
#[test]
fn a_pool_that_is_deleted_with_the_policy_orphan_leaves_its_machines() {
    let mut world = World::running();
    let before = (world.deployments.clone(), world.natives.clone());
    let finalizers = json!(["mcmmachinepool.infrastructure.cluster.x-k8s.io", "orphan"]);
    world.set_object(&json!({ "metadata": { "finalizers": finalizers } }));
    world.delete();
    world.pass();
    assert_eq!(world.object.as_ref().unwrap()["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!((world.deployments, world.natives), before);
}

/// The garbage collector may be faster than the watch.
#[rstest]
fn a_pool_leaves_machines_that_were_released_unnoticed(#[values(false, true)] is_one_left: bool) {
    let mut world = World::running();
    let released = world.deployments.get_mut("p").unwrap();
    mcm_api::patch::apply(released, &json!({ "metadata": { "ownerReferences": null } }));
    if is_one_left {
        let mut other = released.clone();
        let owner = json!([{ "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachinePool", "name": "p", "uid": "object", "controller": true }]);
        mcm_api::patch::apply(&mut other, &json!({ "metadata": { "name": "p-a", "ownerReferences": owner } }));
        world.deployments.insert("p-a".to_owned(), other);
    }
    world.delete();
    world.pass();
    if is_one_left {
        assert!(world.deployments.remove("p-a").unwrap()["metadata"]["deletionTimestamp"].is_string());
        world.pass();
    }
    assert!(world.object.is_none(), "{}", world.story);
    assert!(world.deployments["p"]["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(world.natives.len(), 3);
}
