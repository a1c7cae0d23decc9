//! How many Machines there are.

use kube::ResourceExt;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    super::{Action, Snapshot, construct, replicas},
    world::{World, both, phase, waits},
};
use mcm_api::{labels, reasons::EventReason};
use mcm_rules::plan::ReconcileHold;

#[test]
fn a_new_set_is_guarded_first_then_grows_then_reports() {
    let mut world = World::new(3).with(json!({ "metadata": { "finalizers": ["foreign"] } }));
    let first = world.plan();
    assert!(matches!(first.steps[0].action, Action::PatchSet(_)));
    assert_eq!(first.steps.len(), 4);
    let event = first.steps[1].event.clone().unwrap();
    assert_eq!(event.reason, EventReason::SuccessfulCreate);
    assert!(event.message.starts_with("Created machine: set-"), "{}", event.message);
    assert_eq!(first.steps[1].reason, "0 machines < 3 replicas");

    let rest = world.settle();
    assert_eq!(world.set["metadata"]["finalizers"], json!(["foreign", labels::FINALIZER]));
    assert_eq!((world.created.len(), world.status_writes), (3, 1));
    assert_eq!(waits(&rest), "3 of 3 machines to become available");
}

#[test]
fn a_deletion_is_told_with_the_name_of_the_machine() {
    let plan = World::new(0).machines(1).plan();
    let event = plan.steps[0].event.clone().unwrap();
    assert_eq!((event.warning, event.reason), (false, EventReason::SuccessfulDelete));
    assert_eq!(event.message, "Deleted machine: m0000");
}

#[test]
fn a_new_set_without_machines_is_guarded_then_reports() {
    let mut world = World::new(0).with(json!({ "metadata": { "finalizers": null } }));
    assert_eq!(world.plan().steps.len(), 1, "one write of the set at a time");
    world.settle();
    assert_eq!((world.status_writes, world.status().observed_generation), (1, 1));
}

#[rstest]
#[case(10, 3)]
#[case(150, 3)]
#[case(1000, 60)]
#[case(1, 0)]
fn a_scale_down_deletes_exactly_the_surplus_and_touches_no_survivor(#[case] from: usize, #[case] to: usize) {
    let mut world = World::new(i32::try_from(to).unwrap()).machines(from);
    world.settle();
    assert_eq!(world.deleted.len(), from - to);
    assert_eq!(world.deleted.last().unwrap(), &format!("m{:04}", from - to - 1), "the name breaks ties");
    world.finish_deletions();
    world.settle();
    assert_eq!((world.active(), world.created.len(), world.patched.len()), (to, 0, 0));
}

#[test]
fn large_steps_are_taken_in_bounded_plans() {
    let mut world = World::new(1200);
    assert_eq!(world.plan().steps.len(), replicas::BATCH);
    world.settle();
    assert_eq!((world.active(), world.peak), (1200, 1200));
    let mut world = World::new(0).machines(1200);
    assert_eq!(world.plan().steps.len(), replicas::BATCH);
    world.settle();
    assert_eq!(world.active(), 0);
}

#[rstest]
#[case::by_timestamp(json!({ "metadata": { "deletionTimestamp": "2023-11-14T00:00:00Z" } }))]
#[case::by_phase_and_timestamp(both(phase("Terminating"), json!({ "metadata": { "deletionTimestamp": "2023-11-14T00:00:00Z" } })))]
fn a_machine_that_is_being_deleted_is_replaced_at_once(#[case] dying: Value) {
    let mut world = World::new(2).machine("a", dying).machine("b", json!({}));
    world.settle();
    assert_eq!((world.created.len(), world.deleted.len()), (1, 0));
    assert_eq!(world.status().replicas, 3, "it still exists");
}

#[test]
fn a_machine_left_in_phase_terminating_is_replaced_and_its_deletion_finished() {
    let mut world = World::new(1).machine("a", phase("Terminating"));
    world.settle();
    assert_eq!((world.created.len(), world.deleted.as_slice()), (1, &["a".to_owned()][..]));
}

#[rstest]
#[case::frozen(json!({ "freeze": "True" }), false)]
#[case::frozen_by_another_value(json!({ "freeze": "true" }), true)]
#[case::growth_disabled(json!({ "node.machine.sapcloud.io/scale-up-disabled": "true" }), false)]
#[case::growth_disabled_by_any_value(json!({ "node.machine.sapcloud.io/scale-up-disabled": "" }), false)]
fn a_frozen_set_does_not_grow_and_says_so(#[case] labels: Value, #[case] grows: bool) {
    let mut world = World::new(3).with(json!({ "metadata": { "labels": labels } })).machines(1);
    let rest = world.settle();
    assert_eq!(world.created.is_empty(), !grows);
    assert_eq!(waits(&rest).contains("1 machines < 3 replicas"), !grows, "{}", waits(&rest));
}

