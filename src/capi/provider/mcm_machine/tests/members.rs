//! MCMMachines of a pool: the pool makes the native Machine, its set decides how long it lives, core drains it.

use serde_json::{Value, json};

use super::world::World;

/// A member whose Machine core has created, with the native Machine of a set of its pool.
fn world() -> World {
    let mut world = World::new();
    world.set_object(&json!({ "metadata": { "labels": { "machine.mcm/pool": "p" } } }));
    world.set_machine(&json!({ "spec": { "bootstrap": { "dataSecretName": "" } } }));
    world.native = Some(json!({
        "metadata": {
            "name": "m", "namespace": "ns", "uid": "native", "labels": { "machine.mcm/pool": "p", "name": "p" },
            "ownerReferences": [{
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s", "uid": "s", "controller": true,
            }],
        },
        "spec": { "class": { "apiGroup": "machine.sapcloud.io", "kind": "MachineClass", "name": "small" } },
    }));
    world
}

/// P12, P15.
#[test]
fn a_member_shows_the_native_machine_of_its_pool_and_leaves_it_to_its_set() {
    let mut world = world();
    let owners = world.native.as_ref().unwrap()["metadata"]["ownerReferences"].clone();
    world.vm("simulated:///r/vm-1");
    world.pass();
    assert_eq!(world.object.as_ref().unwrap()["spec"]["providerID"], "simulated:///r/vm-1");
    assert_eq!(world.condition("Ready"), "True Provisioned");
    assert_eq!(world.native.as_ref().unwrap()["metadata"]["ownerReferences"], owners);
    world.set_native(&json!({ "metadata": { "labels": { "machine.mcm/pool": "q" } } }));
    world.pass();
    assert_eq!(world.condition("NativeMachineSynced"), "False NameTaken", "that of another pool");
}

/// P14: only the pool creates instances.
#[test]
fn a_member_never_makes_a_native_machine() {
    let mut world = world();
    world.native = None;
    world.pass();
    assert!(world.native.is_none());
    world.set_object(&json!({ "spec": { "providerID": "simulated:///r/vm-1" } }));
    world.pass();
    assert!(world.native.is_none());
    world.delete();
    world.pass();
    assert!(world.native.is_none() && world.object.is_none(), "its VM went with the MCM Machine");
}

/// P14: core has drained the Node when it deletes the object.
#[test]
fn a_member_that_is_deleted_takes_its_vm_along_without_a_second_drain() {
    let mut world = world();
    world.vm("simulated:///r/vm-1");
    world.pass();
    world.log.clear();
    world.delete();
    world.pass();
    let meta = &world.native.as_ref().unwrap()["metadata"];
    assert_eq!((&meta["labels"]["force-deletion"], meta["deletionTimestamp"].is_string()), (&json!("True"), true));
    let at = |what: &str| world.log.iter().position(|line| line.starts_with(what)).unwrap();
    assert!(at("patch MCM Machine") < at("delete MCM Machine"), "{:?}", world.log);
    world.native = None;
    world.pass();
    assert!(world.object.is_none());
}

/// Its set deleted the native Machine first: the label reaches it all the same.
#[test]
fn a_terminating_native_machine_is_marked_as_drained() {
    let mut world = world();
    world.vm("simulated:///r/vm-1");
    world.pass();
    world.set_native(&json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } }));
    world.pass();
    assert_eq!(world.native.as_ref().unwrap()["metadata"]["labels"]["force-deletion"], Value::Null);
    world.delete();
    world.pass();
    assert_eq!(world.native.as_ref().unwrap()["metadata"]["labels"]["force-deletion"], "True");
}
