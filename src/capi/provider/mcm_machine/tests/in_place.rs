//! Changes of the description of a VM that exists.

use rstest::rstest;
use serde_json::{Value, json};

use super::world::World;
use crate::testing::world::class;
use mcm_conversion::types::names::UPDATE_IN_PROGRESS;

/// A VM of the class `small`, and a class `other` with a change.
fn with_other_class(change: &Value) -> World {
    let mut world = World::provisioned();
    let mut other = class("small", "a");
    other["metadata"]["name"] = json!("other");
    mcm_api::patch::apply(&mut other, change);
    world.classes.insert("other".to_owned(), other);
    world
}

/// Core writes a change, and marks the object in the same write.
fn update(world: &mut World, spec: &Value) {
    world.set_object(
        &json!({ "metadata": { "annotations": { UPDATE_IN_PROGRESS: "" }, "generation": 2 }, "spec": spec }),
    );
}

/// Core ends the update.
fn end(world: &mut World) {
    world.set_object(&json!({ "metadata": { "annotations": { UPDATE_IN_PROGRESS: null } } }));
}

fn class_of_vm(world: &World) -> &Value {
    &world.native.as_ref().unwrap()["spec"]["class"]["name"]
}

fn message_of(world: &World, type_: &str) -> String {
    let conditions = world.status().conditions;
    conditions.into_iter().find(|condition| condition.type_ == type_).unwrap().message
}

fn generation_of(world: &World, type_: &str) -> Option<i64> {
    world.status().conditions.iter().find(|condition| condition.type_ == type_).unwrap().observed_generation
}

#[test]
fn a_class_that_differs_in_its_node_template_is_that_of_the_machine_with_the_same_vm() {
    let mut world = with_other_class(&json!({ "nodeTemplate": { "capacity": { "cpu": "2" } } }));
    update(&mut world, &json!({ "machineClassRef": { "name": "other" } }));
    assert_eq!(world.pass(), [""; 0]);
    assert_eq!(class_of_vm(&world), "other");
    assert_eq!(world.condition("ClassResolved"), "True Resolved");
    assert_eq!(generation_of(&world, "ClassResolved"), Some(2), "the extension reads that it is applied");
    let created = world.log.iter().filter(|line| line.contains("create MCM Machine")).count();
    assert_eq!(created, 0, "{:?}", world.log);
    end(&mut world);
    world.pass();
    assert_eq!((class_of_vm(&world), world.condition("Ready").as_str()), (&json!("other"), "True Provisioned"));
}

/// An update extension of another project claims what no VM can follow.
#[rstest]
#[case::configuration(json!({ "providerSpec": { "instanceType": "large" } }), "providerSpec")]
#[case::zone(json!({ "nodeTemplate": { "zone": "b" } }), "nodeTemplate.zone")]
#[case::data(json!({ "secretRef": { "name": "s", "namespace": "ns" } }), "secretRef")]
fn a_class_of_another_vm_is_refused_until_the_object_has_its_class_again(#[case] change: Value, #[case] field: &str) {
    let mut world = with_other_class(&change);
    update(&mut world, &json!({ "machineClassRef": { "name": "other" } }));
    let waits = world.pass();
    assert!(waits[0].starts_with("another VM: ") && waits.len() == 1, "{waits:?}");
    assert_eq!(world.condition("ClassResolved"), "False NewVMRequired");
    let message = message_of(&world, "ClassResolved");
    assert!(message.starts_with(&format!("{field} of MachineClass other")) && message.contains("delete the Machine"));
    assert_eq!((class_of_vm(&world), world.condition("Ready").as_str()), (&json!("small"), "True Provisioned"));
    end(&mut world);
    world.pass();
    assert_eq!(
        world.condition("ClassResolved"),
        "False NewVMRequired",
        "also after the extension says that it is done"
    );
    assert_eq!(class_of_vm(&world), "small");
    update(&mut world, &json!({ "machineClassRef": { "name": "small" } }));
    assert_eq!(world.pass(), [""; 0]);
    assert_eq!(world.condition("ClassResolved"), "True Resolved");
}

#[rstest]
#[case::of_the_vm("small", "False ClassMissing", "MachineClass small of the VM does not exist")]
#[case::of_the_object("other", "False ClassMissing", "MachineClass other does not exist")]
fn a_class_that_is_unknown_is_not_taken_for_the_same(
    #[case] gone: &str,
    #[case] condition: &str,
    #[case] message: &str,
) {
    let mut world = with_other_class(&json!({ "nodeTemplate": { "capacity": { "cpu": "2" } } }));
    world.classes.remove(gone);
    update(&mut world, &json!({ "machineClassRef": { "name": "other" } }));
    world.pass();
    assert_eq!(world.condition("ClassResolved"), condition);
    assert!(message_of(&world, "ClassResolved").starts_with(message));
    assert_eq!(class_of_vm(&world), "small");
}

#[test]
fn a_zone_of_the_cluster_that_gets_another_class_changes_no_machine() {
    let mut world = with_other_class(&json!({ "nodeTemplate": { "capacity": { "cpu": "2" } } }));
    world.set_machine(&json!({ "spec": { "failureDomain": "a" } }));
    let overrides = json!([{ "name": "a", "machineClassOverrides": { "small": "other" } }]);
    world.infrastructure = Some(json!({ "metadata": {}, "spec": { "failureDomains": overrides } }));
    world.pass();
    assert_eq!(class_of_vm(&world), "small");
}

/// A VM that its object describes.
fn described() -> World {
    let mut world = World::with_data();
    let content = json!({ "provider": "simulated", "providerSpec": { "zone": "a", "instanceType": "small" } });
    world.set_object(&json!({ "spec": { "machineClassRef": null, "machineClass": content } }));
    world.pass();
    world.vm("simulated:///r/vm-1");
    world.pass();
    world
}

#[test]
fn the_node_template_of_a_description_reaches_the_class_that_was_made_of_it() {
    let mut world = described();
    // A user corrected the credentials; that is no reason for another VM.
    let corrected = json!({ "credentialsSecretRef": { "name": "corrected", "namespace": "ns" } });
    mcm_api::patch::apply(world.classes.get_mut("m").unwrap(), &corrected);
    let template = json!({ "capacity": { "cpu": "2" }, "instanceType": "small", "region": "r", "zone": "a" });
    update(&mut world, &json!({ "machineClass": { "nodeTemplate": template } }));
    assert_eq!(world.pass(), [""; 0]);
    assert_eq!(world.classes["m"]["nodeTemplate"]["capacity"], json!({ "cpu": "2" }));
    assert_eq!(world.classes["m"]["credentialsSecretRef"]["name"], "corrected");
    assert_eq!(world.condition("ClassResolved"), "True Resolved");
}

#[test]
fn a_description_of_another_vm_is_refused_and_changes_no_class() {
    let mut world = described();
    let before = world.classes.clone();
    let template = json!({ "capacity": { "cpu": "2" }, "instanceType": "small", "region": "r", "zone": "a" });
    let change = json!({ "providerSpec": { "instanceType": "large" }, "nodeTemplate": template });
    update(&mut world, &json!({ "machineClass": change }));
    world.pass();
    assert_eq!(world.condition("ClassResolved"), "False NewVMRequired");
    assert!(message_of(&world, "ClassResolved").starts_with("providerSpec of machineClass"));
    assert_eq!(world.classes, before);
    world.delete();
    world.pass();
    let is_deleted = world.native.as_ref().is_some_and(|native| native["metadata"]["deletionTimestamp"].is_string());
    assert!(is_deleted, "the VM is deleted as it is: {}", world.story);
}
