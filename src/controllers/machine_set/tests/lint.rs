//! Plans that no planner makes are refused, and the text names the bound.

use kube::ResourceExt;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    super::{Action, Snapshot, construct, lint::lint},
    world::{World, after, annotated, both, merge, phase, preserved_until, reference},
};
use mcm_api::labels;
use mcm_rules::plan::Step;

fn step(action: Action) -> Step<Action> {
    Step { action, reason: "because".to_owned(), event: None }
}

fn create(snapshot: &Snapshot, change: Value) -> Step<Action> {
    let machine = construct::machines(snapshot).next().unwrap();
    let mut value = serde_json::to_value(machine).unwrap();
    merge(&mut value, change);
    step(Action::CreateMachine(Box::new(serde_json::from_value(value).unwrap())))
}

fn delete(snapshot: &Snapshot, name: &str) -> Step<Action> {
    let machine = snapshot.machines.iter().find(|machine| machine.name_any() == name).unwrap();
    step(Action::DeleteMachine(machine.clone()))
}

fn patch(snapshot: &Snapshot, name: &str, patch: Value) -> Step<Action> {
    let machine = snapshot.machines.iter().find(|machine| machine.name_any() == name).unwrap().clone();
    step(Action::PatchMachine { machine, patch })
}

fn refusals(snapshot: &Snapshot, steps: &[Step<Action>]) -> Vec<String> {
    lint(snapshot, steps).iter().map(ToString::to_string).collect()
}

/// Deletes some Machines, in a separate plan.
fn deleting(world: &World, names: &[&str]) -> Vec<String> {
    let snapshot = world.snapshot();
    refusals(&snapshot, &names.iter().map(|name| delete(&snapshot, name)).collect::<Vec<_>>())
}

fn orphan() -> Value {
    json!({ "metadata": { "ownerReferences": null } })
}

fn dying() -> Value {
    json!({ "metadata": { "deletionTimestamp": after(-5) } })
}

#[rstest]
#[case::as_many_as_are_missing(World::new(2).machine("a", json!({})), None)]
#[case::those_that_go_leave_room(World::new(1).machine("a", dying()), None)]
#[case::one_too_many(World::new(1).machine("a", json!({})), Some("1 machines + 0 unreadable + 1 created > 1 replicas"))]
#[case::failed_ones_take_room(World::new(1).machine("a", phase("Failed")), Some("1 machines + 0 unreadable + 1 created > 1 replicas"))]
#[case::those_to_be_adopted_take_room(World::new(1).machine("a", orphan()), Some("1 machines + 0 unreadable + 1 created > 1 replicas"))]
#[case::unreadable_ones_take_room(
    unreadable(World::new(1)),
    Some("0 machines + 1 unreadable + 1 created > 1 replicas")
)]
#[case::of_a_set_that_goes(World::new(1).with(dying()), Some("1 created for a set that is being deleted"))]
fn a_set_has_no_more_machines_than_replicas(#[case] world: World, #[case] refused: Option<&str>) {
    let snapshot = world.snapshot();
    let expected: Vec<String> =
        refused.map(|text| format!("it would create too many machines: {text}")).into_iter().collect();
    assert_eq!(refusals(&snapshot, &[create(&snapshot, json!({}))]), expected);
}

fn unreadable(mut world: World) -> World {
    world.unreadable = vec!["u".to_owned()];
    world
}

#[rstest]
#[case::frozen(labels::FREEZE, "True", true)]
#[case::not_frozen(labels::FREEZE, "False", false)]
#[case::disabled(labels::SCALE_UP_DISABLED, "", true)]
fn a_set_that_must_not_grow_creates_nothing(#[case] label: &str, #[case] value: &str, #[case] refused: bool) {
    let snapshot = World::new(1).with(json!({ "metadata": { "labels": { label: value } } })).snapshot();
    let text = format!("it would create machines for a set that must not be scaled up: the set has the label {label}");
    let expected: Vec<String> = refused.then_some(text).into_iter().collect();
    assert_eq!(refusals(&snapshot, &[create(&snapshot, json!({}))]), expected);
}

#[test]
fn no_plan_creates_and_deletes() {
    let snapshot = World::new(2).machine("a", phase("Failed")).snapshot();
    let steps = [create(&snapshot, json!({})), delete(&snapshot, "a")];
    assert_eq!(
        refusals(&snapshot, &steps),
        ["it would create and delete machines in one plan: 1 created and 1 deleted"]
    );
}

