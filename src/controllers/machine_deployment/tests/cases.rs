//! One rule each.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    super::{Action, Failure, Policy, Snapshot, plan},
    drive::{Drive, NAME, deployment, recreate, rolling},
};
use crate::{
    api::{
        labels,
        machine::{Machine, MachineDeployment, MachinePhase, MachineSet},
        reasons::EventReason,
    },
    controllers::{
        plan::Plan,
        testing::{Happening, merge},
    },
};

const POLICY: Policy = Policy { annotate_nodes: true, has_target: true };

fn planned(snapshot: &Snapshot) -> Plan<Action> {
    plan(snapshot, &POLICY)
}

fn only_set(drive: &Drive) -> Arc<MachineSet> {
    let sets: Vec<_> = drive.world.sets.all().collect();
    assert_eq!(sets.len(), 1, "{}", drive.log);
    sets[0].clone()
}

fn first_machine(drive: &Drive) -> String {
    drive.world.machines.all().next().unwrap().name_any()
}

fn first_node(drive: &Drive) -> String {
    drive.world.nodes.all().next().unwrap().name_any()
}

fn annotate_deployment(drive: &mut Drive, key: &str, value: &str) {
    drive.world.deployments.edit(&mut drive.world.clock, NAME, |deployment| {
        deployment.annotations_mut().insert(key.to_owned(), value.to_owned());
    });
}

fn condition(drive: &Drive, type_: &str) -> Option<(String, String)> {
    let status = drive.deployment().status.clone()?;
    let condition = status.conditions.into_iter().find(|condition| condition.type_ == type_)?;
    Some((condition.status, condition.reason))
}

fn reads(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}

/// A set as somebody else made it.
fn foreign_set(change: Value) -> MachineSet {
    let mut set = json!({
        "metadata": {"name": "found", "namespace": "shoot", "labels": {"name": NAME}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"name": NAME}},
            "template": {"metadata": {"labels": {"name": NAME}}, "spec": {"class": {"kind": "MachineClass", "name": "v1"}}},
        },
    });
    merge(&mut set, &change);
    serde_json::from_value(set).unwrap()
}

// --- what is refused ---

#[rstest]
#[case::no_selector(json!({"selector": null}), "InvalidSpec")]
#[case::negative(json!({"replicas": -1}), "InvalidSpec")]
#[case::no_amounts(json!({"strategy": {"rollingUpdate": null}}), "InvalidSpec")]
#[case::selects_all(json!({"selector": {"matchLabels": null}}), "SelectingAll")]
fn a_senseless_spec_is_reported_once_and_nothing_else_is_done(#[case] change: Value, #[case] event: &str) {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let before = drive.end_state();
    drive.wish(change);
    drive.settle();
    assert_eq!(drive.log.matches("event").count(), 1, "{}", drive.log);
    assert!(drive.log.contains(&format!("event {event}: spec.")), "{}", drive.log);
    assert!(drive.log.contains("wait for the spec to be corrected"), "{}", drive.log);
    assert_eq!(condition(&drive, "Invalid"), reads("True", "InvalidSpec"));
    assert_eq!(drive.world.due(), []);
    let valid = serde_json::to_value(&deployment(2, rolling(1, 0)).spec).unwrap();
    drive.wish(valid);
    drive.run();
    assert_eq!(drive.end_state(), before);
}

#[test]
fn a_deployment_with_a_senseless_spec_can_be_deleted() {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    drive.wish(json!({"selector": null}));
    drive.world.deployments.delete(&mut drive.world.clock, NAME).unwrap();
    drive.run();
    assert!(drive.world.deployments.get(NAME).is_none(), "{}", drive.log);
}

