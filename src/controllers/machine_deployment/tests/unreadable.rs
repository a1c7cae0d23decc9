//! Objects that exist and cannot be decoded: unknown is not absent.

use kube::ResourceExt;

use super::{
    super::UnreadableMachine,
    drive::{Drive, NAME, deployment, rolling},
    support::{first_machine, only_set, planned},
};

#[test]
fn nothing_is_sized_while_something_that_may_be_a_set_is_unreadable() {
    let mut drive = Drive::settled(deployment(3, rolling(1, 0)));
    drive.edit_class("v2");
    let mut snapshot = drive.snapshot();
    snapshot.unreadable_sets = vec!["pool-other".to_owned()];
    let plan = planned(&snapshot);
    assert_eq!(plan.steps, []);
    assert!(plan.waits[0].text.starts_with("pool-other to become readable"));
}

#[test]
fn an_unreadable_machine_exists_and_does_not_serve() {
    let mut drive = Drive::settled(deployment(3, rolling(1, 0)));
    let unreadable = first_machine(&drive);
    drive.edit_class("v2");
    let mut snapshot = drive.snapshot();
    snapshot.machines.retain(|machine| machine.name_any() != unreadable);
    snapshot.unreadable_machines =
        vec![UnreadableMachine { name: unreadable, set_uid: only_set(&drive).uid().unwrap(), is_terminating: false }];
    let plan = planned(&snapshot);
    let text = plan.steps.iter().map(|step| step.reason.as_str()).collect::<Vec<_>>().join("\n");
    assert!(text.contains("3 planned < 3 replicas + 1 maxSurge"), "{text}");
    assert!(text.contains("3 machines, 0 of the current template, 2 available"), "{text}");
}

#[test]
fn a_deployment_does_not_go_while_something_below_it_is_unreadable() {
    let mut drive = Drive::settled(deployment(0, rolling(1, 0)));
    drive.world.deployments.delete(&mut drive.world.clock, NAME).unwrap();
    let mut snapshot = drive.snapshot();
    snapshot.sets.clear();
    snapshot.unreadable_sets = vec!["pool-12345".to_owned()];
    assert_eq!(planned(&snapshot).steps, []);
    drive.run();
    assert!(drive.world.deployments.get(NAME).is_none());
}
