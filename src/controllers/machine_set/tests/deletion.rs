//! The deletion of a set.

use serde_json::json;

use super::world::{World, after, both, phase, preserved_until, waits};
use mcm_api::labels;

#[test]
fn a_set_goes_after_its_last_machine() {
    let mut world = World::new(3)
        .with(json!({ "metadata": { "deletionTimestamp": after(0), "finalizers": ["foreign", labels::FINALIZER] } }))
        .machine("a", json!({}))
        .machine("b", both(phase("Failed"), preserved_until(60)))
        .machine("c", json!({ "metadata": { "deletionTimestamp": after(-5) } }));
    let rest = world.settle();
    assert_eq!(world.deleted, ["a", "b"]);
    assert_eq!(waits(&rest), "3 machines to be deleted before the set");
    assert_eq!(world.set["metadata"]["finalizers"].as_array().unwrap().len(), 2);
    world.finish_deletions();
    world.settle();
    assert_eq!(world.set["metadata"]["finalizers"], json!(["foreign"]));
    assert!(world.created.is_empty());
}

/// `kubectl delete --cascade=orphan`: until the garbage collector has released the Machines, and afterwards.
#[test]
fn a_set_that_is_deleted_with_the_policy_orphan_leaves_its_machines() {
    let mut world = World::new(1)
        .with(json!({ "metadata": { "deletionTimestamp": after(0), "finalizers": [labels::FINALIZER, "orphan"] } }))
        .machines(2);
    let rest = world.settle();
    assert_eq!(waits(&rest), "the garbage collector to remove the set from the owners of its machines");
    for machine in world.machines.values_mut() {
        machine["metadata"]["ownerReferences"] = json!([]);
    }
    world.set["metadata"]["finalizers"] = json!([labels::FINALIZER]);
    world.settle();
    assert_eq!(world.set["metadata"]["finalizers"], json!([]));
    assert_eq!((world.deleted.len(), world.patched.len()), (0, 0));
}

#[test]
fn a_set_waits_for_machines_it_cannot_read() {
    let mut world = World::new(0).with(json!({ "metadata": { "deletionTimestamp": after(0) } }));
    world.unreadable = vec!["u".to_owned()];
    let rest = world.settle();
    assert_eq!(world.set["metadata"]["finalizers"], json!([labels::FINALIZER]));
    assert_eq!(waits(&rest), "1 machine to become readable: u");
}

#[test]
fn a_set_that_somebody_else_holds_leaves_its_machines_to_them() {
    let mut world = World::new(0)
        .with(json!({ "metadata": { "deletionTimestamp": after(0), "finalizers": ["foregroundDeletion"] } }))
        .machines(1);
    world.settle();
    assert!(world.deleted.is_empty());
}

#[test]
fn a_set_that_goes_releases_nothing() {
    let strayed = json!({ "metadata": { "labels": { "pool": "b" } } });
    let mut world = World::new(1)
        .with(json!({ "metadata": { "deletionTimestamp": after(0) } }))
        .machine("a", strayed)
        .machine("b", json!({}));
    world.settle();
    assert_eq!((world.patched.len(), world.deleted.as_slice()), (0, &["b".to_owned()][..]));
}
