//! Changes of the replicas.

use kube::ResourceExt;
use rstest::rstest;
use serde_json::json;

use super::{
    drive::{Drive, NAME, deployment, rolling},
    support::{condition, only_set, reads},
};
use crate::{
    machine_deployment::{Action, plan},
    testing::Happening,
};
use mcm_api::labels;
use mcm_rules::plan::ReconcileHold;

#[test]
fn replicas_changed_after_the_strategy_was_switched_do_not_stall_the_rollout() {
    let mut drive = Drive::settled(deployment(3, rolling(1, 0)));
    drive.edit_class("v2");
    drive.run_for(4);
    drive.edit(json!({"strategy": {"type": "Recreate"}, "replicas": 4}));
    // Machines of two sets exist: they are left from the switch of the strategy.
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
    drive.edit(json!({"paused": true, "replicas": 4}));
    drive.edit_class("v2");
    drive.run();
    let set = only_set(&drive);
    assert_eq!((set.spec.replicas, set.spec.template.spec.class.name.as_str()), (4, "v1"));
    assert_eq!(condition(&drive, "Progressing"), reads("Unknown", "DeploymentPaused"));
    assert!(drive.log.contains("waiting for the deployment to be resumed"), "{}", drive.log);
}

#[test]
fn machines_that_leave_slowly_do_not_hold_back_a_plain_scale_up() {
    let mut drive = Drive::settled(deployment(5, rolling(1, 0)));
    drive.edit(json!({"replicas": 1}));
    drive.settle();
    while let Some(chosen) = drive.world.due().iter().find(|due| matches!(due, Happening::Chosen { .. })).cloned() {
        drive.let_happen(&chosen);
    }
    drive.edit(json!({"replicas": 4}));
    drive.settle();
    assert_eq!(only_set(&drive).spec.replicas, 4, "{}", drive.log);
}

#[test]
fn the_label_freeze_on_a_deployment_holds_nothing_back() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    drive.world.deployments.edit(&mut drive.world.clock, super::drive::NAME, |deployment| {
        deployment.labels_mut().insert(mcm_api::labels::FREEZE.to_owned(), "True".to_owned());
    });
    drive.edit_class("v2");
    drive.edit(json!({"replicas": 3}));
    drive.run();
    assert!(drive.end_state().starts_with("3 machines, 3 of the current template, 3 available"), "{}", drive.log);
}

/// A paused Cluster of Cluster API: no rollout, no scaling, no deletion.
#[test]
fn a_held_deployment_is_not_touched() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    drive.edit(json!({"replicas": 4}));
    let mut snapshot = drive.snapshot();
    snapshot.hold = Some("Cluster c to be unpaused".to_owned().into());
    let plan = plan(&snapshot, &drive.policy);
    assert!(plan.steps.is_empty());
    assert_eq!(plan.waits[0].text, "Cluster c to be unpaused");
}

/// 4.3: a migration waits until the deployment confirmed the hold. Afterwards all traces of it are removed.
#[test]
fn a_deployment_that_is_moved_is_left_alone_and_says_so() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    drive.edit(json!({"replicas": 4}));
    let mut snapshot = drive.snapshot();
    snapshot.hold =
        Some(ReconcileHold { is_confirmed: true, ..ReconcileHold::from("MCMMigration d to be complete".to_owned()) });
    let steps = plan(&snapshot, &drive.policy).steps;
    let [Action::WriteStatus(status)] = &steps.iter().map(|step| step.action.clone()).collect::<Vec<_>>()[..] else {
        panic!("{steps:?}")
    };
    assert!(status.conditions.iter().any(|condition| condition.type_ == "Paused" && condition.status == "True"));
    let mut moved = (*snapshot.deployment).clone();
    moved.status = Some((**status).clone());
    snapshot.deployment = moved.into();
    assert!(plan(&snapshot, &drive.policy).steps.is_empty(), "it is said once");
    snapshot.hold = None;
    let steps = plan(&snapshot, &drive.policy).steps;
    let written = steps.iter().find_map(|step| match &step.action {
        Action::WriteStatus(status) => Some(status.clone()),
        _ => None,
    });
    assert!(written.unwrap().conditions.iter().all(|condition| condition.type_ != "Paused"));
}

fn loses_replicas(drive: &mut Drive, manager: &str, operation: &str, owned: serde_json::Value) {
    drive.is_plain = false;
    let entry = json!({"manager": manager, "operation": operation, "fieldsV1": {"f:spec": owned}});
    drive.world.deployments.edit(&mut drive.world.clock, NAME, |deployment| {
        deployment.spec.replicas = 0;
        deployment.metadata.managed_fields = Some(vec![serde_json::from_value(entry).unwrap()]);
    });
}

