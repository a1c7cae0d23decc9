//! Objects around the MCMMachine: its class, a move, a native manager.

use rstest::rstest;
use serde_json::json;

use super::world::World;
use crate::object::gate::ManagerObstacle;

/// O7: the object has the content of its class, so its deletion does not end in want of it.
#[rstest]
fn a_class_that_the_object_describes_comes_back(#[values(false, true)] is_deleting: bool) {
    let mut world = World::with_data();
    let content = json!({ "provider": "simulated", "providerSpec": { "zone": "a" } });
    world.set_object(&json!({ "spec": { "machineClassRef": null, "machineClass": content } }));
    world.pass();
    world.vm("simulated:///r/vm");
    world.pass();
    let class = world.classes.remove("m").unwrap();
    if is_deleting {
        world.delete();
    }
    world.pass();
    assert_eq!(world.classes.get("m"), Some(&class));
    assert_eq!(world.native.as_ref().unwrap()["metadata"]["deletionTimestamp"].is_string(), is_deleting);
}

/// MV6: clusterctl waits for a Machine whose VM may be under creation. An adopted Machine has its ID.
#[test]
fn mv6_a_native_machine_without_a_vm_blocks_a_move() {
    const MARK: &str = "clusterctl.cluster.x-k8s.io/block-move";
    let mut world = World::with_data();
    world.pass();
    assert_eq!(world.native.as_ref().unwrap()["metadata"]["annotations"][MARK], "");
    let mut world = World::with_data();
    world.set_object(&json!({ "spec": { "providerID": "simulated:///r/vm" } }));
    world.pass();
    assert!(world.native.as_ref().unwrap()["metadata"]["annotations"][MARK].is_null());
}

/// T26: nothing is made, changed or deleted beside a Go MCM, which would take native Machines for its own.
#[test]
fn t26_nothing_is_done_beside_a_native_manager() {
    let obstacle = |is_certain| Some(ManagerObstacle { on: "a Lease to expire".to_owned(), is_certain });
    let mut world = World::with_data();
    world.obstacle = obstacle(false);
    assert_eq!(world.pass(), ["a Lease to expire"]);
    assert_eq!(world.log, [""; 0], "at the start it is only not known yet");
    world.obstacle = obstacle(true);
    world.pass();
    assert_eq!((world.condition("Ready").as_str(), &world.native), ("False MachineControllerManagerActive", &None));
    world.obstacle = None;
    world.pass();
    world.vm("simulated:///r/vm");
    world.pass();
    assert_eq!(world.condition("Ready"), "True Provisioned");
    world.obstacle = obstacle(true);
    world.delete();
    world.pass();
    assert!(world.native.as_ref().unwrap()["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(world.status().initialization.provisioned, Some(true), "I2");
}

/// A template for Clusters of the provider for AWS names no subnet: the class of each machine does.
#[test]
fn a_class_without_a_network_is_created_in_that_of_the_cluster() {
    let mut world = World::with_data();
    world.set_cluster(&json!({ "spec": { "infrastructureRef": { "kind": "AWSCluster", "name": "c" } } }));
    let content = json!({ "provider": "AWS", "providerSpec": { "region": "r" }, "nodeTemplate": {
        "capacity": {}, "instanceType": "m", "region": "r", "zone": "r-a",
    } });
    world.set_object(&json!({ "spec": { "machineClassRef": null, "machineClass": content } }));
    world.pass();
    assert_eq!(world.condition("Ready"), "False WaitingForClusterNetwork");
    assert_eq!((world.classes.get("m"), &world.native), (None, &None));
    world.network = json!({
        "spec": { "network": { "subnets": [{ "id": "subnet-1", "availabilityZone": "r-a" }] } },
        "status": { "networkStatus": { "securityGroups": { "node": { "id": "sg-1" }, "lb": { "id": "sg-2" } } } },
    });
    world.pass();
    let interfaces = json!([{ "subnetID": "subnet-1", "securityGroupIDs": ["sg-1", "sg-2"] }]);
    assert_eq!(world.classes["m"]["providerSpec"], json!({ "region": "r", "networkInterfaces": interfaces }));
    assert!(world.native.is_some());
    assert!(world.object.as_ref().unwrap()["spec"]["machineClass"]["providerSpec"]["networkInterfaces"].is_null());

    // The class is created again with its network.
    world.vm("aws:///r/i-1");
    world.pass();
    let class = world.classes.remove("m").unwrap();
    world.delete();
    world.pass();
    assert_eq!(world.classes.get("m"), Some(&class));
}
