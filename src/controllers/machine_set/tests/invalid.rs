//! Sets that cannot be acted on.

use rstest::rstest;
use serde_json::{Value, json};

use super::world::{World, after, waits};
use mcm_api::reasons::EventReason;

#[rstest]
#[case(json!({ "replicas": -1 }), "spec.replicas is -1")]
#[case(json!({ "replicas": i32::MAX }), "spec.replicas is 2147483647: set it to 1000000 or less")]
#[case(json!({ "selector": null }), "spec.selector is missing")]
#[case(json!({ "selector": { "matchLabels": { "pool": "b" } } }), "spec.selector does not match")]
#[case(json!({ "selector": { "matchExpressions": [{ "key": "q", "operator": "Exists" }] } }), "spec.selector does not match")]
#[case(json!({ "selector": { "matchExpressions": [{ "key": "q", "operator": "Near" }] } }), "spec.selector.matchExpressions")]
#[case(json!({ "template": { "spec": { "class": { "kind": "" } } } }), "spec.template.spec.class.kind is empty")]
#[case(json!({ "template": { "spec": { "class": { "name": null } } } }), "spec.template.spec.class.name is empty")]
#[case(json!({ "selector": { "matchLabels": null } }), "spec.selector is empty and selects every machine")]
#[case(json!({ "template": { "metadata": null } }), "spec.template.metadata.labels is empty")]
fn an_invalid_set_says_so_once_and_touches_nothing(#[case] spec: Value, #[case] text: &str) {
    let mut world = World::new(3).with(json!({ "spec": spec })).machines(1);
    let valid = World::new(1).set["spec"].clone();
    let plan = world.plan();
    let event = plan.steps[0].event.clone().unwrap();
    assert_eq!((event.warning, event.reason), (true, EventReason::InvalidSpec));
    assert!(event.message.starts_with(text), "{}", event.message);
    let rest = world.settle();
    assert_eq!((world.status_writes, world.status().replicas, world.active()), (1, 1, 1));
    assert_eq!(world.status().conditions[0].type_, "Invalid");
    assert!(waits(&rest).contains(text));

    world.set["spec"] = valid;
    world.settle();
    assert_eq!(world.status().conditions, []);
}

#[test]
fn an_invalid_set_can_be_deleted() {
    let mut world = World::new(1)
        .with(json!({ "metadata": { "deletionTimestamp": after(0) }, "spec": { "selector": null } }))
        .machines(2);
    world.settle();
    assert_eq!(world.deleted.len(), 2);
    world.finish_deletions();
    world.settle();
    assert_eq!(world.set["metadata"]["finalizers"], json!([]));
}
