//! The status of a deployment.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::json;

use super::{
    drive::{Drive, deployment, rolling},
    support::{condition, first_machine, only_set, planned, reads},
};
use crate::api::machine::{Machine, MachinePhase};

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
