//! The status of a set.

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    super::{Action, ReplicaWriteFailure},
    world::{World, after, both, phase, preserved_until},
};
use mcm_rules::plan::Plan;

#[test]
fn the_status_counts_what_is_there() {
    let failed =
        json!({ "state": "Failed", "type": "Create", "errorCode": "ResourceExhausted", "description": "full" });
    let operation = |operation: &Value| json!({ "status": { "lastOperation": operation } });
    let mut world = World::new(6)
        .with(json!({ "metadata": { "generation": 4 } }))
        .machine("a", json!({}))
        .machine("b", phase("Available"))
        .machine("c", json!({ "metadata": { "labels": { "name": "another" } } }))
        .machine(
            "d",
            both(phase("CrashLoopBackOff"), both(operation(&failed), json!({ "spec": { "providerID": "p" } }))),
        )
        .machine("e", both(phase("Failed"), both(operation(&failed), preserved_until(60))))
        .machine("f", json!({ "metadata": { "deletionTimestamp": after(-5) } }))
        .machine("g", json!({}));
    world.settle();
    let expected = json!({
        "replicas": 7, "fullyLabeledReplicas": 6, "readyReplicas": 3, "availableReplicas": 4, "preservedFailedReplicas": 1,
        "observedGeneration": 4, "lastOperation": { "lastUpdateTime": after(0) },
        "failedMachines": [{ "name": "d", "providerID": "p", "lastOperation": failed, "ownerRef": "set" }],
    });
    assert_eq!(serde_json::to_value(world.status()).unwrap(), expected);
    assert_eq!((world.status_writes, world.created.len(), world.deleted.len()), (1, 0, 0));
}

#[test]
fn conditions_of_others_stay_as_they_are() {
    let frozen = json!({ "type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount", "message": "m" });
    let other = json!({ "type": "Custom", "status": "False" });
    let mut world = World::new(1).with(json!({ "status": { "machineSetCondition": [frozen, other] } })).machines(1);
    world.settle();
    assert_eq!(serde_json::to_value(world.status().conditions).unwrap(), json!([frozen, other]));
}

#[rstest]
#[case::too_few(3, "FailedCreate")]
#[case::too_many(0, "FailedDelete")]
#[case::equal(1, "")]
fn a_failure_is_reported_before_the_work_is_tried_again_and_withdrawn_after_success(
    #[case] replicas: i32,
    #[case] reason: &str,
) {
    let mut world = World::new(replicas).machines(1);
    world.failure = Some(ReplicaWriteFailure { message: "quota".into() });
    let plan_after_failure = world.plan();
    assert!(matches!(plan_after_failure.steps[0].action, Action::WriteStatus(_)));
    world.apply(Plan { steps: plan_after_failure.steps.into_iter().take(1).collect(), waits: Vec::new() });
    let condition = world.status().conditions.remove(0);
    assert_eq!((condition.type_.as_str(), condition.status.as_str()), ("ReplicaFailure", "True"));
    assert_eq!((condition.reason.as_str(), condition.message.as_str()), (reason, "quota"));

    world.failure = Some(ReplicaWriteFailure { message: "quota, attempt 2".into() });
    let again = world.plan();
    assert!(!again.steps.iter().any(|step| matches!(step.action, Action::WriteStatus(_))), "one report is enough");

    world.failure = None;
    world.settle();
    assert_eq!(world.status().conditions, []);
}

/// The API server refuses an object that is too large, and the status would never be written again.
#[test]
fn the_errors_of_many_machines_fit_into_the_status() {
    let text = "x".repeat(100_000);
    let failed = json!({ "state": "Failed", "type": "Create", "description": text });
    let mut world = World::new(60);
    for index in 0..60 {
        let broken = both(phase("CrashLoopBackOff"), json!({ "status": { "lastOperation": failed } }));
        world = world.machine(&format!("m{index:02}"), broken);
    }
    world.failure = Some(ReplicaWriteFailure { message: text });
    world.settle();
    let status = world.status();
    let names: Vec<_> = status.failed_machines.iter().map(|machine| machine.name.clone()).collect();
    assert_eq!((names.len(), names[0].as_str(), names[49].as_str()), (50, "m00", "m49"));
    assert!(serde_json::to_vec(&status).unwrap().len() < 200_000);
}