#[test]
fn in_place_updates_are_left_alone_and_say_so() {
    let strategy = json!({"type": "InPlaceUpdate", "rollingUpdate": null, "inPlaceUpdate": {"maxSurge": 1, "maxUnavailable": 0, "orchestrationType": "Auto"}});
    let mut fresh = Drive::of(deployment(2, strategy.clone()));
    fresh.run();
    assert_eq!(fresh.world.sets.all().count(), 0);
    assert_eq!(fresh.deployment().finalizers(), [labels::FINALIZER]);
    assert!(fresh.log.contains("event Waiting: in-place updates are not available yet"), "{}", fresh.log);

    let mut taken_over = Drive::settled(deployment(2, rolling(1, 0)));
    let set = only_set(&taken_over);
    taken_over.wish(json!({"strategy": strategy}));
    taken_over.wish_class("v2");
    taken_over.run();
    assert_eq!(only_set(&taken_over), set, "{}", taken_over.log);
    assert!(taken_over.log.contains("wait for in-place updates are not available yet"), "{}", taken_over.log);
}

// --- unknown is not absent ---

#[test]
fn nothing_is_sized_while_something_that_may_be_a_set_is_unreadable() {
    let mut drive = Drive::settled(deployment(3, rolling(1, 0)));
    drive.wish_class("v2");
    let mut snapshot = drive.snapshot();
    snapshot.unreadable = vec!["pool-other".to_owned()];
    let plan = planned(&snapshot);
    assert_eq!(plan.steps, []);
    assert!(plan.waits[0].on.starts_with("pool-other to become readable"));
}

#[test]
fn an_unreadable_machine_exists_and_does_not_serve() {
    let mut drive = Drive::settled(deployment(3, rolling(1, 0)));
    let unreadable = first_machine(&drive);
    drive.wish_class("v2");
    let mut snapshot = drive.snapshot();
    snapshot.machines.retain(|machine| machine.name_any() != unreadable);
    snapshot.unreadable = vec![unreadable];
    let plan = planned(&snapshot);
    let text = plan.steps.iter().map(|step| step.reason.as_str()).collect::<Vec<_>>().join("\n");
    assert!(text.contains("3 machines exist or are asked for, at most 4 may"), "{text}");
    assert!(text.contains("3 machines, 0 of the current template, 2 available"), "{text}");
}

#[test]
fn a_deployment_does_not_go_while_something_below_it_is_unreadable() {
    let mut drive = Drive::settled(deployment(0, rolling(1, 0)));
    drive.world.deployments.delete(&mut drive.world.clock, NAME).unwrap();
    let mut snapshot = drive.snapshot();
    snapshot.sets.clear();
    snapshot.unreadable = vec!["pool-12345".to_owned()];
    assert_eq!(planned(&snapshot).steps, []);
    drive.run();
    assert!(drive.world.deployments.get(NAME).is_none());
}

// --- sets ---

