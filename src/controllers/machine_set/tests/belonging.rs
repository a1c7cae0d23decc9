//! Adoption and release of Machines by a set.

use rstest::rstest;
use serde_json::{Value, json};

use super::world::{World, reference};

#[test]
fn an_orphan_is_adopted_and_brought_up_to_date_in_one_patch() {
    let orphan = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" }] } });
    let mut world = World::new(1)
        .with(json!({ "spec": { "template": { "spec": { "drainTimeout": "1h" } } } }))
        .machine("a", orphan);
    world.settle();
    let expected = json!({
        "metadata": { "ownerReferences": [
            reference("set-uid"), { "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" },
        ] },
        "spec": { "drainTimeout": "1h0m0s" },
    });
    assert_eq!(world.patched, [("a".to_owned(), expected)]);
    assert_eq!((world.active(), world.created.len()), (1, 0));
}

#[rstest]
#[case::other_labels(json!({ "metadata": { "ownerReferences": null, "labels": { "pool": "b" } } }), json!({}))]
#[case::being_deleted(json!({ "metadata": { "ownerReferences": null, "deletionTimestamp": "2023-11-14T10:00:00Z" } }), json!({}))]
#[case::controlled_by_another(json!({ "metadata": { "ownerReferences": [reference("other")] } }), json!({}))]
#[case::the_set_is_being_deleted(
    json!({ "metadata": { "ownerReferences": null } }),
    json!({ "metadata": { "deletionTimestamp": "2023-11-14T10:00:00Z" } })
)]
fn what_is_not_adopted(#[case] machine: Value, #[case] set: Value) {
    let mut world = World::new(0).with(set).machine("a", machine);
    world.settle();
    assert!(world.patched.is_empty() && world.deleted.is_empty());
    assert_eq!(world.status().replicas, 0);
}

/// A copied deployment has the same template, so its sets select the same Machines.
#[rstest]
#[case::it_has_the_name_of_the_set("set-abcde", "set-copy", true)]
#[case::it_has_the_name_of_the_other("copy-abcde", "copy", false)]
#[case::the_name_of_the_other_begins_with_that_of_the_set("set-b-abcde", "set-b", false)]
#[case::it_has_neither_name("restored", "copy", false)]
#[case::the_other_does_not_select_it("restored", "", true)]
fn a_machine_that_several_sets_select_is_adopted_by_the_one_whose_name_it_has(
    #[case] machine: &str,
    #[case] other: &str,
    #[case] is_adopted: bool,
) {
    let mut world = World::new(0).machine(machine, json!({ "metadata": { "ownerReferences": null } }));
    let mut rival = world.set.clone();
    rival["metadata"]["name"] = json!(other);
    if other.is_empty() {
        rival["spec"]["selector"]["matchLabels"]["pool"] = json!("b");
    }
    world.rivals.push(rival);
    world.settle();
    assert_eq!((world.patched.len(), world.deleted.len()), (usize::from(is_adopted), usize::from(is_adopted)));
}

#[test]
fn a_machine_that_no_longer_matches_is_released_and_replaced() {
    let foreign = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" });
    let strayed =
        json!({ "metadata": { "labels": { "pool": "b" }, "ownerReferences": [reference("set-uid"), foreign] } });
    let mut world = World::new(1).machine("a", strayed);
    world.settle();
    assert_eq!(world.machines["a"]["metadata"]["ownerReferences"], json!([foreign]));
    assert_eq!((world.created.len(), world.deleted.len()), (1, 0));
}
