//! The status of a deployment.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use rstest::rstest;
use serde_json::json;

use super::{
    drive::{Drive, NAME, deployment, rolling},
    support::{condition, first_machine, only_set, planned, reads},
};
use mcm_api::machine::{Machine, MachinePhase, OperationState};

#[test]
fn a_rollout_without_progress_is_reported_at_its_deadline_and_recovers() {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    drive.edit(json!({"progressDeadlineSeconds": 60}));
    drive.edit_class("v2");
    drive.settle();
    let wake = planned(&drive.snapshot()).requeue_at().unwrap();
    assert_eq!((wake - drive.world.clock.now).get_seconds(), 61);
    drive.world.clock.now = wake;
    drive.settle();
    assert_eq!(condition(&drive, "Progressing"), reads("False", "ProgressDeadlineExceeded"));
    assert_eq!(planned(&drive.snapshot()).requeue_at(), None);
    drive.run();
    assert_eq!(condition(&drive, "Progressing"), reads("True", "NewMachineSetAvailable"));
}

#[test]
fn missing_and_failed_machines_show_in_the_status() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let name = first_machine(&drive);
    let set = only_set(&drive).name_any();
    drive.world.machines.edit(&mut drive.world.clock, &name, |machine: &mut Machine| {
        let status = machine.status.get_or_insert_default();
        status.current_status.phase = MachinePhase::Failed;
        status.last_operation = serde_json::from_value(json!({"description": "no more VMs", "state": "Failed", "type": "Create", "errorCode": "ResourceExhausted"})).unwrap();
    });
    drive.world.sets.edit(&mut drive.world.clock, &set, |set| {
        let condition =
            json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"});
        set.status.get_or_insert_default().conditions = vec![serde_json::from_value(condition).unwrap()];
    });
    drive.settle();
    let status = drive.deployment().status.clone().unwrap();
    assert_eq!((status.available_replicas, status.unavailable_replicas, status.ready_replicas), (1, 1, 1));
    let failed = &status.failed_machines[0];
    assert_eq!(
        (&failed.name, failed.last_operation.error_code.as_str(), &failed.owner_ref),
        (&name, "ResourceExhausted", &set)
    );
    assert_eq!(condition(&drive, "Available"), reads("False", "MinimumReplicasUnavailable"));
    assert_eq!(condition(&drive, "ReplicaFailure"), reads("True", "FailedCreate"));
    assert_eq!(
        condition(&drive, "Progressing"),
        reads("True", "NewMachineSetAvailable"),
        "no rollout, so the autoscaler may act"
    );

    let until = Time(drive.world.clock.now);
    drive.world.machines.edit(&mut drive.world.clock, &name, |machine| {
        machine.status.get_or_insert_default().current_status.preserve_expiry_time = Some(until);
    });
    drive.world.sets.edit(&mut drive.world.clock, &set, |set| set.status.get_or_insert_default().conditions.clear());
    drive.settle();
    let status = drive.deployment().status.clone().unwrap();
    assert_eq!((status.preserved_failed_replicas, status.failed_machines.len()), (1, 0));
    assert_eq!(
        condition(&drive, "Available"),
        reads("True", "MinimumReplicasAvailable"),
        "a preserved machine is excused"
    );
    assert_eq!(condition(&drive, "ReplicaFailure"), None);
}

#[test]
fn a_rollout_without_a_deadline_is_never_reported_as_stuck() {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    drive.edit_class("v2");
    drive.settle();
    let before = condition(&drive, "Progressing");
    assert_eq!(planned(&drive.snapshot()).requeue_at(), None);
    drive.world.clock.now += jiff::SignedDuration::from_hours(10_000);
    drive.settle();
    assert_eq!(condition(&drive, "Progressing"), before);
    assert!(before.is_some_and(|(status, _)| status == "True"));
}

/// By a restored backup, or a clock that was wrong.
#[rstest]
#[case::after_which_there_is_no_time("9999-12-30T22:00:00Z", 0)]
#[case::whose_deadline_is_none("9999-12-01T00:00:00Z", i32::MAX)]
fn a_condition_of_the_end_of_time_has_no_deadline(#[case] time: &str, #[case] seconds: i32) {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    drive.edit(json!({"progressDeadlineSeconds": seconds}));
    drive.edit_class("v2");
    drive.settle();
    let end = Time(time.parse().unwrap());
    drive.world.deployments.edit(&mut drive.world.clock, NAME, |deployment| {
        for condition in &mut deployment.status.as_mut().unwrap().conditions {
            condition.last_update_time = Some(end.clone());
        }
    });
    assert_eq!(planned(&drive.snapshot()).requeue_at(), None);
}

