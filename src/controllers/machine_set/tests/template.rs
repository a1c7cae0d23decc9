//! Fields that Machines copy from the template.

use rstest::rstest;
use serde_json::{Value, json};

use super::world::{World, annotated, both, now, phase, reference};
use mcm_api::labels;

#[test]
fn template_changes_reach_machines_in_one_patch_that_names_only_what_differs() {
    let mut world = World::new(1)
        .with(json!({ "spec": { "template": { "spec": {
            "class": { "kind": "MachineClass", "name": "class" },
            "healthTimeout": "10m", "drainTimeout": "2h",
            "nodeTemplate": { "metadata": { "labels": { "a": "2", "b": "1" } } },
        } } } }))
        .machine(
            "a",
            json!({ "spec": {
            "class": { "kind": "OldClass", "name": "class" },
            "healthTimeout": "10m0s", "drainTimeout": "1h", "maxEvictRetries": 3,
            "nodeTemplate": { "metadata": { "labels": { "a": "1", "b": "1" }, "annotations": { "gone": "x" } } },
        } }),
        );
    world.set["spec"]["template"]["spec"]["nodeTemplate"]["metadata"]["creationTimestamp"] = Value::Null;
    world.settle();
    let expected = json!({ "spec": {
        "class": { "kind": "MachineClass" },
        "drainTimeout": "2h0m0s", "maxEvictRetries": null,
        "nodeTemplate": { "metadata": { "labels": { "a": "2" }, "annotations": null } },
    } });
    assert_eq!(world.patched, [("a".to_owned(), expected)]);
    assert!(world.deleted.is_empty());
}

#[rstest]
#[case::failed(both(phase("Failed"), annotated(labels::PRESERVE, "now")))]
#[case::terminating(json!({ "metadata": { "deletionTimestamp": "2023-11-14T10:00:00Z" } }))]
fn machines_past_use_take_over_only_the_kind_of_the_class(#[case] state: Value) {
    let mut world = World::new(0)
        .with(json!({ "spec": { "replicas": 1, "template": { "spec": { "drainTimeout": "2h" } } } }))
        .machine("a", both(state, json!({ "spec": { "class": { "kind": "OldClass" } } })));
    world.settle();
    assert_eq!(world.patched, [("a".to_owned(), json!({ "spec": { "class": { "kind": "MachineClass" } } }))]);
}

#[rstest]
#[case::null_timestamp(json!({ "nodeTemplate": { "metadata": { "creationTimestamp": null } } }), json!({}))]
#[case::empty_parts(json!({ "nodeTemplate": { "metadata": {}, "spec": {} } }), json!({ "nodeTemplate": {} }))]
#[case::spelling_of_durations(json!({ "drainTimeout": "120m" }), json!({ "drainTimeout": "2h0m0s" }))]
#[case::another_class_name(json!({ "class": { "kind": "MachineClass", "name": "next" } }), json!({}))]
fn what_means_the_same_is_not_written(#[case] template: Value, #[case] spec: Value) {
    let mut world = World::new(1).machine("a", json!({ "spec": spec }));
    for (key, value) in template.as_object().unwrap() {
        world.set["spec"]["template"]["spec"][key] = value.clone();
    }
    world.settle();
    assert_eq!(world.patched, []);
}

/// MV6 of Cluster API: clusterctl waits for a Machine of a pool until its VM is known.
#[test]
fn mv6_a_machine_of_a_pool_is_born_with_the_mark_that_blocks_a_move() {
    let labels = json!({ labels::POOL: "p" });
    let mut world = World::new(1).with(json!({ "spec": { "template": { "metadata": { "labels": labels } } } }));
    world.settle();
    assert_eq!(world.machines[&world.created[0]]["metadata"]["annotations"][labels::BLOCK_MOVE], "");
}

#[test]
fn a_machine_is_born_as_its_template_says_and_guarded() {
    let mut world =
        World::new(1).with(annotated(labels::EFFECTIVE_CREATION_TIMEOUT, "5m")).with(json!({ "spec": { "template": {
            "metadata": { "annotations": { "x": "y" }, "finalizers": ["foreign"] },
            "spec": { "providerID": "shared", "creationTimeout": "20m", "drainTimeout": "2h" },
        } } }));
    world.settle();
    let expected = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": world.created[0], "namespace": "ns", "uid": format!("uid-{}", world.created[0]),
            "creationTimestamp": now().to_string(),
            "labels": { "pool": "a", "name": "deployment" },
            "annotations": { "x": "y", labels::EFFECTIVE_CREATION_TIMEOUT: "5m" },
            "finalizers": ["foreign", labels::FINALIZER],
            "ownerReferences": [reference("set-uid")],
        },
        "spec": {
            "class": { "kind": "MachineClass", "name": "class" },
            "creationTimeout": "5m0s", "drainTimeout": "2h0m0s",
        },
    });
    assert_eq!(world.machines[&world.created[0]], expected);
    assert_eq!(world.patched, [], "the overridden timeout is not taken back");
}
