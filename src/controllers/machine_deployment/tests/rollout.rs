//! Conditions that delay a rollout, and conditions that do not.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    super::Action,
    drive::{Drive, deployment, recreate, rolling},
    support::{first_machine, only_set, planned},
};
use crate::{machine_set::SetWritesInFlight, testing::Happening};
use mcm_api::machine::MachinePhase;

/// A pool with one failed Machine that a user preserved for inspection, before a rollout to another class.
fn beside_a_preserved_machine(strategy: Value) -> Drive {
    let mut drive = Drive::settled(deployment(3, strategy));
    let name = first_machine(&drive);
    let until = drive.world.clock.now + jiff::SignedDuration::from_hours(96);
    drive.world.machines.edit(&mut drive.world.clock, &name, |machine| {
        let current = &mut machine.status.get_or_insert_default().current_status;
        current.phase = MachinePhase::Failed;
        current.preserve_expiry_time = Some(Time(until));
    });
    (drive.is_plain, drive.kept) = (false, 1);
    drive.edit_class("v2");
    drive
}

#[rstest::rstest]
#[case::with_a_surge(rolling(1, 0))]
#[case::without_a_surge(rolling(0, 1))]
fn a_preserved_old_machine_does_not_stop_a_rolling_update(#[case] strategy: Value) {
    let mut drive = beside_a_preserved_machine(strategy);
    // The stand-in replaces failed Machines even if they are preserved.
    for _ in 0..400 {
        drive.settle();
        let due = drive.world.due();
        let replaces = |due: &&Happening| match due {
            Happening::Chosen { machine, .. } => {
                drive.world.machines.get(machine).unwrap().phase() == MachinePhase::Failed
            }
            _ => false,
        };
        let old = |due: &Happening| match due {
            Happening::Chosen { set, .. } => drive.world.sets.get(set).unwrap().spec.replicas > 0,
            _ => false,
        };
        let Some(next) = due.iter().find(|due| !(replaces(due) && old(due))).cloned() else { break };
        drive.let_happen(&next);
    }
    assert!(drive.end_state().starts_with("3 machines, 3 of the current template, 3 available"), "{}", drive.log);
}

#[test]
fn recreate_deletes_nothing_while_an_old_machine_cannot_be_decoded() {
    let mut drive = Drive::settled(deployment(3, recreate()));
    let (name, set_uid) = (first_machine(&drive), only_set(&drive).uid().unwrap());
    drive.edit_class("v2");
    let mut snapshot = drive.snapshot();
    snapshot.machines.retain(|machine| machine.name_any() != name);
    snapshot.unreadable_machines =
        vec![super::super::UnreadableMachine { name: name.clone(), set_uid, is_terminating: false }];
    let plan = planned(&snapshot);
    let touches_sets = |action: &Action| matches!(action, Action::PatchSet { .. } | Action::CreateSet(_));
    assert!(!plan.steps.iter().any(|step| touches_sets(&step.action)), "{plan:?}");
    assert!(plan.waits.iter().any(|wait| wait.text.contains(&name)), "{:?}", plan.waits);
}

#[test]
fn recreate_creates_nothing_before_every_old_set_has_observed_that_it_is_to_have_none() {
    let mut drive = Drive::settled(deployment(2, recreate()));
    drive.edit_class("v2");
    // All old Machines are already deleted, for another reason.
    let mut snapshot = drive.snapshot();
    snapshot.machines.clear();
    let creates = |snapshot: &_| planned(snapshot).steps.iter().any(|step| matches!(step.action, Action::CreateSet(_)));
    assert!(!creates(&snapshot), "the old set is only now told to have none");
    drive.settle();
    let mut told = drive.snapshot();
    told.machines.clear();
    assert!(!creates(&told), "the old set may still be creating machines");
    let name = drive.world.sets.all().next().unwrap().name_any();
    drive.world.happen(&Happening::Observed { set: name });
    let mut observed = drive.snapshot();
    observed.machines.clear();
    assert!(creates(&observed));
}

#[test]
fn a_refused_node_patch_is_not_repeated_before_its_time_and_the_plan_says_so() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    drive.edit_class("v2");
    let mut snapshot = drive.snapshot();
    let node = snapshot.nodes.keys().next().unwrap().clone();
    let at = snapshot.now + jiff::SignedDuration::from_secs(30);
    snapshot.node_retries.insert(node.clone(), at);
    let plan = planned(&snapshot);
    let patched = |step: &mcm_rules::plan::Step<Action>| match &step.action {
        Action::PatchNode { node, .. } => Some(node.name_any()),
        _ => None,
    };
    let names: Vec<_> = plan.steps.iter().filter_map(patched).collect();
    assert!(names.len() == 1 && !names.contains(&node), "{names:?}");
    let wait = plan.waits.iter().find(|wait| wait.text.contains(&node)).unwrap();
    assert_eq!(wait.until, Some(at));
    snapshot.now = at;
    assert_eq!(planned(&snapshot).steps.iter().filter_map(patched).count(), 2);
}

