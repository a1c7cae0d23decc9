//! Freezing and unfreezing of sets, and the labels and conditions that show it.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use super::world::{NOW, World, frozen, frozen_deployment};
use mcm_api::reasons::EventReason;
use mcm_rules::{plan::WaitKind, safety::overshoot::OvershootMargins};

const UNFREEZE: &str = "safety.machine.sapcloud.io/unfreeze";

fn said(reason: &str, text: &str) -> Option<(String, String)> {
    Some((reason.to_owned(), text.to_owned()))
}

#[test]
fn a_set_with_too_many_machines_is_frozen_and_so_is_its_deployment() {
    let mut world = World::new(6);
    let reasons = world.settle();
    assert_eq!(
        reasons,
        ["freeze set a: 6 machines >= 6", "mark the deployment as frozen: its set a is"],
        "one write of each"
    );
    let text = "The number of machines backing MachineSet: a is 6 >= 6 which is the Max-ScaleUp-Limit";
    assert_eq!(world.marks_of_set("a"), (true, said("OverShootingReplicaCount", text)));
    assert_eq!(world.marks(), (true, said("OverShootingReplicaCount", text)));
    assert_eq!(world.events, [(EventReason::FrozeMachineSet, "a".to_owned())]);
}

#[rstest]
#[case::below_the_limit(json!({}), 5, false)]
#[case::at_the_limit(json!({}), 6, true)]
#[case::a_share_is_rounded_up(json!({"replicas": 5, "strategy": {"rollingUpdate": {"maxSurge": "25%"}}}), 8, false)]
#[case::and_reached(json!({"replicas": 5, "strategy": {"rollingUpdate": {"maxSurge": "25%"}}}), 9, true)]
#[case::recreate_has_no_surge(json!({"strategy": {"type": "Recreate", "rollingUpdate": null}}), 4, false)]
#[case::recreate_is_frozen_too(json!({"strategy": {"type": "Recreate", "rollingUpdate": null}}), 5, true)]
#[case::no_surge_given(json!({"strategy": {"rollingUpdate": {"maxSurge": null}}}), 5, true)]
#[case::in_place(json!({"strategy": {"type": "InPlaceUpdate", "rollingUpdate": null, "inPlaceUpdate": {"maxSurge": 2}}}), 6, false)]
#[case::the_rolling_block_counts_first(json!({"strategy": {"inPlaceUpdate": {"maxSurge": 9}}}), 6, true)]
#[case::an_invalid_surge_says_nothing(json!({"strategy": {"rollingUpdate": {"maxSurge": "many"}}}), 60, false)]
#[case::negative_replicas_neither(json!({"replicas": -1}), 60, false)]
#[case::a_negative_surge_is_none(json!({"strategy": {"rollingUpdate": {"maxSurge": -3}}}), 4, false)]
fn the_limit_is_replicas_and_surge_and_margin(#[case] spec: Value, #[case] machines: usize, #[case] freezes: bool) {
    let mut world = World::new(machines).deployed(json!({ "spec": spec }));
    world.settle();
    assert_eq!((world.marks_of_set("a").0, world.marks().0), (freezes, freezes));
}

#[rstest]
#[case::below_twice_its_replicas_and_margin(5, false)]
#[case::at_the_limit(6, true)]
fn a_set_without_a_deployment_may_have_twice_its_replicas(#[case] machines: usize, #[case] freezes: bool) {
    let mut world = World::stand_alone(2, machines);
    world.settle();
    assert_eq!(world.marks_of_set("a").0, freezes);
}

#[rstest]
#[case::margin_of_the_flag(OvershootMargins { up: 4, down: 1 }, 7, false)]
#[case::reached(OvershootMargins { up: 4, down: 1 }, 8, true)]
fn the_margin_is_that_of_the_flag(#[case] margins: OvershootMargins, #[case] machines: usize, #[case] freezes: bool) {
    let mut world = World::new(machines);
    world.policy.margins = margins;
    world.settle();
    assert_eq!(world.marks_of_set("a").0, freezes);
}

#[test]
fn a_freeze_that_the_go_program_left_is_lifted_when_few_enough_machines_are_left() {
    let mut world = World::new(5).with(frozen()).deployed(frozen_deployment());
    let reasons = world.settle();
    assert_eq!(reasons, ["unfreeze set a: 5 machines <= 5", "no set of the deployment is frozen"]);
    assert_eq!((world.marks_of_set("a"), world.marks()), ((false, None), (false, None)));
    assert_eq!(world.events, [(EventReason::UnfrozeMachineSet, "a".to_owned())]);
}

#[rstest]
#[case::still_too_many(6, true)]
#[case::more_than_the_lower_limit(5, true)]
#[case::at_the_lower_limit(3, false)]
fn between_the_limits_everything_stays_as_it_is(#[case] machines: usize, #[case] stays: bool) {
    let margins = OvershootMargins { up: 2, down: 3 };
    let mut world = World::new(machines).with(frozen()).deployed(frozen_deployment());
    world.policy.margins = margins;
    assert_eq!((world.settle().is_empty(), world.marks_of_set("a").0), (stays, stays));
    let mut thawed = World::new(machines.min(5));
    thawed.policy.margins = margins;
    assert_eq!(thawed.settle(), [""; 0]);
}

#[test]
fn limits_at_the_same_number_do_not_freeze_and_unfreeze_in_turns() {
    let mut world = World::new(6);
    world.policy.margins = OvershootMargins { up: 2, down: 0 };
    world.settle();
    assert!(world.marks_of_set("a").0);
    world.pass(60);
    assert_eq!(world.settle(), [""; 0]);
}