#[test]
fn a_new_set_has_all_that_others_read() {
    let mut drive = Drive::of(deployment(3, rolling(1, 0)));
    for (key, value) in [
        (labels::KUBECTL_LAST_APPLIED, "{}"),
        (labels::TRIGGER_DELETION, "gone~2024-01-01T00:00:00Z"),
        (labels::UNFREEZE, "True"),
        (labels::EFFECTIVE_CREATION_TIMEOUT, "5m"),
        ("autoscaler.gardener.cloud/scale-down-unneeded-time", "1h"),
    ] {
        annotate_deployment(&mut drive, key, value);
    }
    drive.settle();
    let mut set = serde_json::to_value(only_set(&drive)).unwrap();
    set["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
    insta::assert_yaml_snapshot!(set);
}

#[test]
fn sets_made_by_the_go_reference_are_recognised_as_they_are() {
    let mut drive = Drive::of(deployment(1, rolling(1, 0)));
    let uid = drive.deployment().uid().unwrap();
    let set = foreign_set(json!({
        "metadata": {
            "name": "pool-b4d2f", "finalizers": [labels::FINALIZER],
            "labels": {"machine-template-hash": "3141592653"},
            "annotations": {"deployment.kubernetes.io/desired-replicas": "1", "deployment.kubernetes.io/max-replicas": "2", "deployment.kubernetes.io/revision": "7", "deployment.kubernetes.io/revision-history": "3,5"},
            "ownerReferences": [{"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "name": NAME, "uid": uid, "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "selector": {"matchLabels": {"machine-template-hash": "3141592653"}},
            "template": {"metadata": {"labels": {"machine-template-hash": "3141592653"}}, "spec": {"providerID": ""}},
        },
    }));
    let mut as_stored = serde_json::to_value(&set).unwrap();
    as_stored["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
    as_stored["spec"]["template"]["metadata"]["annotations"] = Value::Null;
    let set: MachineSet = serde_json::from_value(as_stored).unwrap();
    let set = drive.world.sets.create(&mut drive.world.clock, set).unwrap();
    drive.settle();
    assert_eq!(only_set(&drive), set, "{}", drive.log);
    assert_eq!(drive.deployment().annotations()[labels::REVISION], "7");
    assert_eq!(condition(&drive, "Progressing"), reads("True", "FoundNewMachineSet"));
    drive.run();
    assert_eq!(condition(&drive, "Progressing"), reads("True", "NewMachineSetAvailable"), "settles without a rollout");
}

#[test]
fn an_adopted_set_keeps_its_owners_and_gets_its_hash_without_losing_a_machine() {
    let mut drive = Drive::of(deployment(1, rolling(1, 0)));
    let set = foreign_set(
        json!({"metadata": {"finalizers": [labels::FINALIZER], "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other"}]}}),
    );
    drive.world.sets.create(&mut drive.world.clock, set).unwrap();
    drive.world.happen(&Happening::Created { set: "found".to_owned() });
    drive.run();
    let set = only_set(&drive);
    let owners: Vec<_> = set.owner_references().iter().map(|owner| (owner.name.as_str(), owner.controller)).collect();
    assert_eq!(owners, [(NAME, Some(true)), ("other", None)]);
    let hash = &set.labels()[labels::TEMPLATE_HASH];
    assert_eq!(set.spec.selector.as_ref().unwrap().match_labels.as_ref().unwrap()[labels::TEMPLATE_HASH], *hash);
    assert_eq!(set.spec.template.metadata.labels[labels::TEMPLATE_HASH], *hash);
    assert_eq!(
        drive.world.machines.all().map(|machine| &machine.labels()[labels::TEMPLATE_HASH]).collect::<Vec<_>>(),
        [hash]
    );
}

#[test]
fn a_set_that_lost_its_labels_is_released_and_keeps_its_other_owners() {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    let name = only_set(&drive).name_any();
    drive.world.sets.edit(&mut drive.world.clock, &name, |set| {
        set.labels_mut().remove("name");
        let mut other = set.owner_references()[0].clone();
        (other.uid, other.controller) = ("other".to_owned(), None);
        set.owner_references_mut().push(other);
    });
    drive.run();
    let owners: Vec<_> =
        drive.world.sets.get(&name).unwrap().owner_references().iter().map(|owner| &owner.uid).collect();
    assert_eq!(owners, ["other"]);
    assert_eq!(drive.world.sets.all().count(), 2, "it is replaced, under another name: {}", drive.log);
}

#[test]
fn what_needs_no_rollout_reaches_the_new_set_in_one_write() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let machines: Vec<_> = drive.world.machines.all().map(|machine| machine.name_any()).collect();
    annotate_deployment(&mut drive, "example.org/note", "hello");
    drive.wish(json!({
        "autoPreserveFailedMachineMax": 2, "minReadySeconds": 5, "replicas": 3,
        "template": {"spec": {"class": {"kind": "Other"}, "drainTimeout": "1h", "nodeTemplate": {"metadata": {"labels": {"a": "b"}}}}},
    }));
    drive.settle();
    assert_eq!(drive.log.matches("patch set").count(), 1, "{}", drive.log);
    let set = only_set(&drive);
    assert_eq!((set.spec.replicas, set.spec.auto_preserve_failed_machine_max, set.spec.min_ready_seconds), (3, 2, 5));
    assert_eq!(set.spec.template.spec.class.kind, "Other");
    assert_eq!(set.spec.template.spec.node_template.metadata.labels["a"], "b");
    assert_eq!(set.annotations()["example.org/note"], "hello");
    drive.world.deployments.edit(&mut drive.world.clock, NAME, |deployment| {
        deployment.annotations_mut().remove("example.org/note");
    });
    drive.run();
    assert_eq!(only_set(&drive).annotations()["example.org/note"], "hello", "removal does not propagate");
    assert!(machines.iter().all(|name| drive.world.machines.get(name).is_some()), "no machine was replaced");
    assert_eq!(condition(&drive, "Progressing"), reads("True", "NewMachineSetAvailable"));
}

#[test]
fn a_taken_name_is_counted_and_another_one_is_used() {
    let drive = Drive::of(deployment(1, rolling(1, 0)));
    let mut snapshot = drive.snapshot();
    let created = |plan: &Plan<Action>| {
        plan.steps.iter().find_map(|step| match &step.action {
            Action::CreateSet(set) => Some(set.name_any()),
            _ => None,
        })
    };
    let first = created(&planned(&snapshot)).unwrap();
    snapshot.failure = Some(Failure::NameTaken);
    let plan = planned(&snapshot);
    let status = plan.steps.iter().position(|step| match &step.action {
        Action::WriteStatus(status) => status.collision_count == Some(1),
        _ => false,
    });
    let create = plan.steps.iter().position(|step| matches!(step.action, Action::CreateSet(_)));
    assert!(status.unwrap() < create.unwrap(), "the count is stored before the name is tried");
    assert_ne!(created(&plan).unwrap(), first);
}

#[test]
fn a_failed_creation_is_reported_and_forgotten_when_it_works() {
    let mut drive = Drive::of(deployment(1, rolling(1, 0)));
    let mut snapshot = drive.snapshot();
    snapshot.failure = Some(Failure::Other { message: "quota exceeded".to_owned() });
    let plan = planned(&snapshot);
    for step in &plan.steps {
        drive.world.apply_deployment_action(&snapshot, &step.action).unwrap();
        if let Some(note) = step.event.as_ref().filter(|note| note.warning) {
            assert_eq!(
                (note.reason, note.message.contains("quota exceeded")),
                (EventReason::MachineSetCreateError, true)
            );
        }
    }
    assert_eq!(condition(&drive, "Progressing"), reads("False", "MachineSetCreateError"));
    drive.settle();
    assert_eq!(condition(&drive, "Progressing"), reads("True", "FoundNewMachineSet"));
}

#[test]
fn a_new_set_that_was_deleted_is_made_again_when_it_is_gone() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let name = only_set(&drive).name_any();
    drive.world.sets.delete(&mut drive.world.clock, &name).unwrap();
    drive.settle();
    assert_eq!(only_set(&drive).name_any(), name, "none beside it");
    drive.run();
    assert_eq!(only_set(&drive).spec.replicas, 2);
    assert!(only_set(&drive).metadata.deletion_timestamp.is_none());
}

