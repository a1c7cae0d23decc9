//! Several deployments whose selectors match each other's Machines.

use kube::ResourceExt;
use rstest::rstest;
use serde_json::json;

use super::{
    super::{Action, plan},
    drive::{deployment, pick, rolling},
    support::POLICY,
};
use crate::{
    object::{owner, suffix::NameSuffixes},
    testing::World,
};
use mcm_api::machine::{Machine, MachineDeployment, MachineSet};
use mcm_rules::plan::Plan;

/// A deployment of a class; all of them have the same selector.
fn of_class(name: &str, class: &str) -> MachineDeployment {
    let mut deployment = deployment(2, rolling(1, 0));
    deployment.metadata.name = Some(name.to_owned());
    deployment.spec.template.spec.class.name = class.to_owned();
    deployment
}

/// Plans and applies until the deployment has no more steps. Returns the last plan.
fn settle(world: &mut World, name: &str) -> Plan<Action> {
    for _ in 0..20 {
        let snapshot = world.deployment_snapshot(name).unwrap();
        let plan = plan(&snapshot, &POLICY);
        if plan.steps.is_empty() {
            return plan;
        }
        for step in &plan.steps {
            world.apply_deployment_action(&snapshot, &step.action).unwrap();
        }
    }
    panic!("planning of {name} never comes to rest");
}

/// Deployments with all their Machines.
fn settled(deployments: &[MachineDeployment]) -> World {
    let mut world = World::new();
    for deployment in deployments {
        world.deployments.create(&mut world.clock, deployment.clone()).unwrap();
    }
    for _ in 0..200 {
        deployments.iter().for_each(|deployment| drop(settle(&mut world, &deployment.name_any())));
        let due = world.due();
        let Some(happening) = due.first() else { break };
        world.happen(happening);
        world.clock.pass(1);
    }
    world
}

/// As a backup contains it: without UID, owners and status.
fn restored(world: &World, deployments: &[MachineDeployment], mut order: NameSuffixes) -> World {
    let mut after = World::new();
    let mut sets: Vec<MachineSet> = world.sets.all().map(|set| MachineSet::clone(set)).collect();
    let mut machines: Vec<Machine> = world.machines.all().map(|machine| Machine::clone(machine)).collect();
    let mut deployments = deployments.to_vec();
    while !sets.is_empty() {
        let mut set = sets.swap_remove(pick(&mut order, sets.len()));
        (set.metadata.uid, set.metadata.owner_references, set.metadata.resource_version) = (None, None, None);
        after.sets.create(&mut after.clock, set).unwrap();
    }
    while !machines.is_empty() {
        let mut machine = machines.swap_remove(pick(&mut order, machines.len()));
        // Sets adopt Machines by the hash in their selectors.
        let set = owner::controller_of(&machine.metadata).unwrap().name.clone();
        let reference = owner::reference_to(after.sets.get(&set).unwrap().as_ref()).unwrap();
        (machine.metadata.uid, machine.metadata.resource_version) = (None, None);
        machine.metadata.owner_references = Some(vec![reference]);
        after.machines.create(&mut after.clock, machine).unwrap();
    }
    while !deployments.is_empty() {
        let deployment = deployments.swap_remove(pick(&mut order, deployments.len()));
        after.deployments.create(&mut after.clock, deployment).unwrap();
    }
    after
}

/// The handed classes, and copies that differ in their names only.
#[rstest]
#[case::of_other_classes(&["a", "b", "cc"])]
#[case::copies(&["a", "a", "a"])]
fn no_machine_is_replaced_after_a_restore(#[case] classes: &[&str]) {
    let deployments: Vec<_> = (1..).zip(classes).map(|(n, class)| of_class(&format!("md-{n}"), class)).collect();
    let before = settled(&deployments);
    let names = |world: &World| world.machines.all().map(|machine| machine.name_any()).collect::<Vec<_>>();
    assert_eq!(names(&before).len(), 2 * classes.len());
    for seed in 0..200 {
        let mut world = restored(&before, &deployments, NameSuffixes::seeded(seed));
        let mut order = NameSuffixes::seeded(seed + 1000);
        for _ in 0..8 {
            let name = deployments[pick(&mut order, deployments.len())].name_any();
            settle(&mut world, &name);
        }
        deployments.iter().for_each(|deployment| drop(settle(&mut world, &deployment.name_any())));
        assert!(world.due().is_empty(), "seed {seed}: no set creates or deletes a machine");
        assert_eq!(names(&world), names(&before), "seed {seed}");
        for set in world.sets.all() {
            let owner = owner::controller_of(&set.metadata).expect("every set is adopted").name.clone();
            assert!(set.name_any().starts_with(&format!("{owner}-")), "seed {seed}: {owner} has {}", set.name_any());
        }
    }
}

#[test]
fn a_set_that_may_belong_to_several_deployments_is_left_alone_and_waited_for() {
    let deployments = [of_class("md-1", "b"), of_class("md-2", "c")];
    let mut world = settled(&deployments);
    let set = super::support::foreign_set(json!({"metadata": {"name": "found"}}));
    world.sets.create(&mut world.clock, set).unwrap();
    for deployment in &deployments {
        let plan = settle(&mut world, &deployment.name_any());
        let is_told = plan.waits.iter().any(|wait| wait.text.contains("set found to belong to one deployment"));
        assert!(is_told, "{:?}", plan.waits);
    }
    assert!(owner::controller_of(&world.sets.get("found").unwrap().metadata).is_none());
    world.deployments.delete(&mut world.clock, "md-2").unwrap();
    world.deployments.edit(&mut world.clock, "md-2", |deployment| deployment.metadata.finalizers = None);
    settle(&mut world, "md-1");
    let adopted = world.sets.get("found").unwrap();
    assert_eq!(owner::controller_of(&adopted.metadata).unwrap().name, "md-1", "only one is left");
}

#[test]
fn overlapping_selectors_are_reported_once_and_until_one_is_gone() {
    let mut world = World::new();
    let condition = |world: &World| {
        let status = world.deployments.get("md-1").unwrap().status.clone().unwrap();
        status.conditions.into_iter().find(|condition| condition.type_ == "SelectorsOverlap")
    };
    world.deployments.create(&mut world.clock, of_class("md-1", "a")).unwrap();
    settle(&mut world, "md-1");
    assert_eq!(condition(&world), None);
    world.deployments.create(&mut world.clock, of_class("md-2", "b")).unwrap();
    let mut events = 0;
    for _ in 0..5 {
        let snapshot = world.deployment_snapshot("md-1").unwrap();
        for step in plan(&snapshot, &POLICY).steps {
            events += usize::from(step.event.is_some_and(|event| event.reason.as_str() == "SelectorsOverlap"));
            world.apply_deployment_action(&snapshot, &step.action).unwrap();
        }
    }
    let message = condition(&world).unwrap().message;
    assert!(message.contains("this deployment and of md-2 match each other's machines"), "{message}");
    assert_eq!(events, 1);
    world.deployments.delete(&mut world.clock, "md-2").unwrap();
    settle(&mut world, "md-1");
    assert_eq!(condition(&world), None);
}
