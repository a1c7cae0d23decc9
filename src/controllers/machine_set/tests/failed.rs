//! Failed Machines: replaced or preserved.

use jiff::SignedDuration;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    super::{Action, Snapshot, YoungFailures, plan},
    world::{World, after, annotated, both, merge, now, phase, preserved_until, waits},
};
use mcm_api::labels;

#[test]
fn a_failed_machine_is_replaced_after_it_was_deleted() {
    let mut world = World::new(2).machine("a", phase("Failed")).machine("b", json!({}));
    world.settle();
    assert_eq!((world.deleted.as_slice(), world.created.len(), world.peak), (&["a".to_owned()][..], 1, 2));
}

#[test]
fn failed_machines_stay_while_the_set_is_short() {
    let world = World::new(3).machine("a", phase("Failed")).machine("b", json!({}));
    let steps = world.plan().steps;
    assert!(matches!(steps.as_slice(), [step] if matches!(step.action, Action::CreateMachine(_))), "{steps:?}");
}

#[rstest]
#[case::nobody_asked(json!({}), true)]
#[case::time_in_the_future(preserved_until(60), false)]
#[case::time_is_over(both(preserved_until(0), annotated(labels::PRESERVE, "now")), true)]
#[case::asked_now(annotated(labels::PRESERVE, "now"), false)]
#[case::asked_for_failures(annotated(labels::PRESERVE, "when-failed"), false)]
#[case::refused(annotated(labels::PRESERVE, "false"), true)]
#[case::empty(annotated(labels::PRESERVE, ""), true)]
#[case::unknown_word(annotated(labels::PRESERVE, "please"), true)]
#[case::asked_on_the_node(annotated(labels::LAST_NODE_PRESERVE, "when-failed"), false)]
#[case::the_node_speaks_first(
    both(annotated(labels::LAST_NODE_PRESERVE, "false"), annotated(labels::PRESERVE, "now")),
    true
)]
#[case::the_node_says_nothing(
    both(annotated(labels::LAST_NODE_PRESERVE, ""), annotated(labels::PRESERVE, "now")),
    false
)]
fn a_preserved_machine_is_not_replaced(#[case] wish: Value, #[case] replaced: bool) {
    let mut world = World::new(1).machine("a", both(phase("Failed"), wish));
    let rest = world.settle();
    assert_eq!(world.deleted.len(), usize::from(replaced));
    assert_eq!(waits(&rest).contains("preservation of failed machines to end: a"), !replaced);
}

/// If every VM gets the name of a Node that another left behind, only this delay limits how many are made.
#[rstest]
#[case::just_created(-10, "Create", Some(20))]
#[case::old_enough(-30, "Create", None)]
#[case::created_by_a_clock_that_is_ahead(10, "Create", None)]
#[case::failed_later(-10, "HealthCheck", None)]
fn a_machine_whose_creation_just_failed_is_not_replaced_at_once(
    #[case] created: i64,
    #[case] operation: &str,
    #[case] replaced_in: Option<i64>,
) {
    let failed = json!({
        "metadata": { "creationTimestamp": after(created) },
        "status": { "lastOperation": { "type": operation, "state": "Failed", "description": "VM using old node obj" } },
    });
    let mut world = World::new(1).machine("a", both(phase("Failed"), failed));
    let rest = world.settle();
    assert_eq!(world.deleted.len(), usize::from(replaced_in.is_none()));
    let Some(seconds) = replaced_in else { return };
    assert_eq!(rest.requeue_at(), Some(now() + SignedDuration::from_secs(seconds)));
    assert!(waits(&rest).contains("1 machine to be old enough to be replaced"), "{rest:?}");
    world.now = now() + SignedDuration::from_secs(seconds);
    world.settle();
    assert_eq!(world.deleted, ["a"]);
}