fn message(drive: &Drive, type_: &str) -> String {
    let status = drive.deployment().status.clone().unwrap();
    status.conditions.into_iter().find(|condition| condition.type_ == type_).unwrap().message
}

/// The message follows what the Machines report. The times of the condition do not: the deadline depends on them.
#[test]
fn progressing_says_what_the_rollout_waits_for() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let set = only_set(&drive).name_any();
    assert_eq!(message(&drive, "Progressing"), format!("machine set {set} has all its machines"));
    drive.world.unserved.insert("v2".to_owned());
    drive.edit_class("v2");
    drive.run();
    assert!(
        message(&drive, "Progressing")
            .ends_with("; waiting for 2 machines of the current template to become available"),
        "{}",
        message(&drive, "Progressing")
    );
    let since = |drive: &Drive| {
        let conditions = drive.deployment().status.clone().unwrap().conditions;
        conditions.into_iter().find(|it| it.type_ == "Progressing").unwrap().last_update_time
    };
    let before = (since(&drive), condition(&drive, "Progressing"));

    let new = drive.world.machines.all().find(|machine| machine.spec.class.name == "v2").unwrap().name_any();
    drive.world.clock.now += jiff::SignedDuration::from_mins(1);
    drive.world.machines.edit(&mut drive.world.clock, &new, |machine: &mut Machine| {
        let status = machine.status.get_or_insert_default();
        status.current_status.phase = MachinePhase::CrashLoopBackOff;
        status.last_operation = serde_json::from_value(json!({"description": "no m5.large in zone a", "state": "Failed", "type": "Create", "errorCode": "ResourceExhausted"})).unwrap();
    });
    drive.settle();
    let expected = format!("; waiting for 1 machine to be created: ResourceExhausted: no m5.large in zone a ({new})");
    assert!(message(&drive, "Progressing").ends_with(&expected), "{}", message(&drive, "Progressing"));
    assert_eq!((since(&drive), condition(&drive, "Progressing")), before);
    let rest = planned(&drive.snapshot());
    assert!(rest.steps.is_empty(), "nothing is written again: {rest:?}");
}

#[test]
fn messages_follow_their_numbers() {
    let mut drive = Drive::settled(deployment(3, rolling(1, 0)));
    let set = only_set(&drive).name_any();
    assert_eq!(message(&drive, "Available"), "3 available, 3 needed");
    for (gone, name) in (1..).zip(drive.machine_names().into_iter().take(2)) {
        drive.world.machines.edit(&mut drive.world.clock, &name, |machine: &mut Machine| {
            machine.status.get_or_insert_default().current_status.phase = MachinePhase::Unknown;
        });
        drive.settle();
        let left = 3 - gone;
        assert_eq!(message(&drive, "Available"), format!("{left} available, 3 needed"));
        let expected = format!(
            "machine set {set} had all its machines; {left} available, 3 replicas; waiting for {gone} machine{} of the current template to become available",
            if gone == 1 { "" } else { "s" }
        );
        assert_eq!(message(&drive, "Progressing"), expected);
        assert_eq!(condition(&drive, "Progressing"), reads("True", "NewMachineSetAvailable"));
    }
}

/// The API server refuses an object that is too large, and the status would never be written again.
#[test]
fn the_errors_of_many_machines_fit_into_the_status() {
    let mut drive = Drive::settled(deployment(120, rolling(1, 0)));
    for name in drive.machine_names() {
        drive.world.machines.edit(&mut drive.world.clock, &name, |machine: &mut Machine| {
            let status = machine.status.get_or_insert_default();
            status.current_status.phase = MachinePhase::CrashLoopBackOff;
            status.last_operation.state = Some(OperationState::Failed);
            status.last_operation.description = "é".repeat(100_000);
        });
    }
    drive.settle();
    let status = drive.deployment().status.clone().unwrap();
    assert_eq!((status.failed_machines.len(), status.available_replicas), (50, 0));
    assert!(serde_json::to_vec(&status).unwrap().len() < 200_000);
}
