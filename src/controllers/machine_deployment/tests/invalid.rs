//! Specs that cannot be acted on.

use kube::ResourceExt;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    drive::{Drive, NAME, deployment, in_place, rolling},
    support::{condition, only_set, reads},
};
use mcm_api::labels;

#[rstest]
#[case::no_selector(json!({"selector": null}), "InvalidSpec")]
#[case::negative(json!({"replicas": -1}), "InvalidSpec")]
#[case::no_amounts(json!({"strategy": {"rollingUpdate": null}}), "InvalidSpec")]
#[case::selects_all(json!({"selector": {"matchLabels": null}}), "SelectingAll")]
fn a_senseless_spec_is_reported_once_and_nothing_else_is_done(#[case] change: Value, #[case] event: &str) {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let before = drive.end_state();
    drive.edit(change);
    drive.settle();
    assert_eq!(drive.log.matches("event").count(), 1, "{}", drive.log);
    assert!(drive.log.contains(&format!("event {event}: spec.")), "{}", drive.log);
    assert!(drive.log.contains("waiting for the spec to be corrected"), "{}", drive.log);
    assert_eq!(condition(&drive, "Invalid"), reads("True", "InvalidSpec"));
    assert_eq!(drive.world.due(), []);
    let valid = serde_json::to_value(&deployment(2, rolling(1, 0)).spec).unwrap();
    drive.edit(valid);
    drive.run();
    assert_eq!(drive.end_state(), before);
}

#[test]
fn a_deployment_with_a_senseless_spec_can_be_deleted() {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    drive.edit(json!({"selector": null}));
    drive.world.deployments.delete(&mut drive.world.clock, NAME).unwrap();
    drive.run();
    assert!(drive.world.deployments.get(NAME).is_none(), "{}", drive.log);
}

#[test]
fn in_place_updates_are_left_alone_and_say_so() {
    let strategy = in_place(1, 0, "Auto");
    let mut fresh = Drive::of(deployment(2, strategy.clone()));
    fresh.policy.has_target = false;
    fresh.run();
    assert_eq!(fresh.world.sets.all().count(), 0);
    assert_eq!(fresh.deployment().finalizers(), [labels::FINALIZER]);
    assert!(fresh.log.contains("event Waiting: in-place updates need a target cluster"), "{}", fresh.log);

    let mut taken_over = Drive::settled(deployment(2, rolling(1, 0)));
    let set = only_set(&taken_over);
    taken_over.policy.has_target = false;
    taken_over.edit(json!({"strategy": strategy}));
    taken_over.edit_class("v2");
    taken_over.run();
    assert_eq!(only_set(&taken_over), set, "{}", taken_over.log);
    assert!(
        taken_over.log.contains("waiting for another strategy: in-place updates need a target cluster"),
        "{}",
        taken_over.log
    );
}