// --- scaling ---

#[test]
fn replicas_changed_after_the_strategy_was_switched_do_not_stall_the_rollout() {
    let mut drive = Drive::settled(deployment(3, rolling(1, 0)));
    drive.wish_class("v2");
    drive.run_for(4);
    drive.wish(json!({"strategy": {"type": "Recreate"}, "replicas": 4}));
    // Machines of two sets exist: that is what the switch left behind.
    for _ in 0..200 {
        drive.settle();
        let Some(due) = drive.world.due().into_iter().next() else { break };
        drive.world.happen(&due);
    }
    assert!(drive.end_state().starts_with("4 machines, 4 of the current template, 4 available"), "{}", drive.log);
}

#[test]
fn a_paused_deployment_is_scaled_and_nothing_else() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    drive.wish(json!({"paused": true, "replicas": 4}));
    drive.wish_class("v2");
    drive.run();
    let set = only_set(&drive);
    assert_eq!((set.spec.replicas, set.spec.template.spec.class.name.as_str()), (4, "v1"));
    assert_eq!(condition(&drive, "Progressing"), reads("Unknown", "DeploymentPaused"));
    assert!(drive.log.contains("wait for the deployment to be resumed"), "{}", drive.log);
}

#[test]
fn machines_that_leave_slowly_do_not_hold_back_a_plain_scale_up() {
    let mut drive = Drive::settled(deployment(5, rolling(1, 0)));
    drive.wish(json!({"replicas": 1}));
    drive.settle();
    while let Some(chosen) = drive.world.due().iter().find(|due| matches!(due, Happening::Chosen { .. })).cloned() {
        drive.let_happen(&chosen);
    }
    drive.wish(json!({"replicas": 4}));
    drive.settle();
    assert_eq!(only_set(&drive).spec.replicas, 4, "{}", drive.log);
}

