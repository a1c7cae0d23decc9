//! Machines that the autoscaler chose.

use kube::ResourceExt;
use rstest::rstest;
use serde_json::json;

use super::{
    super::{Action, UnreadableMachine, sets::OwnedSets},
    drive::{Drive, deployment, rolling},
    support::{annotate_deployment, first_machine, only_set, planned},
};
use mcm_api::{labels, machine::MachinePhase};

#[test]
fn machines_chosen_by_the_autoscaler_are_marked_before_their_set_shrinks() {
    let mut drive = Drive::settled(deployment(3, rolling(1, 0)));
    let names: Vec<_> = drive.world.machines.all().map(|machine| machine.name_any()).collect();
    let time = "2026-01-02T03:04:05+02:00";
    annotate_deployment(&mut drive, labels::TRIGGER_DELETION, &format!("{}~{time},gone~{time},bad~time,", names[2]));
    annotate_deployment(&mut drive, labels::LAST_SCALER_CHANGE, time);
    drive.edit(json!({"replicas": 2}));
    drive.settle();
    let marked = drive.log.find(&format!("patch machine {}", drive.short(&names[2]))).unwrap();
    assert!(marked < drive.log.find("patch set").unwrap(), "{}", drive.log);
    let machine = drive.world.machines.get(&names[2]).unwrap();
    assert_eq!(machine.annotations()[labels::PRIORITY], "1");
    assert_eq!(machine.annotations()[labels::MARKED_FOR_DELETION_TIME], time);
    assert_eq!(drive.deployment().annotations()[labels::TRIGGER_DELETION], format!("{}~{time}", names[2]));
    let set = only_set(&drive);
    assert_eq!((set.spec.replicas, &set.annotations()[labels::LAST_SCALER_CHANGE]), (2, &time.to_owned()));
    drive.run();
    assert!(drive.world.machines.get(&names[2]).is_none());
    assert!(!drive.deployment().annotations().contains_key(labels::TRIGGER_DELETION), "the list is emptied");
}

#[test]
fn the_old_form_of_the_list_is_migrated() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let name = first_machine(&drive);
    annotate_deployment(&mut drive, labels::TRIGGER_DELETION, &name);
    let now = drive.world.clock.now.to_string();
    drive.settle();
    assert_eq!(drive.deployment().annotations()[labels::TRIGGER_DELETION], format!("{name}~{now}"));
    assert_eq!(drive.deployment().annotations()[labels::LAST_SCALER_CHANGE], now);
    assert_eq!(only_set(&drive).annotations()[labels::LAST_SCALER_CHANGE], now);
}

#[test]
fn a_chosen_machine_that_cannot_be_read_stays_on_the_list() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let name = first_machine(&drive);
    annotate_deployment(&mut drive, labels::TRIGGER_DELETION, &format!("{name}~2026-01-02T03:04:05Z"));
    let mut snapshot = drive.snapshot();
    snapshot.machines.retain(|machine| machine.name_any() != name);
    snapshot.unreadable_machines =
        vec![UnreadableMachine { name, set_uid: only_set(&drive).uid().unwrap(), is_terminating: false }];
    assert!(!planned(&snapshot).steps.iter().any(|step| matches!(step.action, Action::PatchDeployment(_))));
}

/// Its set deletes it although the number is right, so a rollout must not count on it.
#[rstest]
#[case::listed("2026-01-02T03:04:05Z", false, 1)]
#[case::and_marked("2026-01-02T03:04:05Z", true, 1)]
#[case::chosen_since_the_number_changed("2026-01-02T03:04:06Z", true, 2)]
fn a_chosen_machine_does_not_count_as_available(
    #[case] chosen_at: &str,
    #[case] is_marked: bool,
    #[case] available: i32,
) {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let name = first_machine(&drive);
    annotate_deployment(&mut drive, labels::TRIGGER_DELETION, &format!("{name}~{chosen_at}"));
    annotate_deployment(&mut drive, labels::LAST_SCALER_CHANGE, "2026-01-02T03:04:05Z");
    if is_marked {
        drive.settle();
        assert_eq!(drive.world.machines.get(&name).unwrap().annotations()[labels::PRIORITY], "1");
        annotate_deployment(&mut drive, labels::TRIGGER_DELETION, "");
    }
    let sets = OwnedSets::controlled(&drive.snapshot());
    let counts = sets.new_set().unwrap().counts;
    assert_eq!((counts.available, counts.expendable, counts.live), (available, 2 - available, 2));
}

#[test]
fn a_machine_that_is_marked_keeps_its_first_time() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let name = first_machine(&drive);
    for time in ["2026-01-02T03:04:05Z", "2026-02-02T03:04:05Z"] {
        annotate_deployment(&mut drive, labels::TRIGGER_DELETION, &format!("{name}~{time}"));
        drive.settle();
    }
    let marked = drive.world.machines.get(&name).unwrap();
    assert_eq!(marked.annotations()[labels::MARKED_FOR_DELETION_TIME], "2026-01-02T03:04:05Z");
}

/// If it was not marked, its set might delete one without a VM for the lower replicas, and replace this one.
#[test]
fn a_chosen_machine_that_has_failed_is_marked_and_leaves_the_list() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let name = first_machine(&drive);
    drive.world.machines.edit(&mut drive.world.clock, &name, |machine| {
        machine.status.get_or_insert_default().current_status.phase = MachinePhase::Failed;
    });
    annotate_deployment(&mut drive, labels::TRIGGER_DELETION, &format!("{name}~2026-01-02T03:04:05Z"));
    drive.settle();
    let failed = drive.world.machines.get(&name).unwrap();
    assert_eq!(failed.annotations()[labels::PRIORITY], "1");
    assert!(!drive.deployment().annotations().contains_key(labels::TRIGGER_DELETION), "the list is emptied");
}