#[test]
fn a_frozen_set_still_shrinks() {
    let mut world = World::new(1).with(json!({ "metadata": { "labels": { "freeze": "True" } } })).machines(3);
    world.settle();
    assert_eq!(world.active(), 1);
}

#[rstest]
#[case::they_count_when_machines_are_missing(3, 1, 2, 0, 0)]
#[case::only_the_rest_is_created(4, 1, 2, 1, 0)]
#[case::they_do_not_push_out_a_machine_that_works(2, 2, 1, 0, 0)]
#[case::what_is_surely_too_much_goes(2, 4, 1, 0, 2)]
fn unreadable_machines_exist_and_are_left_alone(
    #[case] replicas: i32,
    #[case] readable: usize,
    #[case] unreadable: usize,
    #[case] created: usize,
    #[case] deleted: usize,
) {
    let mut world = World::new(replicas).machines(readable);
    world.unreadable = (0..unreadable).map(|index| format!("u{index}")).collect();
    let rest = world.settle();
    assert_eq!((world.created.len(), world.deleted.len()), (created, deleted));
    assert!(waits(&rest).contains("to become readable: u0"), "{}", waits(&rest));
}

#[test]
fn new_names_avoid_all_that_exist() {
    let snapshot = World::new(3).snapshot();
    let names: Vec<String> = construct::machines(&snapshot).take(3).map(|machine| machine.name_any()).collect();
    let mut world = World::new(3).machine(&names[0], json!({}));
    world.unreadable = vec![names[1].clone()];
    world.settle();
    assert_eq!(world.created, [names[2].clone()]);
}

#[test]
fn long_names_of_sets_still_give_valid_host_names() {
    let world = World::new(1).with(json!({ "metadata": { "name": "x".repeat(80) } }));
    let machine = construct::machines(&world.snapshot()).next().unwrap();
    assert_eq!(machine.name_any().len(), 63);
}

#[rstest]
#[case::of_a_class_that_exists(false, json!([]), Some(json!([labels::FINALIZER])))]
#[case::of_none(true, json!([]), None)]
#[case::of_none_with_finalizers_in_the_template(true, json!([labels::FINALIZER, "other/one"]), Some(json!(["other/one"])))]
fn only_a_machine_whose_class_exists_has_the_finalizer_from_birth(
    #[case] is_class_unusable: bool,
    #[case] of_template: Value,
    #[case] expected: Option<Value>,
) {
    let template = json!({ "spec": { "template": { "metadata": { "finalizers": of_template } } } });
    let snapshot = Snapshot { is_class_unusable, ..World::new(1).with(template).snapshot() };
    let steps = super::super::plan(&snapshot).steps;
    let Some(Action::CreateMachine(machine)) = steps.first().map(|step| &step.action) else { panic!("{steps:?}") };
    assert_eq!(machine.metadata.finalizers.clone().map(|all| json!(all)), expected);
    assert!(super::super::lint::lint(&snapshot, &steps).is_empty());
}

/// 4.3: a migration waits until the set has seen all its Machines and confirmed the hold.
#[test]
fn a_set_that_is_moved_is_left_alone_and_counts_its_machines() {
    let mut snapshot = World::new(3).snapshot();
    snapshot.hold =
        Some(ReconcileHold { is_confirmed: true, ..ReconcileHold::from("MCMMigration d to be complete".to_owned()) });
    let steps = super::super::plan(&snapshot).steps;
    let [Action::WriteStatus(status)] = &steps.iter().map(|step| step.action.clone()).collect::<Vec<_>>()[..] else {
        panic!("{steps:?}")
    };
    let paused = status.conditions.iter().find(|condition| condition.type_ == "Paused").unwrap();
    assert_eq!((paused.status.as_str(), status.replicas), ("True", 0));
    let mut set = (*snapshot.set).clone();
    set.status = Some((**status).clone());
    snapshot.set = set.into();
    assert!(super::super::plan(&snapshot).steps.is_empty(), "it is said once");
}

/// A paused Cluster of Cluster API: the set changes neither Machines nor finalizers, whether or not it is being
/// deleted.
#[rstest]
#[case::lives(json!({}))]
#[case::goes(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [labels::FINALIZER] } }))]
fn a_held_set_is_not_touched(#[case] change: Value) {
    let mut snapshot = World::new(3).with(change).snapshot();
    snapshot.hold = Some("Cluster c to be unpaused".to_owned().into());
    let plan = super::super::plan(&snapshot);
    assert!(plan.steps.is_empty());
    assert_eq!(waits(&plan), "Cluster c to be unpaused");
}