#[rstest]
#[case::as_it_is(json!({}), None)]
#[case::without_finalizer(json!({ "metadata": { "finalizers": [] } }), Some("without its finalizer"))]
#[case::of_nobody(json!({ "metadata": { "ownerReferences": [] } }), Some("without belonging to the set"))]
#[case::released_at_once(json!({ "metadata": { "labels": { "pool": "b" } } }), Some("without belonging to the set"))]
#[case::with_another_one_s_vm(json!({ "spec": { "providerID": "cloud:///1" } }), Some("with spec.providerID cloud:///1"))]
fn a_machine_is_born_so_that_its_vm_cannot_be_lost(#[case] change: Value, #[case] refused: Option<&str>) {
    let snapshot = World::new(1).snapshot();
    let name = construct::machines(&snapshot).next().unwrap().name_any();
    let text = refused.map(|text| format!("it would leak a VM: machine {name} would be created {text}"));
    let expected: Vec<String> = text.into_iter().collect();
    assert_eq!(refusals(&snapshot, &[create(&snapshot, change)]), expected);
}

/// One of 4 Machines is surplus; `a` is first in deletion order by its name.
fn four(change: Value) -> World {
    World::new(3).machine("a", json!({})).machine("b", change).machine("c", json!({})).machine("d", json!({}))
}

/// `b` failed, and is last in deletion order.
fn failed_last() -> World {
    four(both(annotated(labels::PRIORITY, "9"), phase("Failed")))
}

/// `b` is first in deletion order, the autoscaler marked `d` and last changed the replicas at second 0.
fn scaled(marked: &str) -> World {
    let chosen = both(annotated(labels::PRIORITY, "1"), annotated(labels::MARKED_FOR_DELETION_TIME, marked));
    let world = four(annotated(labels::PRIORITY, "0")).machine("d", chosen);
    world.with(annotated(labels::LAST_SCALER_CHANGE, &after(0)))
}

#[rstest]
#[case::the_surplus(four(json!({})), &["a"], None)]
#[case::one_more(four(json!({})), &["a", "b"], Some("b"))]
#[case::another_one(four(json!({})), &["c"], Some("c"))]
#[case::one_that_failed_is_the_surplus(failed_last(), &["b"], None)]
#[case::and_another_one(failed_last(), &["a", "b"], Some("a"))]
#[case::the_one_that_failed_is_the_surplus(four(phase("Failed")), &["b", "a"], Some("a"))]
#[case::and_one_that_is_stuck(four(json!({})).machine("e", phase("Terminating")), &["a", "e"], None)]
#[case::one_that_the_autoscaler_chose_is_the_surplus(scaled(&after(0)), &["d"], None)]
#[case::and_the_first_in_order(scaled(&after(0)), &["b", "d"], Some("b"))]
#[case::chosen_after_the_last_scaling(scaled(&after(1)), &["b", "d"], Some("d"))]
#[case::just_updated_in_place(four(json!({ "metadata": { "labels": { labels::UPDATE_RESULT: "successful" } } })), &["b"], Some("b"))]
#[case::unreadable_ones_push_nobody_out(unreadable(World::new(1).machine("b", json!({}))), &["b"], Some("b"))]
fn a_set_deletes_its_surplus_and_what_it_replaces(
    #[case] world: World,
    #[case] names: &[&str],
    #[case] refused: Option<&str>,
) {
    let texts = deleting(&world, names);
    assert_eq!(texts.len(), usize::from(refused.is_some()), "{texts:?}");
    if let Some(name) = refused {
        assert!(texts[0].starts_with("it would delete too many machines: "), "{texts:?}");
        assert!(texts[0].contains(&format!("machine {name} has not failed; it is not among the first ")), "{texts:?}");
        assert!(texts[0].contains(&format!(" - {} replicas)", world.set["spec"]["replicas"])), "{texts:?}");
    }
}

#[rstest]
#[case::by_its_time(preserved_until(60), Some("until 2023-11-14T22:14:20Z"))]
#[case::the_time_is_over(both(preserved_until(0), annotated(labels::PRESERVE, "now")), None)]
#[case::by_annotation(
    annotated(labels::PRESERVE, "when-failed"),
    Some("node.machine.sapcloud.io/preserve=when-failed")
)]
#[case::refused_on_the_node(
    both(annotated(labels::LAST_NODE_PRESERVE, "false"), annotated(labels::PRESERVE, "now")),
    None
)]
#[case::an_unknown_word(annotated(labels::PRESERVE, "please"), None)]
fn a_preserved_machine_that_failed_is_not_replaced(#[case] wish: Value, #[case] refused: Option<&str>) {
    let world = World::new(1).machine("a", both(phase("Failed"), wish));
    let text = |why| {
        format!(
            "it would delete a preserved machine: machine a is preserved ({why}); it is not among the first 0 in \
             deletion order (1 machines - 1 replicas)"
        )
    };
    assert_eq!(deleting(&world, &["a"]), refused.map(text).into_iter().collect::<Vec<_>>());
}

