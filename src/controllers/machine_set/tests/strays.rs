//! Machines that the set created and that are not its own.

use std::sync::Arc;

use jiff::ToSpan;
use serde_json::json;

use super::super::{Action, lint::lint};
use super::world::{World, now};
use crate::object::strays::CreationGate;
use mcm_rules::plan::WaitKind;

/// A set of 3 replicas with 2 Machines, and a third one to which the API server gave another label.
fn world(growth: CreationGate) -> World {
    let mut world = World::new(3).machines(2).machine("stray", json!({ "metadata": { "labels": { "pool": "b" } } }));
    let stray =
        world.snapshot().machines.iter().find(|machine| machine.metadata.name.as_deref() == Some("stray")).cloned();
    world.strays.altered = vec![stray.unwrap()];
    world.strays.growth = growth;
    world
}

fn why() -> String {
    r#"metadata.labels.pool is "b", "a" was written"#.to_owned()
}

#[test]
fn a_machine_that_is_not_the_sets_is_deleted_and_no_other_one_is_made() {
    let mut world = world(CreationGate::Paused { why: why(), until: now() + 5.seconds() });
    world.apply(world.plan());
    assert_eq!((world.deleted.as_slice(), world.patched.len()), (&["stray".to_owned()][..], 0), "not released");
    world.finish_deletions();
    world.strays.altered.clear();
    let plan = world.plan();
    let event = plan.steps[0].event.as_ref().map(|event| (event.reason.as_str(), event.message.clone()));
    assert_eq!(event, Some(("FailedCreate", why())));
    let plan = world.settle();
    assert_eq!((world.active(), world.created.len()), (2, 0));
    let condition = world.status().conditions.remove(0);
    assert_eq!((condition.type_.as_str(), condition.message), ("ReplicaFailure", why()));
    let wait = plan.waits.iter().find(|wait| wait.kind == WaitKind::WriteUndone).unwrap();
    assert!(wait.text.ends_with("2 machines < 3 replicas") && wait.until.is_some(), "{}", wait.text);
}

#[test]
fn after_the_pause_the_api_server_is_asked_first() {
    let mut world = world(CreationGate::Tried { why: why() });
    world.strays.altered.clear();
    let plan = world.plan();
    assert!(plan.steps.iter().any(|step| matches!(step.action, Action::TryMachine(_))), "{plan}");
    assert!(!plan.steps.iter().any(|step| matches!(step.action, Action::CreateMachine(_))), "{plan}");
    world.strays.growth = CreationGate::Free;
    world.settle();
    assert_eq!((world.created.len(), world.status().conditions.len()), (1, 0));
}

#[test]
fn a_set_with_enough_machines_asks_nothing_and_shows_nothing() {
    let mut world = World::new(2).machines(2);
    world.strays.growth = CreationGate::Tried { why: why() };
    let plan = world.settle();
    assert_eq!((plan.waits.len(), world.status().conditions.len()), (0, 0), "{plan}");
}

#[test]
fn a_machine_that_the_set_did_not_create_is_not_deleted_for_its_labels() {
    let world = World::new(2).machines(2).machine("foreign", json!({ "metadata": { "labels": { "pool": "b" } } }));
    let snapshot = world.snapshot();
    let foreign = snapshot.machines.iter().find(|machine| machine.metadata.name.as_deref() == Some("foreign")).unwrap();
    let mut plan = mcm_rules::plan::Plan::default();
    plan.then(Action::DeleteMachine(Arc::clone(foreign)), "a bug");
    assert_eq!(lint(&snapshot, &plan.steps).len(), 2, "{:?}", lint(&snapshot, &plan.steps));
}
