//! Pools whose VMs are also Machines of Cluster API.

use rstest::rstest;
use serde_json::{Value, json};

use super::world::World;
use crate::testing::world::deleted;
use mcm_api::patch;

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
    assert!(world.pass().contains(&"Cluster API core to drain the Node of Machine p-1".to_owned()));
}

/// P14: never an MCMMachine that has no Machine yet.
#[test]
fn an_mcm_machine_without_a_machine_waits_for_core() {
    let mut world = running();
    world.machines.remove("p-1");
    patch::apply(world.natives.get_mut("p-1").unwrap(), &deleted());
    assert!(world.pass().contains(&"Cluster API core to create Machine p-1, so that it can be deleted".to_owned()));
}

/// P14: the annotation arrives before the number of machines does, or another VM would go.
#[test]
fn the_machine_that_somebody_chose_goes_first() {
    let mut world = running();
    let chosen = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/delete-machine": "yes" } } });
    patch::apply(world.machines.get_mut("p-2").unwrap(), &chosen);
    world.set_pool(&json!({ "spec": { "replicas": 2 } }));
    world.pass();
    let at = |what: &str| world.log.iter().position(|line| line.starts_with(what)).unwrap();
    assert!(at("patch MCM Machine p-2") < at("patch MCM MachineDeployment p"), "{:?}", world.log);
    assert_eq!(world.natives["p-2"]["metadata"]["annotations"]["machinepriority.machine.sapcloud.io"], "1");
    let undone = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/delete-machine": null } } });
    patch::apply(world.machines.get_mut("p-2").unwrap(), &undone);
    world.pass();
    assert!(world.natives["p-2"]["metadata"]["annotations"]["machinepriority.machine.sapcloud.io"].is_null());
}

#[test]
fn a_machine_without_its_native_machine_is_deleted() {
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

/// Core makes no Machine for a pool that is being deleted, so nothing else would delete the MCMMachine.
#[rstest]
#[case::pool_deleted(|world: &mut World| world.delete())]
#[case::machine_pool_deleted_and_its_pool_not_yet(|world: &mut World| world.set_pool(&deleted()))]
fn a_pool_that_goes_before_core_made_a_machine_is_deleted(#[case] go: fn(&mut World)) {
    let mut world = running();
    forget_machine(&mut world, "p-1");
    go(&mut world);
    world.pass();
    world.natives.values_mut().for_each(|native| patch::apply(native, &deleted()));
    world.pass();
    assert!(!world.members.contains_key("p-1"), "{}", world.story);
    assert!(world.members.contains_key("p-0"), "its Machine is drained by core");
    let at = |what: &str| world.log.iter().position(|line| line == what).unwrap();
    assert!(at("read the Machines live") < at("delete MCMMachine p-1"), "{:?}", world.log);
    world.delete();
    world.pass();
    for name in ["p-0", "p-2"] {
        world.machines.remove(name);
        world.members.remove(name);
    }
    world.natives.clear();
    world.deployments.clear();
    world.pass();
    assert!(world.object.is_none(), "{}", world.story);
}

/// The Machine came while the pool was being deleted, and the cache has not seen it.
#[test]
fn a_machine_that_core_just_made_is_deleted_in_place_of_its_mcm_machine() {
    let mut world = running();
    let machine = forget_machine(&mut world, "p-1");
    world.unseen.insert("p-1".to_owned(), machine);
    world.delete();
    world.pass();
    world.natives.values_mut().for_each(|native| patch::apply(native, &deleted()));
    world.pass();
    assert!(world.members.contains_key("p-1"));
    assert!(world.machines["p-1"]["metadata"]["deletionTimestamp"].is_string());
}

/// Core has not made the Machine of a member yet.
fn forget_machine(world: &mut World, name: &str) -> Value {
    let owners = &mut world.members.get_mut(name).unwrap()["metadata"]["ownerReferences"];
    *owners = json!([owners[0]]);
    world.machines.remove(name).unwrap()
}

/// P14: the autoscaler annotates a Machine and then lowers the number. The watch of Machines is late.
#[test]
fn the_machines_are_read_live_before_their_number_is_lowered() {
    let mut world = running();
    let chosen = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/delete-machine": "yes" } } });
    world.unseen.insert("p-2".to_owned(), chosen);
    world.set_pool(&json!({ "spec": { "replicas": 2 } }));
    world.pass();
    assert_eq!(world.log[0], "read the Machines live");
    assert!(world.log[1].starts_with("patch MCM Machine p-2"), "{:?}", world.log);
    assert!(world.log[2].starts_with("patch MCM MachineDeployment p"), "{:?}", world.log);
    world.log.clear();
    world.set_pool(&json!({ "spec": { "replicas": 4 } }));
    world.pass();
    assert!(!world.log.contains(&"read the Machines live".to_owned()), "more machines need no choice");
}

/// Members have the label of the manager of their pool.
#[test]
fn another_label_of_the_manager_reaches_the_mcm_machines_in_place() {
    let mut world = running();
    world.filter = Some("blue".to_owned());
    world.set_object(&json!({ "metadata": { "labels": { "cluster.x-k8s.io/watch-filter": "blue" } } }));
    world.pass();
    assert_eq!(world.members["p-0"]["metadata"]["labels"]["cluster.x-k8s.io/watch-filter"], "blue");
    assert_eq!(world.natives.len(), 3);
}

#[test]
fn an_mcm_machine_of_another_client_is_not_touched() {
    let mut world = running();
    world.members.get_mut("p-0").unwrap()["metadata"]["labels"] = json!({});
    world.natives.remove("p-0");
    world.pass();
    assert!(world.machines["p-0"]["metadata"]["deletionTimestamp"].is_null());
}
