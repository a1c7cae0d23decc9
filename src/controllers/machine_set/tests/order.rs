//! Order of deletion.

use kube::ResourceExt;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    super::{Action, Snapshot},
    world::{World, after, annotated, both, phase, preserved_until, waits},
};
use mcm_api::labels;
use mcm_rules::plan::PlanInput;

#[rstest]
#[case::preserved_stays(phase("Running"), both(phase("Failed"), preserved_until(60)))]
#[case::preservation_in_the_past_does_not_count(both(phase("Failed"), preserved_until(-60)), phase("Running"))]
#[case::preserved_automatically_before_on_request(
    both(annotated(labels::PRESERVE, "auto-preserved"), preserved_until(900)),
    both(annotated(labels::PRESERVE, "now"), preserved_until(60))
)]
#[case::preserved_for_less_time(preserved_until(60), preserved_until(900))]
#[case::lower_priority(annotated(labels::PRIORITY, "1"), phase("Failed"))]
#[case::default_priority_is_3(json!({}), annotated(labels::PRIORITY, "4"))]
#[case::unreadable_priority_is_3(annotated(labels::PRIORITY, "high"), annotated(labels::PRIORITY, "4"))]
#[case::negative_priority(annotated(labels::PRIORITY, "-5"), annotated(labels::PRIORITY, "1"))]
#[case::marked(annotated(labels::MARKED_FOR_DELETION_TIME, "2023-11-14T22:00:00Z"), phase("Failed"))]
#[case::marked_earlier(
    annotated(labels::MARKED_FOR_DELETION_TIME, "2023-11-14T22:00:00+01:00"),
    annotated(labels::MARKED_FOR_DELETION_TIME, "2023-11-14T22:00:00Z")
)]
#[case::an_unreadable_mark_is_none(phase("Pending"), annotated(labels::MARKED_FOR_DELETION_TIME, "soon"))]
#[case::failed_before_crash_loop(phase("Failed"), phase("CrashLoopBackOff"))]
#[case::crash_loop_before_unknown(phase("CrashLoopBackOff"), phase("Unknown"))]
#[case::unknown_before_pending(phase("Unknown"), phase("Pending"))]
#[case::pending_before_available(phase("Pending"), phase("Available"))]
#[case::available_before_running(phase("Available"), phase("Running"))]
#[case::not_created_before_failed(phase(""), phase("Failed"))]
#[case::in_place_stays_like_running(phase("Available"), phase("InPlaceUpdating"))]
#[case::in_place_ranks_with_running(both(phase("Running"), json!({ "metadata": { "creationTimestamp": after(-7200) } })), phase("InPlaceUpdateFailed"))]
#[case::older_first(json!({ "metadata": { "creationTimestamp": after(-7200) } }), json!({}))]
fn who_goes_first(#[case] first: Value, #[case] second: Value) {
    // The names have the opposite order, and failed Machines would be deleted in any case: this test uses neither.
    let keep = annotated(labels::LAST_NODE_PRESERVE, "when-failed");
    for (victim, survivor) in [("z", "a"), ("a", "z")] {
        let world = World::new(1)
            .machine(victim, both(keep.clone(), first.clone()))
            .machine(survivor, both(keep.clone(), second.clone()));
        let deletions: Vec<String> = world
            .plan()
            .steps
            .iter()
            .filter_map(|step| match &step.action {
                Action::DeleteMachine(machine) => Some(machine.name_any()),
                _ => None,
            })
            .collect();
        assert_eq!(deletions.first().map(String::as_str), Some(victim));
    }
}

#[test]
fn a_step_names_the_object_that_it_changes() {
    let world = World::new(0).machine("a", json!({}));
    let plan = world.plan();
    let subjects: Vec<Value> = plan.steps.iter().map(|step| json!(Snapshot::subject(&step.action))).collect();
    let machine = json!({ "kind": "Machine", "namespace": world.set["metadata"]["namespace"], "name": "a" });
    assert!(subjects.contains(&machine), "{subjects:?} of\n{plan}");
    assert_eq!(Snapshot::subject(&Action::PatchSet(json!({}))), None, "that of the plan");
}