// --- the autoscaler ---

#[test]
fn machines_chosen_by_the_autoscaler_are_marked_before_their_set_shrinks() {
    let mut drive = Drive::settled(deployment(3, rolling(1, 0)));
    let names: Vec<_> = drive.world.machines.all().map(|machine| machine.name_any()).collect();
    let time = "2026-01-02T03:04:05+02:00";
    annotate_deployment(&mut drive, labels::TRIGGER_DELETION, &format!("{}~{time},gone~{time},bad~time,", names[2]));
    annotate_deployment(&mut drive, labels::LAST_SCALER_CHANGE, time);
    drive.wish(json!({"replicas": 2}));
    drive.settle();
    let marked = drive.log.find(&format!("patch machine {}", names[2])).unwrap();
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
    snapshot.unreadable = vec![name];
    assert!(!planned(&snapshot).steps.iter().any(|step| matches!(step.action, Action::PatchDeployment(_))));
}

// --- nodes ---

#[test]
fn what_a_user_wrote_on_a_node_is_left_alone() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 1)));
    let node = first_node(&drive);
    drive.world.nodes.edit(&mut drive.world.clock, &node, |node| {
        node.annotations_mut().insert(labels::SCALE_DOWN_DISABLED.to_owned(), "true".to_owned());
    });
    drive.wish_class("v2");
    drive.settle();
    let annotations = drive.world.nodes.get(&node).unwrap().annotations().clone();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), [labels::SCALE_DOWN_DISABLED]);
    assert_eq!(drive.world.nodes.get(&node).unwrap().spec.taints.len(), 1);
}

#[test]
fn a_taint_goes_even_if_the_pass_ended_before_its_set_was_marked() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    drive.wish_class("v2");
    let snapshot = drive.snapshot();
    for step in planned(&snapshot).steps.iter().filter(|step| matches!(step.action, Action::PatchNode { .. })) {
        drive.world.apply_deployment_action(&snapshot, &step.action).unwrap();
    }
    assert!(drive.world.nodes.all().all(|node| !node.spec.taints.is_empty()));
    drive.wish_class("v1");
    drive.settle();
    assert!(drive.world.nodes.all().all(|node| node.spec.taints.is_empty()), "{}", drive.log);
}

#[test]
fn nodes_are_left_alone_if_the_operator_says_so() {
    let mut drive = Drive::settled(deployment(2, recreate()));
    drive.policy.annotate_nodes = false;
    drive.wish_class("v2");
    drive.run();
    assert!(!drive.log.contains("patch node"), "{}", drive.log);
}

