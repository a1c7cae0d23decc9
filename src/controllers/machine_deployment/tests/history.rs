//! Revisions, rollback, deletion.

use kube::ResourceExt;
use rstest::rstest;
use serde_json::json;

use super::{
    drive::{Drive, NAME, deployment, rolling},
    support::only_set,
};
use mcm_api::{labels, machine::MachineDeployment};

#[test]
fn old_empty_sets_beyond_the_limit_go() {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    for class in ["v2", "v3", "v4"] {
        drive.edit_class(class);
        drive.run();
    }
    assert_eq!(drive.world.sets.all().count(), 4, "no limit, nothing goes");
    drive.edit(json!({"revisionHistoryLimit": 1}));
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
    drive.edit_class("v2");
    drive.run();
    let before = drive.end_state();
    drive.edit(json!({"rollbackTo": {"revision": revision}}));
    drive.run();
    assert!(drive.log.contains(&format!("event {event}")), "{}", drive.log);
    assert_eq!(drive.deployment().spec.rollback_to, None);
    assert_eq!(drive.end_state(), before);
}

#[test]
fn revisions_count_on_when_an_old_template_returns() {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    for class in ["v2", "v1"] {
        drive.edit_class(class);
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
    drive.edit_class("v2");
    drive.run_for(3);
    drive.world.deployments.edit(&mut drive.world.clock, NAME, |deployment: &mut MachineDeployment| {
        deployment.finalizers_mut().push("other".to_owned());
    });
    drive.world.deployments.delete(&mut drive.world.clock, NAME).unwrap();
    drive.run();
    assert_eq!(drive.world.sets.all().count() + drive.world.machines.all().count(), 0);
    assert_eq!(drive.deployment().finalizers(), ["other"], "finalizers of others stay");
}

/// `kubectl delete --cascade=orphan`: until the garbage collector has released the sets, and afterwards.
#[test]
fn a_deployment_that_is_deleted_with_the_policy_orphan_leaves_its_sets() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let before = drive.machine_names();
    drive.world.deployments.edit(&mut drive.world.clock, NAME, |deployment: &mut MachineDeployment| {
        deployment.finalizers_mut().push("orphan".to_owned());
    });
    drive.world.deployments.delete(&mut drive.world.clock, NAME).unwrap();
    drive.run();
    assert_eq!(drive.deployment().finalizers(), [labels::FINALIZER, "orphan"], "{}", drive.log);
    let set = only_set(&drive).name_any();
    drive.world.sets.edit(&mut drive.world.clock, &set, |set| set.owner_references_mut().clear());
    drive.world.deployments.edit(&mut drive.world.clock, NAME, |deployment: &mut MachineDeployment| {
        deployment.finalizers_mut().retain(|finalizer| finalizer != "orphan");
    });
    drive.run();
    assert!(drive.world.deployments.get(NAME).is_none(), "{}", drive.log);
    assert_eq!((only_set(&drive).spec.replicas, drive.machine_names()), (2, before));
}

#[test]
fn a_rollback_brings_annotations_back_but_not_the_time_of_the_last_scaling() {
    let mut drive = Drive::settled(deployment(1, rolling(1, 0)));
    let scaled = |time: &str| json!({labels::LAST_SCALER_CHANGE: time, "example.org/note": time});
    let annotate = |drive: &mut Drive, annotations: &serde_json::Value| {
        for (key, value) in annotations.as_object().unwrap() {
            super::support::annotate_deployment(drive, key, value.as_str().unwrap());
        }
    };
    annotate(&mut drive, &scaled("2026-01-01T00:00:00Z"));
    drive.run();
    drive.edit_class("v2");
    drive.run();
    annotate(&mut drive, &scaled("2026-02-02T00:00:00Z"));
    drive.run();
    drive.edit(json!({"rollbackTo": {"revision": 1}}));
    drive.run();
    let annotations = drive.deployment().annotations();
    assert_eq!(annotations["example.org/note"], "2026-01-01T00:00:00Z");
    assert_eq!(annotations[labels::LAST_SCALER_CHANGE], "2026-02-02T00:00:00Z");
}
