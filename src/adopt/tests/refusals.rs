//! Obstacles that prevent a migration.

use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};

use super::world::World;
use crate::{
    Kind, MigrationDirection, MigrationStage,
    plan::{NoPlan, abort, plan},
};
use mcm_api::patch;

const THERE: MigrationDirection = MigrationDirection::ToNative;

/// 4.3 refusal, 4.4 step 1: nothing is begun while an object is changing, unknown, or managed by another client.
#[rstest]
#[case::paused_cluster(Kind::Cluster, "c", json!({ "spec": { "paused": true } }), "pause: Cluster c is paused")]
#[case::paused_machine(
    Kind::CapiMachine, "d-abc-1", json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } }),
    "pause: Machine d-abc-1 is paused by another client"
)]
#[case::other_migration(
    Kind::Machine, "d-abc-1", json!({ "metadata": { "annotations": { "machine.mcm/migration": "other" } } }),
    "pause: MCM Machine d-abc-1 is paused by another client"
)]
#[case::deleting(
    Kind::CapiMachine, "d-abc-1", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
    "machine d-abc-1: settled: Machine d-abc-1 is being deleted"
)]
#[case::provisioning(
    Kind::CapiMachine, "d-abc-1", json!({ "status": { "phase": "Provisioning" } }),
    "machine d-abc-1: settled: its phase is Provisioning, not Running"
)]
#[case::native_phase(
    Kind::Machine, "d-abc-1", json!({ "status": { "currentStatus": { "phase": "Pending" } } }),
    "machine d-abc-1: settled: the phase of the MCM Machine is Pending"
)]
#[case::unhealthy_node(
    Kind::Node, "d-abc-1", json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }),
    "machine d-abc-1: node: Node d-abc-1 is not Ready"
)]
#[case::node_of_another_vm(
    Kind::Node, "d-abc-1", json!({ "spec": { "providerID": "simulated:///r/x" } }),
    "machine d-abc-1: node: Node d-abc-1 has VM simulated:///r/x, the machine simulated:///r/d-abc-1"
)]
#[case::another_vm_in_the_cloud(
    Kind::Machine, "d-abc-1", json!({ "spec": { "providerID": "simulated:///r/x" } }),
    "machine d-abc-1: vm: the cloud has simulated:///r/d-abc-1 under this name, the machine simulated:///r/x"
)]
#[case::claimed_twice(
    Kind::InfraMachine, "d-abc-0", json!({ "spec": { "providerID": "simulated:///r/d-abc-1" } }),
    "machine d-abc-1: unclaimed: MCMMachine d-abc-0 also has VM simulated:///r/d-abc-1"
)]
#[case::scaling(
    Kind::CapiDeployment, "d", json!({ "spec": { "replicas": 3 } }), "rollout: 2 machines, 3 replicas: wait until it is scaled"
)]
#[case::no_replicas(
    Kind::CapiDeployment, "d", json!({ "spec": { "replicas": null } }), "rollout: spec.replicas is absent: write it"
)]
#[case::rolling(
    Kind::CapiDeployment, "d", json!({ "spec": { "template": { "spec": { "version": "v1.34.0" } } } }),
    "rollout: MachineSet d-abc has another template: wait until the rollout is complete"
)]
#[case::topology(
    Kind::CapiDeployment, "d", json!({ "metadata": { "labels": { "topology.cluster.x-k8s.io/owned": "" } } }),
    "deployment: belongs to a ClusterClass, which would overwrite it: create a separate deployment"
)]
#[case::not_convertible(
    Kind::CapiDeployment, "d", json!({ "spec": { "rollout": { "strategy": { "type": "OnDelete" } } } }),
    "conversion: MachineDeployment d: spec.rollout.strategy.type"
)]
fn nothing_is_begun_while_something_is_not_as_it_must_be(
    #[case] kind: Kind,
    #[case] name: &str,
    #[case] change: Value,
    #[case] expected: &str,
) {
    let mut world = World::of_cluster_api(2);
    world.edit(kind, name, &change);
    let plan = world.plan(THERE);
    assert_eq!((plan.stage, plan.todo.actions.len()), (MigrationStage::Fresh, 0));
    let failed: Vec<String> = plan.failed().map(ToString::to_string).collect();
    assert!(failed.iter().any(|text| text.starts_with(expected)), "{failed:#?}");
}

/// 2, unknown is not absent: without an answer of the cloud the check fails.
#[test]
fn what_the_cloud_did_not_say_does_not_pass() {
    let world = World::of_cluster_api(1);
    let plan = plan(&world.s, THERE).unwrap();
    assert!(plan.asks_cloud && plan.todo.actions.is_empty());
    assert!(plan.failed().any(|check| check.check == "vm"));
    assert!(plan.failed().any(|check| check.check == "orphans"));
}

/// T9: a VM without a machine would be deleted by the collector, so it is named before.
#[test]
fn a_vm_that_a_collector_would_delete_stands_in_the_way() {
    let mut world = World::of_cluster_api(1);
    world.plan(THERE);
    let cloud = world.s.cloud.as_mut().unwrap();
    for listed in cloud.listed.values_mut() {
        Arc::make_mut(listed.as_mut().unwrap()).insert("simulated:///r/lost".to_owned(), "lost".to_owned());
    }
    let plan = plan(&world.s, THERE).unwrap();
    let failed: Vec<String> = plan.failed().map(ToString::to_string).collect();
    assert_eq!(
        failed,
        ["orphans: VM simulated:///r/lost (lost) has no machine: the MCM orphan collector would delete it"]
    );
}