#[test]
fn a_node_that_joins_an_old_set_later_is_tainted_too() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let lost = first_machine(&drive);
    drive.let_happen(&Happening::Lost { machine: lost.clone() });
    drive.let_happen(&Happening::Failed { machine: lost });
    drive.wish_class("v2");
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
            node.annotations_mut().insert(key.to_owned(), "true".to_owned());
        }
    });
    let until = Time(drive.world.clock.now);
    drive.world.machines.edit(&mut drive.world.clock, &machine, |machine| {
        machine.status.get_or_insert_default().current_status.preserve_expiry_time = Some(until);
    });
    drive.settle();
    assert!(!drive.log.contains("patch node"), "{}", drive.log);
    drive.world.machines.edit(&mut drive.world.clock, &machine, |machine| {
        machine.status.get_or_insert_default().current_status.preserve_expiry_time = None;
    });
    drive.settle();
    assert_eq!(drive.log.matches("patch node").count(), 1, "{}", drive.log);
}

// --- status ---

#[test]
fn a_rollout_without_progress_is_reported_at_its_deadline_and_recovers() {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    drive.wish(json!({"progressDeadlineSeconds": 60}));
    drive.wish_class("v2");
    drive.settle();
    let wake = planned(&drive.snapshot()).wake_at().unwrap();
    assert_eq!((wake - drive.world.clock.now).get_seconds(), 61);
    drive.world.clock.now = wake;
    drive.settle();
    assert_eq!(condition(&drive, "Progressing"), reads("False", "ProgressDeadlineExceeded"));
    assert_eq!(planned(&drive.snapshot()).wake_at(), None);
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

// --- history and rollback ---

#[test]
fn old_empty_sets_beyond_the_limit_go() {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    for class in ["v2", "v3", "v4"] {
        drive.wish_class(class);
        drive.run();
    }
    assert_eq!(drive.world.sets.all().count(), 4, "no limit, nothing goes");
    drive.wish(json!({"revisionHistoryLimit": 1}));
    drive.run();
    let mut classes: Vec<_> = drive.world.sets.all().map(|set| set.spec.template.spec.class.name.clone()).collect();
    classes.sort();
    assert_eq!(classes, ["v3", "v4"]);
}

#[rstest]
#[case::unknown(9, "DeploymentRollbackRevisionNotFound")]
#[case::present(2, "DeploymentRollbackTemplateUnchanged")]
fn a_rollback_that_changes_nothing_says_so_and_is_cleared(#[case] revision: i64, #[case] event: &str) {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    drive.wish_class("v2");
    drive.run();
    let before = drive.end_state();
    drive.wish(json!({"rollbackTo": {"revision": revision}}));
    drive.run();
    assert!(drive.log.contains(&format!("event {event}")), "{}", drive.log);
    assert_eq!(drive.deployment().spec.rollback_to, None);
    assert_eq!(drive.end_state(), before);
}

#[test]
fn revisions_count_on_when_an_old_template_returns() {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    for class in ["v2", "v1"] {
        drive.wish_class(class);
        drive.run();
    }
    let set = drive.world.sets.all().find(|set| set.spec.template.spec.class.name == "v1").unwrap();
    assert_eq!(
        (set.annotations()[labels::REVISION].as_str(), set.annotations()[labels::REVISION_HISTORY].as_str()),
        ("3", "1")
    );
    assert_eq!(drive.deployment().annotations()[labels::REVISION], "3");
}

#[test]
fn a_deployment_goes_when_its_sets_are_gone() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    drive.wish_class("v2");
    drive.run_for(3);
    drive.world.deployments.edit(&mut drive.world.clock, NAME, |deployment: &mut MachineDeployment| {
        deployment.finalizers_mut().push("other".to_owned());
    });
    drive.world.deployments.delete(&mut drive.world.clock, NAME).unwrap();
    drive.run();
    assert_eq!(drive.world.sets.all().count() + drive.world.machines.all().count(), 0);
    assert_eq!(drive.deployment().finalizers(), ["other"], "finalizers of others stay");
}