#[rstest]
#[case::by_a_label_alone(json!({"metadata": {"labels": {"freeze": "True"}}}))]
#[case::by_a_condition_alone(json!({"status": {"machineSetCondition": [{"type": "Frozen", "status": "True"}]}}))]
fn a_freeze_put_on_by_hand_or_left_halfway_ends_with_the_next_check(#[case] change: Value) {
    let mut world = World::new(3).with(change);
    world.settle();
    assert_eq!((world.marks_of_set("a"), world.marks()), ((false, None), (false, None)));
}

#[test]
fn a_label_on_the_deployment_alone_is_removed() {
    let mut world = World::new(3).deployed(frozen_deployment());
    assert_eq!(world.settle(), ["no set of the deployment is frozen"]);
    assert_eq!((world.marks(), world.events.len()), ((false, None), 0));
}

#[test]
fn another_value_of_the_label_freezes_nothing_and_stays() {
    let label = json!({"metadata": {"labels": {"freeze": "true"}}});
    let mut world = World::new(3).with(label.clone()).deployed(label);
    assert_eq!(world.settle(), [""; 0]);
}

#[test]
fn a_deployment_of_a_frozen_set_gets_the_marks_that_it_lacks() {
    let mut world = World::new(5).with(frozen());
    world.policy.margins = OvershootMargins { up: 2, down: 3 };
    world.settle();
    let text = "MachineDeployment State was inconsistent, hence safety controller has fixed this and frozen it";
    assert_eq!(world.marks(), (true, said("MachineDeploymentStateSync", text)));
    assert!(world.events.is_empty(), "the set was frozen before");
}

#[test]
fn all_sets_are_judged_in_one_pass() {
    let mut world = World::new(6).with_set("b", 7).with_set("c", 2);
    world.settle();
    assert_eq!(["a", "b", "c"].map(|name| world.marks_of_set(name).0), [true, true, false]);
    world.snapshot.sets[0].machines = 0;
    world.settle();
    assert_eq!(["a", "b"].map(|name| world.marks_of_set(name).0), [false, true]);
    assert!(world.marks().0, "one of its sets still is");
    world.snapshot.sets[1].machines = 0;
    world.settle();
    assert!(!world.marks().0);
}

#[rstest]
#[case::on_the_set(true)]
#[case::on_the_deployment(false)]
fn the_annotation_unfreezes_whatever_the_number_and_a_period_later_the_number_counts_again(#[case] on_set: bool) {
    let annotation = json!({"metadata": {"annotations": {UNFREEZE: "yes"}}});
    let mut world = World::new(9).with_set("b", 9);
    world.settle();
    world = if on_set { world.with(annotation) } else { world.deployed(annotation) };
    world.events.clear();
    world.settle();
    assert_eq!((world.marks_of_set("a"), world.marks_of_set("b").0), ((false, None), on_set));
    assert_eq!(world.marks().0, on_set, "set b is frozen");
    assert!(world.snapshot.sets.iter().all(|one| one.set.metadata.annotations.iter().flatten().count() == 0));
    assert_eq!(world.snapshot.deployment.as_ref().unwrap().metadata.annotations.iter().flatten().count(), 0);
    assert_eq!(world.events.len(), if on_set { 1 } else { 2 });

    world.pass(59);
    assert_eq!(world.settle(), [""; 0], "not frozen again at once");
    world.pass(1);
    world.settle();
    assert!(world.marks_of_set("a").0 && world.marks_of_set("b").0);
}

#[test]
fn the_annotation_on_an_unfrozen_object_is_only_removed() {
    let annotation = json!({"metadata": {"annotations": {UNFREEZE: "True"}}});
    let mut world = World::new(3).with(annotation.clone()).deployed(annotation);
    world.settle();
    assert!(world.events.is_empty());
    assert_eq!(world.settle(), [""; 0]);
}

#[rstest]
#[case::machines_are_uncertain(|world: &mut World| world.snapshot.uncertain = Some("machines: not read yet".to_owned()))]
#[case::the_deployment_is_being_deleted(|world: &mut World| {
    *world = world.clone().deployed(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
})]
#[case::the_set_is_being_deleted(|world: &mut World| {
    *world = world.clone().with(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
})]
fn nothing_is_concluded(#[case] change: fn(&mut World)) {
    let mut over = World::new(60);
    change(&mut over);
    assert_eq!(over.settle(), [""; 0]);
}

#[test]
fn a_freeze_does_not_end_by_a_number_that_may_be_too_low() {
    let mut world = World::new(0).with(frozen()).deployed(frozen_deployment());
    world.snapshot.uncertain = Some("machines: not trusted".to_owned());
    assert_eq!(world.settle(), [""; 0]);
    let waits = world.plan().waits;
    assert_eq!((waits[0].kind, waits[0].until.map(|at| at.as_second())), (WaitKind::CacheUntrusted, Some(NOW + 60)));
}

#[test]
fn a_deployment_stays_marked_while_one_of_its_sets_cannot_be_decoded() {
    let mut world = World::new(3).deployed(frozen_deployment());
    world.snapshot.unreadable_sets = vec!["b".to_owned()];
    assert_eq!(world.settle(), [""; 0]);
    world.snapshot.unreadable_sets.clear();
    world.settle();
    assert!(!world.marks().0);
}

#[rstest]
#[case::default(Duration::from_mins(1), 60)]
#[case::of_the_flag(Duration::from_secs(7), 7)]
#[case::never_without_a_pause(Duration::ZERO, 1)]
fn the_numbers_are_checked_periodically(#[case] period: Duration, #[case] seconds: i64) {
    let mut world = World::new(3);
    world.policy.period = period;
    let plan = world.plan();
    assert_eq!(plan.requeue_at().map(|at| at.as_second()), Some(NOW + seconds));
    assert_eq!(plan.waits[0].kind, WaitKind::MachineCount);
}