#[test]
fn a_name_that_is_taken_on_the_other_side_stands_in_the_way() {
    let mut world = World::of_cluster_api(1);
    world.put(Kind::Deployment, "d", json!({ "spec": {} }));
    let failed: Vec<String> = world.plan(THERE).failed().map(ToString::to_string).collect();
    assert_eq!(failed, ["names: MCM MachineDeployment d exists: rename or delete it"]);
}

/// A health check that also selects other machines cannot go with this deployment.
#[test]
fn a_health_check_of_several_deployments_stands_in_the_way() {
    let mut world = World::of_cluster_api(1);
    world.put(Kind::HealthCheck, "h", json!({ "spec": { "clusterName": "c", "selector": {}, "checks": {} } }));
    world.put(Kind::CapiMachine, "other", json!({ "spec": { "clusterName": "c" } }));
    let failed: Vec<String> = world.plan(THERE).failed().map(ToString::to_string).collect();
    let expected =
        "health checks: MachineHealthCheck h also selects Machine other: create one for this deployment only";
    assert!(failed.contains(&expected.to_owned()), "{failed:#?}");
}

/// Without the webhooks of core, a health check that exists lacks defaults that the conversion writes.
#[rstest]
#[case::the_same(json!({}), false)]
#[case::another_time(json!({ "checks": { "nodeStartupTimeoutSeconds": 60 } }), true)]
fn a_health_check_that_exists_is_compared_with_its_defaults(#[case] change: Value, #[case] is_taken: bool) {
    let mut world = World::empty();
    let selector = json!({ "matchLabels": { "a": "b" } });
    let mut stored = json!({ "clusterName": "c", "selector": selector });
    patch::apply(&mut stored, &change);
    world.put(Kind::HealthCheck, "d", json!({ "spec": stored }));
    let spec = json!({ "clusterName": "c", "selector": selector, "checks": { "nodeStartupTimeoutSeconds": 600 } });
    let made = json!({ "metadata": { "name": "d" }, "spec": spec });
    assert_eq!(world.s.is_taken(Kind::HealthCheck, &made), is_taken);
}

/// The switch waits for confirmations: without a controller the migration does not continue, and nothing is lost.
#[test]
fn without_controllers_that_confirm_nothing_goes_on() {
    let mut world = World::of_cluster_api(1);
    for _ in 0..20 {
        world.round(THERE, usize::MAX);
    }
    let plan = world.plan(THERE);
    assert_eq!((plan.stage, plan.todo.actions.len()), (MigrationStage::Forward, 0));
    assert!(
        plan.todo.waits.contains(&"the condition Paused of MachineDeployment d".to_owned()),
        "{:?}",
        plan.todo.waits
    );
}

#[test]
fn only_one_way_at_a_time_and_back_only_before_the_switch() {
    let mut world = World::of_cluster_api(1);
    assert!(abort(&world.s).is_err(), "nothing is under way");
    world.round(THERE, usize::MAX);
    world.round(THERE, usize::MAX);
    let error = plan(&world.s, MigrationDirection::FromNative).unwrap_err();
    assert!(matches!(error, NoPlan::OtherWay { .. }), "{error}");
    world.abort().unwrap();
    assert!(matches!(plan(&world.s, THERE), Err(NoPlan::Aborting { .. })));
    world.walk(MigrationDirection::FromNative);
    world.walk(THERE);
    assert!(abort(&world.s).is_err(), "the authority is switched");
}

/// An MCMMachinePool owns a native deployment.
#[test]
fn the_native_deployment_of_a_pool_is_not_moved() {
    let mut world = World::of_cluster_api(1);
    world.walk(THERE);
    world.edit(Kind::Deployment, "d", &json!({ "metadata": { "labels": { "machine.mcm/pool": "p" } } }));
    let plan = world.plan(MigrationDirection::FromNative);
    let told: Vec<&str> = plan.failed().map(|check| check.text.as_str()).collect();
    assert!(told.contains(&"belongs to MCMMachinePool p, so Cluster API already manages it"), "{told:?}");
}

/// 8, a Go MCM in the namespace: it has no migrations, so it never confirms one. All it ever gets is a set without machines.
#[test]
fn a_native_manager_that_does_not_confirm_gets_an_empty_set_and_no_machine() {
    let mut world = World::of_cluster_api(2);
    for _ in 0..30 {
        world.round(THERE, usize::MAX);
        world.controllers();
        if world.s.find(Kind::Set, "d-abc").is_some() {
            world.edit(Kind::Set, "d-abc", &json!({ "status": { "machineSetCondition": null } }));
        }
    }
    let plan = world.plan(THERE);
    assert_eq!(plan.todo.waits, ["the condition Paused of MCM MachineSet d-abc"]);
    assert_eq!(world.s.find(Kind::Set, "d-abc").unwrap().number("/spec/replicas"), Some(0));
    assert!(world.s.find(Kind::Deployment, "d").is_none());
    assert!(world.s.all(Kind::Machine).all(|native| native.label("node").is_none()));
}

/// 8, a late cache: a set that does not see its machines would create others, so it has to count them before the
/// switch.
#[test]
fn the_authority_is_not_switched_before_the_set_counts_its_machines() {
    let mut world = World::of_cluster_api(2);
    for _ in 0..30 {
        world.round(THERE, usize::MAX);
        world.controllers();
        if world.s.find(Kind::Set, "d-abc").is_some() {
            world.edit(Kind::Set, "d-abc", &json!({ "status": { "replicas": 1 } }));
        }
    }
    let plan = world.plan(THERE);
    assert_eq!((plan.stage, plan.current().unwrap().0), (MigrationStage::Forward, 5));
    assert_eq!(plan.todo.waits, ["MCM MachineSet d-abc to count 2 machines"]);
}