#[test]
fn a_preserved_machine_outlives_those_that_are_not() {
    let world = World::new(1).machine("a", preserved_until(60)).machine("b", json!({}));
    let texts = deleting(&world, &["a"]);
    assert!(texts[0].contains("machine a is preserved (until "), "{texts:?}");
    assert_eq!(deleting(&world, &["b"]), [""; 0]);
    let mut nobody = world;
    merge(&mut nobody.set, json!({ "spec": { "replicas": 0 } }));
    assert_eq!(deleting(&nobody, &["a", "b"]), [""; 0], "nothing is left but preserved ones");
}

#[test]
fn preservations_of_a_plan_count_at_once() {
    let of = |value: Value| json!({ "metadata": { "annotations": { labels::PRESERVE: value } } });
    let plain = World::new(1).machine("a", phase("Failed")).snapshot();
    let texts = refusals(&plain, &[patch(&plain, "a", of(json!("auto-preserved"))), delete(&plain, "a")]);
    assert!(texts[0].starts_with("it would delete a preserved machine"), "{texts:?}");
    let kept = World::new(1).machine("a", both(phase("Failed"), of(json!("auto-preserved")))).snapshot();
    assert_eq!(refusals(&kept, &[patch(&kept, "a", of(Value::Null)), delete(&kept, "a")]), [""; 0]);
}

#[rstest]
#[case::its_own(json!({}), false)]
#[case::one_that_it_may_adopt(orphan(), false)]
#[case::of_another_set(json!({ "metadata": { "ownerReferences": [reference("other")] } }), true)]
fn machines_of_other_sets_are_not_touched(#[case] change: Value, #[case] refused: bool) {
    let snapshot = World::new(0).machine("a", change).snapshot();
    let text = "it would change an object of another owner: machine a does not belong to this set".to_owned();
    let expected: Vec<String> = refused.then_some(text).into_iter().collect();
    assert_eq!(refusals(&snapshot, &[patch(&snapshot, "a", json!({}))]), expected);
    let texts = refusals(&snapshot, &[delete(&snapshot, "a")]);
    assert_eq!(texts.first(), expected.first());
}

#[test]
fn a_machine_that_the_set_does_not_select_is_not_deleted() {
    let world = World::new(0).machine("a", json!({ "metadata": { "labels": { "pool": "b" } } }));
    assert!(deleting(&world, &["a"])[0].contains("machine a does not belong to this set"));
}

#[rstest]
#[case::by_itself(json!([labels::FINALIZER]), None)]
#[case::by_somebody_else(json!(["foregroundDeletion"]), Some("it would delete too many machines: the set has no finalizer, so another controller deletes its machines"))]
fn a_deleted_set_deletes_its_machines(#[case] finalizers: Value, #[case] refused: Option<&str>) {
    let world = World::new(3).with(both(dying(), json!({ "metadata": { "finalizers": finalizers } }))).machines(2);
    assert_eq!(deleting(&world, &["m0000", "m0001"]), refused.into_iter().collect::<Vec<_>>());
}

#[rstest]
#[case::empty(World::new(0), None)]
#[case::with_a_machine_that_goes(World::new(0).machine("a", dying()), Some(1))]
#[case::with_one_that_cannot_be_read(unreadable(World::new(0)), Some(1))]
#[case::with_one_that_it_no_longer_selects(World::new(0).machine("a", json!({ "metadata": { "labels": { "pool": "b" } } })), None)]
fn a_set_keeps_its_finalizer_while_it_has_machines(#[case] world: World, #[case] left: Option<usize>) {
    let snapshot = world.with(dying()).snapshot();
    let release = step(Action::PatchSet(json!({ "metadata": { "finalizers": [] } })));
    let text = left.map(|left| format!("it would delete an object that is still in use: the set has {left} machines"));
    assert_eq!(refusals(&snapshot, &[release]), text.into_iter().collect::<Vec<_>>());
    let other = step(Action::PatchSet(json!({ "metadata": { "labels": { "a": "b" } } })));
    assert_eq!(refusals(&snapshot, &[other]), [""; 0]);
}