#[rstest]
#[case::a_manifest_at_rest("helm", "Apply", 0)]
#[case::a_manifest_in_mid_rollout("helm", "Apply", 3)]
#[case::a_patch_of_a_created_object("kubectl-create", "Update", 0)]
#[case::a_replace_in_mid_rollout("kubectl-replace", "Update", 3)]
#[case::a_client_of_unknown_name("OpenAPI-Generator", "Update", 0)]
fn replicas_that_a_tool_loses_are_kept(#[case] manager: &str, #[case] operation: &str, #[case] happenings: usize) {
    let mut drive = Drive::settled(deployment(3, rolling(1, 0)));
    drive.edit_class("v2");
    drive.run_for(happenings);
    loses_replicas(&mut drive, manager, operation, json!({"f:template": {}}));
    drive.settle();
    assert_eq!(drive.deployment().spec.replicas, 3, "{}", drive.log);
    assert_eq!(drive.log.matches("event ReplicasRestored").count(), 1, "{}", drive.log);
    drive.run();
    assert!(drive.end_state().starts_with("3 machines, 3 of the current template"), "{}", drive.log);
}

#[rstest]
#[case::that_a_manifest_contains("helm", json!({"f:template": {}, "f:replicas": {}}))]
#[case::that_gardenlet_writes("gardenlet", json!({"f:template": {}}))]
#[case::that_an_extension_writes("gardener-extension-provider-aws", json!({"f:template": {}}))]
fn zero_replicas_delete_all_machines(#[case] manager: &str, #[case] owned: serde_json::Value) {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    loses_replicas(&mut drive, manager, "Update", owned);
    drive.run();
    assert_eq!(drive.world.machines.all().count(), 0, "{}", drive.log);
}

/// Its Go client leaves 0 out, and the manifest may never have had replicas. A Failed Machine beside them is not in its
/// list.
#[rstest]
#[case::all_are_listed(3, None)]
#[case::one_beside_them_has_failed(2, Some("Failed"))]
fn the_autoscaler_scales_a_deployment_without_replicas_in_its_manifest_to_zero(
    #[case] listed: usize,
    #[case] phase: Option<&str>,
) {
    let mut drive = Drive::settled(deployment(3, rolling(1, 0)));
    let names = drive.machine_names();
    if let Some(phase) = phase {
        drive.edit(json!({"replicas": 2}));
        drive.settle();
        drive.world.machines.edit(&mut drive.world.clock, &names[2], |machine| {
            let status = json!({"currentStatus": {"phase": phase}});
            machine.status = serde_json::from_value(status).unwrap();
        });
    }
    let listed: Vec<&str> = names.iter().take(listed).map(String::as_str).collect();
    drive.scale_down(0, &listed);
    loses_replicas(&mut drive, "kubectl-create", "Update", json!({"f:template": {}}));
    drive.run();
    assert_eq!((drive.world.machines.all().count(), drive.deployment().spec.replicas), (0, 0), "{}", drive.log);
}

/// Versions before 2023 have no list.
#[test]
fn an_older_autoscaler_scales_to_zero_with_priorities() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    for name in drive.machine_names() {
        drive.world.machines.edit(&mut drive.world.clock, &name, |machine| {
            machine.annotations_mut().insert(labels::PRIORITY.to_owned(), labels::FIRST_PRIORITY.to_owned());
        });
    }
    loses_replicas(&mut drive, "kubectl-create", "Update", json!({"f:template": {}}));
    drive.run();
    assert_eq!((drive.world.machines.all().count(), drive.deployment().spec.replicas), (0, 0), "{}", drive.log);
}

/// There is nothing to keep, and the autoscaler takes back what it asked for.
#[test]
fn a_deployment_without_machines_gets_none() {
    let mut drive = Drive::of(deployment(2, rolling(1, 0)));
    drive.settle();
    loses_replicas(&mut drive, "kubectl-create", "Update", json!({"f:template": {}}));
    drive.run();
    assert_eq!((drive.world.machines.all().count(), drive.deployment().spec.replicas), (0, 0), "{}", drive.log);
}

#[test]
fn a_new_deployment_without_replicas_has_none() {
    let mut drive = Drive::of(deployment(0, rolling(1, 0)));
    loses_replicas(&mut drive, "helm", "Apply", json!({"f:template": {}}));
    drive.run();
    assert_eq!((drive.world.machines.all().count(), drive.deployment().spec.replicas), (0, 0));
}