/// Clocks that are wrong let each new Machine fail at once. Their difference does not shorten this delay.
#[rstest]
#[case::at_first(0, 4, Some(16))]
#[case::again(3, 10, Some(70))]
#[case::old_enough(3, 80, None)]
fn a_young_machine_is_not_replaced_at_once_whatever_its_creation_timestamp(
    #[case] replacements: u32,
    #[case] age: i64,
    #[case] replaced_in: Option<i64>,
) {
    for operation in ["Create", "HealthCheck"] {
        let failed = json!({
            "metadata": { "creationTimestamp": after(-1800), "uid": "u-a" },
            "status": { "lastOperation": { "type": operation, "state": "Failed", "description": "late" } },
        });
        let world = World::new(1).machine("a", both(phase("Failed"), failed));
        let ages = [("u-a".to_owned(), SignedDuration::from_secs(age))].into();
        let young_failures = YoungFailures { ages, replacements };
        let rest = plan(&Snapshot { young_failures, ..world.snapshot() });
        let is_deleted = rest.steps.iter().any(|step| matches!(step.action, Action::DeleteMachine(_)));
        assert_eq!(is_deleted, replaced_in.is_none(), "{rest:?}");
        if let Some(seconds) = replaced_in {
            assert!(waits(&rest).contains("1 machine to be old enough to be replaced"), "{rest:?}");
            let until = rest.waits.iter().filter_map(|wait| wait.until).min();
            assert_eq!(until, Some(now() + SignedDuration::from_secs(seconds)));
        }
    }
}

#[test]
fn the_end_of_a_preservation_wakes_the_set() {
    let mut world = World::new(1).machine("a", both(phase("Failed"), preserved_until(60)));
    let rest = world.settle();
    assert_eq!(rest.requeue_at(), Some(now() + SignedDuration::from_secs(60)));
    world.now = now() + SignedDuration::from_secs(60);
    world.settle();
    assert_eq!(world.deleted, ["a"]);
}

#[test]
fn the_youngest_failed_machines_are_preserved_automatically_up_to_the_limit() {
    let failed = |age: i64| both(phase("Failed"), json!({ "metadata": { "creationTimestamp": after(-age) } }));
    let mut world = World::new(4)
        .with(json!({ "spec": { "autoPreserveFailedMachineMax": 2 } }))
        .machine("a", failed(30))
        .machine("b", failed(20))
        .machine("c", failed(10))
        .machine("d", both(failed(5), annotated(labels::PRESERVE, "false")));
    world.settle();
    assert_eq!(world.patched.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(world.deleted, ["a", "d"]);
    assert_eq!(world.status().auto_preserve_failed_machine_count, 2);

    merge(&mut world.set, json!({ "spec": { "autoPreserveFailedMachineMax": 1 } }));
    world.settle();
    assert_eq!(world.machines["b"]["metadata"]["annotations"], json!({}));
    assert_eq!(world.deleted, ["a", "d", "b"]);
}

#[rstest]
#[case::preserved(1, false)]
#[case::not_preserved(0, true)]
fn a_preserved_machine_that_cannot_be_decoded_counts(#[case] unreadable: usize, #[case] expected: bool) {
    let mut world =
        World::new(2).with(json!({ "spec": { "autoPreserveFailedMachineMax": 1 } })).machine("a", phase("Failed"));
    world.unreadable = vec!["u".to_owned()];
    world.unreadable_preserved = unreadable;
    world.settle();
    assert_eq!((!world.patched.is_empty(), world.deleted.is_empty()), (expected, expected));
    assert_eq!(world.status().auto_preserve_failed_machine_count, 1);
}

#[rstest]
#[case::by_its_time(both(annotated(labels::PRESERVE, "auto-preserved"), preserved_until(0)))]
#[case::as_the_machine_controller_leaves_it(annotated(labels::PRESERVE, "false"))]
fn a_machine_whose_preservation_is_over_is_not_preserved_again(#[case] wish: Value) {
    let mut world = World::new(1)
        .with(json!({ "spec": { "autoPreserveFailedMachineMax": 1 } }))
        .machine("a", both(phase("Failed"), wish));
    world.settle();
    assert_eq!((world.deleted.len(), world.patched.len()), (1, 0));
}