#[test]
fn a_machine_just_updated_in_place_is_not_chosen() {
    let updated = json!({ "metadata": { "labels": { labels::UPDATE_RESULT: "successful" } } });
    let mut world = World::new(1).machine("a", updated.clone()).machine("b", json!({})).machine("c", json!({}));
    world.settle();
    assert_eq!(world.deleted, ["b"]);
    let mut world = World::new(0).machine("a", updated);
    world.settle();
    assert!(world.deleted.is_empty());
}

#[rstest]
#[case::asked_before_the_last_scaling("1", "2023-11-14T10:00:00Z", "2023-11-14T10:00:00Z", true)]
#[case::asked_after_it("1", "2023-11-14T10:00:01Z", "2023-11-14T10:00:00Z", false)]
#[case::another_priority("2", "2023-11-14T10:00:00Z", "2023-11-14T10:00:00Z", false)]
#[case::unreadable_mark("1", "soon", "2023-11-14T10:00:00Z", false)]
#[case::unreadable_scaling("1", "2023-11-14T10:00:00Z", "", false)]
fn a_machine_the_autoscaler_chose_is_replaced_even_if_the_number_is_right(
    #[case] priority: &str,
    #[case] marked: &str,
    #[case] scaled: &str,
    #[case] goes: bool,
) {
    let chosen = both(annotated(labels::PRIORITY, priority), annotated(labels::MARKED_FOR_DELETION_TIME, marked));
    let mut world =
        World::new(2).with(annotated(labels::LAST_SCALER_CHANGE, scaled)).machine("a", json!({})).machine("b", chosen);
    world.settle();
    assert_eq!(world.deleted, if goes { vec!["b"] } else { vec![] });
    assert_eq!(world.active(), 2);
}

/// The autoscaler takes 1 from `spec.replicas` of the deployment with each Machine that it chooses, and the deployment marks the
/// Machine before it scales the set: the set waits for that and makes no replacement.
#[rstest]
#[case::two_chosen_and_one_taken(2, Some(1), &["a"])]
#[case::not_scaled_at_all(3, Some(1), &[])]
#[case::the_number_is_right(3, Some(3), &["a", "b"])]
#[case::the_deployment_is_unknown(2, None, &["a"])]
fn a_chosen_machine_is_replaced_only_if_its_deployment_wants_that(
    #[case] replicas: i32,
    #[case] of_deployment: Option<i32>,
    #[case] deleted: &[&str],
) {
    let time = "2023-11-14T10:00:00Z";
    let chosen = both(annotated(labels::PRIORITY, "1"), annotated(labels::MARKED_FOR_DELETION_TIME, time));
    let owner = json!([{"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "name": "pool", "uid": "pool", "controller": true}]);
    let mut world = World::new(replicas)
        .with(both(
            annotated(labels::LAST_SCALER_CHANGE, time),
            annotated(labels::DESIRED_REPLICAS, &replicas.to_string()),
        ))
        .with(json!({ "metadata": { "ownerReferences": owner } }))
        .machine("a", chosen.clone())
        .machine("b", chosen)
        .machine("c", json!({}));
    let deployment =
        |replicas| json!({ "metadata": { "name": "pool" }, "spec": { "replicas": replicas, "template": {} } });
    world.deployment = of_deployment.map(deployment);
    let rest = world.settle();
    assert_eq!(world.deleted, deleted);
    assert_eq!(world.created.len(), deleted.len().saturating_sub(3 - usize::try_from(replicas).unwrap()));
    if deleted.len() < 2 {
        assert!(waits(&rest).contains("its deployment to scale it for "), "{}", waits(&rest));
    }
}

#[rstest]
#[case::chosen_by_the_autoscaler(both(preserved_until(60), json!({ "metadata": { "annotations": {
    labels::PRIORITY: "1", labels::MARKED_FOR_DELETION_TIME: "2023-11-14T10:00:00Z",
} } })))]
#[case::failed(both(annotated(labels::PRIORITY, "9"), phase("Failed")))]
fn what_is_replaced_anyway_is_the_surplus_although_it_comes_last(#[case] last: Value) {
    let mut world = World::new(2).with(annotated(labels::LAST_SCALER_CHANGE, "2023-11-14T10:00:00Z"));
    world = world.machine("a", json!({})).machine("b", json!({})).machine("c", last);
    world.settle();
    assert_eq!(world.deleted, ["c"]);
}