#[test]
fn the_taint_mark_of_a_set_stays_while_a_machine_of_it_cannot_be_decoded() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    drive.edit_class("v2");
    drive.settle();
    drive.edit_class("v1");
    // Its readable Nodes are clean again.
    let nodes: Vec<_> = drive.world.nodes.all().map(|node| node.name_any()).collect();
    for node in nodes {
        drive.world.nodes.edit(&mut drive.world.clock, &node, |node| node.spec.taints.clear());
    }
    let mut snapshot = drive.snapshot();
    let set = snapshot.sets.iter().find(|set| set.spec.template.spec.class.name == "v1").unwrap().clone();
    let unmarks = |snapshot: &_| {
        let text = "its nodes are no longer tainted";
        planned(snapshot).steps.iter().any(|step| step.reason.contains(text))
    };
    assert!(unmarks(&snapshot));
    let unreadable =
        super::super::UnreadableMachine { name: "u".to_owned(), set_uid: set.uid().unwrap(), is_terminating: false };
    snapshot.unreadable_machines = vec![unreadable];
    assert!(!unmarks(&snapshot));
}

#[test]
fn the_status_goes_on_while_a_deployment_is_deleted() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    drive.world.deployments.delete(&mut drive.world.clock, super::drive::NAME).unwrap();
    drive.settle();
    while let Some(due) = drive.world.due().into_iter().next() {
        if drive.world.machines.all().count() == 1 {
            break;
        }
        drive.let_happen(&due);
        drive.settle();
    }
    let status = drive.deployment().status.clone().unwrap();
    assert_eq!((status.replicas, status.observed_generation), (1, drive.deployment().metadata.generation.unwrap()));
}

#[test]
fn a_set_that_cannot_be_created_is_reported_in_one_event_that_names_it() {
    let drive = Drive::of(deployment(1, rolling(1, 0)));
    let mut snapshot = drive.snapshot();
    snapshot.failure = Some(super::super::SetCreateFailure::Other { message: "quota exceeded".to_owned() });
    let plan = planned(&snapshot);
    let created = plan.steps.iter().find_map(|step| match &step.action {
        Action::CreateSet(set) => Some(set.name_any()),
        _ => None,
    });
    let texts: Vec<_> = plan.steps.iter().filter_map(|step| step.event.as_ref()).filter(|it| it.warning).collect();
    assert_eq!(texts.len(), 1);
    assert!(texts[0].message.contains(&created.unwrap()) && texts[0].message.contains("quota exceeded"));
}

#[test]
fn an_in_place_update_says_at_a_take_over_that_it_is_not_done() {
    let mut drive = Drive::of(deployment(2, super::drive::in_place(1, 0, "Auto")));
    drive.policy.has_target = false;
    // As the Go reference left it: its generation is observed.
    let status = json!({"observedGeneration": 1});
    drive.world.deployments.write_status(&mut drive.world.clock, super::drive::NAME, status).unwrap();
    drive.settle();
    assert_eq!(drive.log.matches("event Waiting: in-place updates need a target cluster").count(), 1, "{}", drive.log);
}

#[test]
fn a_set_that_is_being_deleted_is_not_adopted() {
    let mut drive = Drive::of(deployment(1, rolling(1, 0)));
    let set = super::support::foreign_set(json!({"metadata": {"finalizers": ["x"]}}));
    drive.world.sets.create(&mut drive.world.clock, set).unwrap();
    drive.world.sets.delete(&mut drive.world.clock, "found").unwrap();
    drive.settle();
    assert!(drive.world.sets.get("found").unwrap().owner_references().is_empty(), "{}", drive.log);
}

#[test]
fn an_old_set_with_a_machine_that_terminates_or_comes_is_not_deleted_as_history() {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    drive.edit_class("v2");
    drive.run();
    // Paused, history is cleaned up although a set is not empty yet.
    drive.edit(json!({"revisionHistoryLimit": 0, "paused": true}));
    let snapshot = drive.snapshot();
    let deletes = |snapshot: &_| planned(snapshot).steps.iter().any(|step| matches!(step.action, Action::DeleteSet(_)));
    assert!(deletes(&snapshot));
    let old = snapshot.sets.iter().find(|set| set.spec.replicas == 0).unwrap().uid().unwrap();
    let mut creating = snapshot.clone();
    creating
        .in_flight
        .insert(old.clone(), SetWritesInFlight { creates: ["m".to_owned()].into(), ..SetWritesInFlight::default() });
    assert!(!deletes(&creating));
    let mut terminating = snapshot.clone();
    let mut machine = (*terminating.machines[0]).clone();
    machine.metadata.name = Some("last".to_owned());
    machine.metadata.deletion_timestamp = Some(Time(snapshot.now));
    machine.metadata.owner_references.as_mut().unwrap()[0].uid = old;
    terminating.machines.push(machine.into());
    assert!(!deletes(&terminating));
}

/// The set deletes them one after the other, and the last ones serve for a while.
#[test]
fn machines_of_a_set_that_is_being_deleted_are_not_counted_as_available() {
    let mut drive = Drive::settled(deployment(4, rolling(0, 1)));
    let old = only_set(&drive).uid();
    drive.edit_class("v2");
    let shrinks_old = |snapshot: &_| {
        planned(snapshot).steps.iter().any(|step| match &step.action {
            Action::PatchSet { set, patch } => set.uid() == old && patch.pointer("/spec/replicas").is_some(),
            _ => false,
        })
    };
    let mut snapshot = drive.snapshot();
    while snapshot.sets.len() == 1 || !shrinks_old(&snapshot) {
        drive.settle();
        assert!(drive.happen(), "{}", drive.log);
        snapshot = drive.snapshot();
    }
    for set in snapshot.sets.iter_mut().filter(|set| set.uid() != old) {
        Arc::make_mut(set).metadata.deletion_timestamp = Some(Time(snapshot.now));
    }
    assert!(!shrinks_old(&snapshot), "3 of 4 stay available:\n{}", planned(&snapshot));
}
