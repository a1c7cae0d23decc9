//! The sets of a deployment, and how new ones are created.

use kube::ResourceExt;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    super::{Action, SetCreateFailure},
    drive::{Drive, NAME, deployment, rolling},
    support::{annotate_deployment, condition, foreign_set, only_set, planned, reads},
};
use crate::{object::owner, testing::Happening};
use mcm_api::{labels, machine::MachineSet, reasons::EventReason};
use mcm_rules::plan::Plan;

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
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_yaml_snapshot!("a_new_set_has_all_that_others_read", set));
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

/// The CRDs refuse another selector. Those of the Go program do not.
#[rstest]
#[case::one_more_label(json!({"matchLabels": {"some": "foo"}}))]
#[case::an_expression(json!({"matchLabels": null, "matchExpressions": [{"key": "some", "operator": "Exists"}]}))]
fn the_set_of_an_earlier_selector_is_rolled(#[case] selector: Value) {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    drive.edit(json!({"selector": selector, "template": {"metadata": {"labels": {"some": "foo"}}}}));
    drive.run();
    assert!(drive.end_state().starts_with("2 machines, 2 of the current template"), "{}", drive.log);
    assert_eq!(drive.world.machines.all().count(), 2, "{}", drive.log);
    let uid = drive.deployment().uid().unwrap();
    let is_controlled = |set: &MachineSet| owner::is_controlled_by(&set.metadata, &uid);
    assert!(drive.world.sets.all().all(|set| is_controlled(set)), "{}", drive.log);
}

#[test]
fn the_set_of_an_earlier_selector_is_deleted_with_the_deployment() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    drive.edit(
        json!({"selector": {"matchLabels": {"some": "foo"}}, "template": {"metadata": {"labels": {"some": "foo"}}}}),
    );
    drive.settle();
    drive.world.deployments.delete(&mut drive.world.clock, NAME).unwrap();
    drive.run();
    assert_eq!((drive.world.machines.all().count(), drive.world.sets.all().count()), (0, 0), "{}", drive.log);
}

#[test]
fn what_needs_no_rollout_reaches_the_new_set_in_one_write() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let machines: Vec<_> = drive.world.machines.all().map(|machine| machine.name_any()).collect();
    annotate_deployment(&mut drive, "example.org/note", "hello");
    drive.edit(json!({
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
    snapshot.failure = Some(SetCreateFailure::NameTaken);
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
    snapshot.failure = Some(SetCreateFailure::Other { message: "quota exceeded".to_owned() });
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
fn a_deleted_new_set_is_recreated_once_it_is_removed() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let name = only_set(&drive).name_any();
    drive.world.sets.delete(&mut drive.world.clock, &name).unwrap();
    drive.settle();
    assert_eq!(only_set(&drive).name_any(), name, "none beside it");
    drive.run();
    assert_eq!(only_set(&drive).spec.replicas, 2);
    assert!(only_set(&drive).metadata.deletion_timestamp.is_none());
}
