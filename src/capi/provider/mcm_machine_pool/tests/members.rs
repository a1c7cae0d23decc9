//! Pools whose VMs are Machines of Cluster API, too.

use serde_json::{Value, json};

use super::world::{World, deleted};
use crate::api::patch;

fn running() -> World {
    let mut world = World::new();
    world.set_object(&json!({ "spec": { "machinePoolMachines": "Enabled" } }));
    world.pass();
    world.catch_up();
    world.pass();
    world.core_follows();
    world.pass();
    (world.log, world.story) = (Vec::new(), String::new());
    world
}

/// P12, P13, P15.
#[test]
fn each_native_machine_has_an_mcm_machine_of_which_core_makes_a_machine() {
    let world = running();
    assert_eq!(world.status().infrastructure_machine_kind, "MCMMachine");
    assert_eq!(world.members.keys().collect::<Vec<_>>(), ["p-0", "p-1", "p-2"]);
    let member = &world.members["p-0"];
    let labels = &member["metadata"]["labels"];
    assert_eq!(
        (&labels["cluster.x-k8s.io/pool-name"], &labels["cluster.x-k8s.io/cluster-name"]),
        (&json!("mp"), &json!("c"))
    );
    let owner = &member["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["controller"]),
        (&json!("MCMMachinePool"), &Value::Null),
        "the controller is the Machine"
    );
    assert_eq!(member["spec"]["machineClassRef"]["name"], "small");
    assert_eq!(world.template()["spec"]["disableHealthTimeout"], true, "P17: a health check of Cluster API decides");
}

/// P14: never the instance.
#[test]
fn a_native_machine_that_its_set_deletes_is_deleted_by_way_of_its_machine() {
    let mut world = running();
    patch::apply(world.natives.get_mut("p-1").unwrap(), &deleted());
    world.pass();
    assert_eq!(world.log[0], "delete Machine p-1");
    assert!(world.machines["p-1"]["metadata"]["deletionTimestamp"].is_string());
    assert!(world.machines["p-0"]["metadata"]["deletionTimestamp"].is_null());
    assert!(world.pass().contains(&"core to drain the Node of Machine p-1".to_owned()));
}

/// P14: never an MCMMachine that has no Machine yet.
#[test]
fn an_mcm_machine_without_a_machine_waits_for_core() {
    let mut world = running();
    world.machines.remove("p-1");
    patch::apply(world.natives.get_mut("p-1").unwrap(), &deleted());
    assert!(world.pass().contains(&"core to make Machine p-1, so that it can be deleted".to_owned()));
}

/// P14: the annotation arrives before the number of machines does, or another VM would go.
#[test]
fn the_machine_that_somebody_chose_goes_first() {
    let mut world = running();
    let chosen = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/delete-machine": "yes" } } });
    patch::apply(world.machines.get_mut("p-2").unwrap(), &chosen);
    world.set_pool(&json!({ "spec": { "replicas": 2 } }));
    world.pass();
    assert!(world.log[0].starts_with("patch native Machine p-2"), "{:?}", world.log);
    assert!(world.log[1].starts_with("patch native MachineDeployment p"), "{:?}", world.log);
    assert_eq!(world.natives["p-2"]["metadata"]["annotations"]["machinepriority.machine.sapcloud.io"], "1");
    let undone = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/delete-machine": null } } });
    patch::apply(world.machines.get_mut("p-2").unwrap(), &undone);
    world.pass();
    assert!(world.natives["p-2"]["metadata"]["annotations"]["machinepriority.machine.sapcloud.io"].is_null());
}

#[test]
fn a_machine_whose_native_machine_is_gone_is_deleted() {
    let mut world = running();
    world.natives.remove("p-1");
    world.unreadable_machines.push("p-2".to_owned());
    world.natives.remove("p-2");
    world.pass();
    assert!(world.machines["p-1"]["metadata"]["deletionTimestamp"].is_string());
    assert!(world.machines["p-2"]["metadata"]["deletionTimestamp"].is_null(), "unknown is not absent");
}

#[test]
fn a_pool_that_is_deleted_has_its_machines_drained_by_core() {
    let mut world = running();
    world.delete();
    world.pass();
    assert!(world.deployments["p"]["metadata"]["deletionTimestamp"].is_string());
    world.natives.values_mut().for_each(|native| patch::apply(native, &deleted()));
    world.pass();
    assert!(world.machines.values().all(|machine| machine["metadata"]["deletionTimestamp"].is_string()));
}

#[test]
fn an_mcm_machine_of_somebody_else_is_left_alone() {
    let mut world = running();
    world.members.get_mut("p-0").unwrap()["metadata"]["labels"] = json!({});
    world.natives.remove("p-0");
    world.pass();
    assert!(world.machines["p-0"]["metadata"]["deletionTimestamp"].is_null());
}
