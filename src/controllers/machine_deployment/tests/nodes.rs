//! Taints and annotations of Nodes.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{
    super::Action,
    drive::{Drive, deployment, recreate, rolling},
    support::{first_machine, first_node, planned},
};
use crate::testing::Happening;
use mcm_api::{labels, machine::Machine, node::Node};

#[test]
fn what_a_user_wrote_on_a_node_is_left_alone() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 1)));
    let node = first_node(&drive);
    drive.world.nodes.edit(&mut drive.world.clock, &node, |node| {
        node.annotations_mut().insert(labels::SCALE_DOWN_DISABLED, "true");
    });
    drive.edit_class("v2");
    drive.settle();
    let node = drive.world.nodes.get(&node).unwrap();
    assert_eq!(node.annotations().keys().collect::<Vec<_>>(), [labels::SCALE_DOWN_DISABLED]);
    assert_eq!(node.spec.taints.len(), 1);
}

#[test]
fn a_taint_goes_even_if_the_pass_ended_before_its_set_was_marked() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    drive.edit_class("v2");
    let snapshot = drive.snapshot();
    for step in planned(&snapshot).steps.iter().filter(|step| matches!(step.action, Action::PatchNode { .. })) {
        drive.world.apply_deployment_action(&snapshot, &step.action).unwrap();
    }
    assert!(drive.world.nodes.all().all(|node| !node.spec.taints.is_empty()));
    drive.edit_class("v1");
    drive.settle();
    assert!(drive.world.nodes.all().all(|node| node.spec.taints.is_empty()), "{}", drive.log);
}

#[test]
fn nodes_are_left_alone_if_the_operator_says_so() {
    let mut drive = Drive::settled(deployment(2, recreate()));
    drive.policy.annotate_nodes = false;
    drive.edit_class("v2");
    drive.run();
    assert!(!drive.log.contains(" node: ") && !drive.log.contains(" nodes: "), "{}", drive.log);
}

/// The next plan continues. Nodes that wait for their next attempt leave the others their places.
#[test]
fn a_plan_patches_a_thousand_nodes_at_most() {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    drive.edit_class("v2");
    let mut snapshot = drive.snapshot();
    let (machine, node) = (Arc::clone(&snapshot.machines[0]), Arc::clone(snapshot.nodes.values().next().unwrap()));
    (snapshot.machines, snapshot.nodes) = Default::default();
    for number in 0..1005 {
        let name = format!("n{number:04}");
        let (mut machine, mut node) = (Machine::clone(&machine), Node::clone(&node));
        (machine.metadata.name, node.metadata.name) = (Some(name.clone()), Some(name.clone()));
        machine.labels_mut().insert(labels::NODE.to_owned(), name.clone());
        snapshot.machines.push(Arc::new(machine));
        snapshot.nodes.insert(name, Arc::new(node));
    }
    let patched = |snapshot: &_| {
        let steps = planned(snapshot).steps.into_iter();
        let nodes = steps.filter_map(|step| match step.action {
            Action::PatchNode { node, .. } => Some(node.name_any()),
            _ => None,
        });
        nodes.collect::<Vec<_>>()
    };
    let first = patched(&snapshot);
    assert_eq!(first.len(), 1000);
    let later = snapshot.now + SignedDuration::from_secs(1);
    snapshot.node_retries = first.into_iter().map(|node| (node, later)).collect();
    assert_eq!(patched(&snapshot), ["n1000", "n1001", "n1002", "n1003", "n1004"]);
}

#[test]
fn a_node_that_joins_an_old_set_later_is_tainted_too() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let lost = first_machine(&drive);
    drive.let_happen(&Happening::Lost { machine: lost.clone() });
    drive.let_happen(&Happening::Failed { machine: lost });
    drive.edit_class("v2");
    drive.settle();
    let old = drive.world.sets.all().find(|set| set.spec.template.spec.class.name == "v1").unwrap().name_any();
    for wanted in ["Chosen", "Created", "Running"] {
        let due = drive.world.due();
        let next = due.iter().find(|due| format!("{due:?}").starts_with(wanted) && format!("{due:?}").contains(&old));
        if let Some(next) = next {
            drive.let_happen(next);
        }
        drive.settle();
    }
    let taints: Vec<_> = drive
        .world
        .nodes
        .all()
        .filter(|node| node.name_any().contains(&old))
        .map(|node| node.spec.taints.len())
        .collect();
    assert_eq!(taints, [1, 1, 1], "{}", drive.log);
}

#[test]
fn the_node_of_a_preserved_machine_stays_closed_to_the_autoscaler() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let (node, machine) = (first_node(&drive), first_machine(&drive));
    drive.world.nodes.edit(&mut drive.world.clock, &node, |node| {
        for key in [labels::SCALE_DOWN_DISABLED, labels::SCALE_DOWN_DISABLED_BY_MCM] {
            node.annotations_mut().insert(key, "true");
        }
    });
    let until = Time(drive.world.clock.now);
    drive.world.machines.edit(&mut drive.world.clock, &machine, |machine| {
        machine.status.get_or_insert_default().current_status.preserve_expiry_time = Some(until);
    });
    drive.settle();
    assert!(!drive.log.contains(" node: ") && !drive.log.contains(" nodes: "), "{}", drive.log);
    drive.world.machines.edit(&mut drive.world.clock, &machine, |machine| {
        machine.status.get_or_insert_default().current_status.preserve_expiry_time = None;
    });
    drive.settle();
    assert_eq!(drive.log.matches("patch 1 node").count(), 1, "{}", drive.log);
}
