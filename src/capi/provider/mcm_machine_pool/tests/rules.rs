//! One test for each rule of the contract, by its number in docs/conformance-capi.md.

use rstest::rstest;
use serde_json::{Value, json};

use super::world::World;
use crate::testing::world::{class, deleted};
use mcm_api::patch;

/// P8, I11: core becomes the controller first.
#[test]
fn nothing_is_written_before_core_made_the_machine_pool_an_owner() {
    let mut world = World::new();
    let alone = |created: &str| json!({ "metadata": { "ownerReferences": null, "creationTimestamp": created } });
    world.set_object(&alone("2027-01-15T08:00:00Z"));
    assert_eq!(world.pass(), ["Cluster API core to set its MachinePool as an owner"]);
    world.set_cluster(&json!({ "spec": { "paused": true } }));
    world.pass();
    assert_eq!(world.log, [""; 0], "not even the condition Paused");
    world.set_cluster(&json!({ "spec": { "paused": null } }));
    world.set_object(&alone("2027-01-15T07:59:50Z"));
    world.pass();
    assert_eq!((world.condition("Ready").as_str(), world.log.len()), ("Unknown WaitingForOwner", 1), "{}", world.story);
}

/// P1, P2, P3, P4, P7, trap T2: core reads `ready`, the contract documents `provisioned`.
#[test]
fn a_pool_shows_its_vms_as_nodes_name_them() {
    let mut world = World::new();
    world.pass();
    assert_eq!(world.log[0], r#"patch {"metadata":{"finalizers":["mcmmachinepool.infrastructure.cluster.x-k8s.io"]}}"#);
    let status = world.status();
    assert_eq!((status.ready, status.initialization.provisioned, status.replicas), (true, Some(true), Some(0)));
    world.catch_up();
    world.pass();
    assert_eq!(world.ids(), ["simulated:///r/p-0", "simulated:///r/p-1", "simulated:///r/p-2"]);
    let status = world.status();
    assert_eq!(
        (status.replicas, status.instances.len(), status.instances[0].instance_name.as_str()),
        (Some(3), 3, "p-0")
    );
    assert_eq!(world.condition("Ready"), "True Provisioned");
    let before = world.log.len();
    world.pass();
    assert_eq!(world.log.len(), before, "F4: idle is idle");
}

/// P7: a VM keeps the version with which it was created.
#[test]
fn a_pool_shows_addresses_and_versions_of_its_vms() {
    let mut world = World::running();
    let addresses = json!([{ "type": "InternalIP", "address": "10.0.0.7" }]);
    world.set_native("p-1", &json!({ "status": { "addresses": addresses } }));
    world.set_pool(&json!({ "spec": { "template": { "spec": { "version": "v1.34.0" } } } }));
    world.pass();
    let shown = serde_json::to_value(&world.status().instances).unwrap();
    assert_eq!(
        shown[1],
        json!({
            "instanceName": "p-1", "ready": true, "providerID": "simulated:///r/p-1", "addresses": addresses,
            "version": "v1.33.0",
        })
    );
    let first =
        json!({ "instanceName": "p-0", "ready": true, "providerID": "simulated:///r/p-0", "version": "v1.33.0" });
    assert_eq!(shown[0], first);
    world.set_native("p-0", &json!({ "status": { "currentStatus": { "phase": "Unknown" } } }));
    world.pass();
    assert!(!world.status().instances[0].ready, "its Node is not ready");
}

/// P1, trap T1: the form of the Node, with the zone of the machine's class, not the zone of the pool's current class.
#[test]
fn an_id_has_the_zone_of_the_class_of_its_machine() {
    let mut world = World::running();
    world.classes.insert("other".to_owned(), class("other", "eu-west-1b"));
    world.classes.insert("small".to_owned(), class("small", "eu-west-1a"));
    world.set_object(&json!({ "spec": { "machineClassRef": { "name": "other" } } }));
    world.set_native("p-0", &json!({ "spec": { "providerID": "aws:///eu-west-1/i-0" } }));
    world.pass();
    assert!(world.ids().contains(&"aws:///eu-west-1a/i-0".to_owned()), "{:?}", world.ids());
}

/// P10: earlier versions listed IDs in the form of the driver. Core would delete the Nodes of IDs that leave the list.
#[test]
fn an_id_that_an_earlier_version_listed_stays() {
    let mut world = World::running();
    world.set_native("p-0", &json!({ "spec": { "providerID": "openstack:///RegionOne/7f-0" } }));
    world.set_native("p-1", &json!({ "spec": { "providerID": "openstack:///RegionOne/7f-1" } }));
    world.set_object(&json!({ "spec": { "providerIDList": ["openstack:///RegionOne/7f-0"] } }));
    world.pass();
    assert_eq!(world.ids()[..2], ["openstack:///7f-1", "openstack:///RegionOne/7f-0"]);
}

/// P1: the zone reported by the cloud takes precedence.
#[test]
fn an_id_has_the_zone_that_the_cloud_reports() {
    let mut world = World::running();
    world.classes.insert("small".to_owned(), class("small", "eu-west-1a"));
    let reported = json!({ "machine.mcm/zone": "eu-west-1c" });
    world.set_native(
        "p-0",
        &json!({ "metadata": { "annotations": reported }, "spec": { "providerID": "aws:///eu-west-1/i-0" } }),
    );
    world.pass();
    assert!(world.ids().contains(&"aws:///eu-west-1c/i-0".to_owned()), "{:?}", world.ids());
}

/// P10, T20: core deletes the Node of an ID that leaves the list.
#[test]
fn an_id_leaves_the_list_only_when_its_machine_is_gone() {
    let mut world = World::running();
    let all = world.ids();
    patch::apply(world.natives.get_mut("p-2").unwrap(), &deleted());
    world.pass();
    assert_eq!((world.ids(), world.status().replicas), (all.clone(), Some(2)), "the VM may still be there");
    world.natives.remove("p-2");
    world.pass();
    assert_eq!(world.ids(), all[..2]);
}

/// P10: unknown is not absent.
#[rstest]
#[case::unreadable_machine(|world: &mut World| { world.natives.remove("p-2"); world.unreadable_machines.push("p-2".to_owned()); })]
#[case::zone_unknown(|world: &mut World| world.set_native("p-2", &json!({ "spec": { "providerID": "aws:///eu-west-1/i-2" } })))]
#[case::after_a_pause(|world: &mut World| { world.natives.clear(); world.is_resumed = false; })]
#[case::paused(|world: &mut World| { world.natives.clear(); world.set_cluster(&json!({ "spec": { "paused": true } })); })]
fn no_id_leaves_the_list_while_something_is_unknown(#[case] change: fn(&mut World)) {
    let mut world = World::running();
    let all = world.ids();
    change(&mut world);
    world.pass();
    assert_eq!(world.ids(), all);
}

/// P5: core would stop to follow the pool.
#[test]
fn a_pool_stays_ready_while_it_rolls_and_when_it_fails() {
    let mut world = World::running();
    world.set_template(&json!({ "version": "v1.34.0" }));
    world.pass();
    assert_eq!(world.condition("Ready"), "False RollingOut");
    assert!(world.status().ready);
    world.set_native("p-0", &json!({ "status": { "lastOperation": { "state": "Failed", "errorCode": "ResourceExhausted", "description": "the cloud is full" } } }));
    world.unreadable_deployments.push("p".to_owned());
    world.deployments.clear();
    world.pass();
    assert!(world.status().ready && world.status().initialization.provisioned == Some(true));
    assert_eq!(world.condition("Ready"), "False Unreadable");
    assert!(world.deployments.is_empty(), "a deployment that cannot be read exists");
}

/// F1: the reason is that of the machine.
#[test]
fn a_pool_says_why_a_machine_is_missing() {
    let mut world = World::running();
    world.deployments.get_mut("p").unwrap()["status"]["availableReplicas"] = json!(2);
    let operation = json!({ "state": "Failed", "errorCode": "ResourceExhausted", "description": "the cloud is full" });
    world.set_native("p-1", &json!({ "status": { "lastOperation": operation } }));
    world.pass();
    assert_eq!(world.condition("Ready"), "False ResourceExhausted");
    let status = world.status();
    let ready = status.conditions.iter().find(|one| one.type_ == "Ready").unwrap();
    assert_eq!(ready.message, "machine p-1: the cloud is full");
}

/// I9, I10, P9, P11: nothing is created before all prerequisites exist.
#[rstest]
#[case::cluster(|world: &mut World| world.set_cluster(&json!({ "status": null })), "WaitingForClusterInfrastructureReady")]
#[case::class(|world: &mut World| world.classes.clear(), "ClassMissing")]
#[case::no_name(|world: &mut World| world.set_template(&json!({ "bootstrap": { "dataSecretName": null } })), "WaitingForBootstrapData")]
#[case::no_secret(|world: &mut World| world.secrets.clear(), "WaitingForBootstrapData")]
#[case::workload(|world: &mut World| world.nodes_unknown = Some("no kubeconfig".to_owned()), "NotConnected")]
fn a_pool_without_something_it_needs_has_no_machines(#[case] change: fn(&mut World), #[case] reason: &str) {
    let mut world = World::new();
    change(&mut world);
    world.pass();
    assert!(world.deployments.is_empty());
    assert_eq!(world.condition("Ready"), format!("False {reason}"));
    assert!(!world.status().ready);
}

/// An unreachable workload cluster stops neither scaling nor status: the native controllers handle it.
#[test]
fn a_pool_is_scaled_while_its_workload_cluster_is_away() {
    let mut world = World::running();
    world.nodes_unknown = Some("the API server of the workload cluster does not answer".to_owned());
    world.set_pool(&json!({ "spec": { "replicas": 5 } }));
    world.pass();
    assert_eq!(world.deployments["p"]["spec"]["replicas"], 5);
    assert_eq!(world.condition("WorkloadClusterConnected"), "False NotConnected");
}

/// P9, trap T8: the number of machines is that of core, and never a default of ours.
#[test]
fn without_a_number_of_machines_nothing_is_made_or_changed() {
    let mut world = World::new();
    world.set_pool(&json!({ "spec": { "replicas": null } }));
    assert!(world.pass().contains(&"spec.replicas of the MachinePool to be set".to_owned()));
    assert!(world.deployments.is_empty());
    let mut world = World::running();
    world.set_pool(&json!({ "spec": { "replicas": null } }));
    world.pass();
    assert_eq!(world.deployments["p"]["spec"]["replicas"], 3);
}

/// P16: another program scales the native deployment, and core follows.
#[rstest]
#[case::managed(json!("mcm"), 3)]
#[case::managed_with_an_empty_value(json!(""), 3)]
#[case::not_managed(json!("false"), 7)]
#[case::no_annotation(Value::Null, 7)]
fn replicas_that_somebody_else_manages_are_left_alone(#[case] value: Value, #[case] expected: i64) {
    let mut world = World::running();
    world.set_pool(&json!({
        "metadata": { "annotations": { "cluster.x-k8s.io/replicas-managed-by": value } }, "spec": { "replicas": 7 },
    }));
    world.pass();
    assert_eq!(world.deployments["p"]["spec"]["replicas"], expected);
}

#[test]
fn a_pool_whose_replicas_another_program_manages_starts_with_those_of_core() {
    let mut world = World::new();
    world.set_pool(&json!({ "metadata": { "annotations": { "cluster.x-k8s.io/replicas-managed-by": "mcm" } } }));
    world.pass();
    assert_eq!(world.deployments["p"]["spec"]["replicas"], 3);
}

/// P16: without the number of core, the end of the other program would be a snap back to an older one.
#[rstest]
#[case::own(false)]
#[case::shown(true)]
fn the_number_that_another_program_sets_is_written_into_the_machine_pool(#[case] is_shown: bool) {
    let mut world = World::running();
    if is_shown {
        world.set_object(&json!({ "spec": { "machineClassRef": null, "machineDeploymentRef": { "name": "p" } } }));
    }
    let managed =
        |value: Value| json!({ "metadata": { "annotations": { "cluster.x-k8s.io/replicas-managed-by": value } } });
    world.set_pool(&managed(json!("external")));
    world.pass();
    assert_eq!(world.log.iter().filter(|line| line.starts_with("patch MachinePool")).count(), 0, "it is the same");
    patch::apply(world.deployments.get_mut("p").unwrap(), &json!({ "spec": { "replicas": 5 } }));
    world.pass();
    assert_eq!(world.pool.as_ref().unwrap()["spec"]["replicas"], 5);
    world.set_pool(&managed(json!("false")));
    world.pass();
    assert_eq!(world.deployments["p"]["spec"]["replicas"], 5);
}

/// P16: the number is the sum over all zones, and only if each of them is known.
#[test]
fn the_number_of_a_pool_in_zones_is_their_sum() {
    let mut world = World::new();
    in_zones(&mut world, &["a", "b"]);
    world.pass();
    world.catch_up();
    world.set_pool(&json!({ "metadata": { "annotations": { "cluster.x-k8s.io/replicas-managed-by": "mcm" } } }));
    patch::apply(world.deployments.get_mut("p-b").unwrap(), &json!({ "spec": { "replicas": 6 } }));
    world.pass();
    assert_eq!(world.pool.as_ref().unwrap()["spec"]["replicas"], 8);
    world.unreadable_deployments.push("p-b".to_owned());
    let unreadable = world.deployments.remove("p-b").unwrap();
    patch::apply(world.deployments.get_mut("p-a").unwrap(), &json!({ "spec": { "replicas": 3 } }));
    world.pass();
    assert_eq!(world.pool.as_ref().unwrap()["spec"]["replicas"], 8, "unknown is not zero");
    assert_eq!(unreadable["spec"]["replicas"], 6);
}

fn autoscaled(world: &mut World) {
    let bound = json!({ "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0" });
    world.set_pool(&json!({ "metadata": { "annotations": bound } }));
}

/// An autoscaler that finds no Machine of a Node taints and drains the Node, and then only lowers the number.
#[test]
fn the_machines_whose_nodes_the_autoscaler_deletes_go_first() {
    const PRIORITY: &str = "machinepriority.machine.sapcloud.io";
    let mut world = World::running();
    autoscaled(&mut world);
    world.set_native("p-0", &json!({ "metadata": { "annotations": { PRIORITY: "1" } } }));
    world.tainted = vec!["p-0".to_owned(), "p-2".to_owned()];
    world.set_pool(&json!({ "spec": { "replicas": 2 } }));
    world.pass();
    let at = |what: &str| world.log.iter().position(|line| line.starts_with(what)).unwrap();
    assert!(at("read the Nodes live") < at("patch MCM Machine p-2"));
    assert!(at("patch MCM Machine p-2") < at("patch MCM MachineDeployment p"), "{:?}", world.log);
    let priorities = |world: &World| {
        let all = ["p-0", "p-1", "p-2"].map(|name| world.natives[name]["metadata"]["annotations"][PRIORITY].clone());
        all.map(|value| value.as_str().map(str::to_owned))
    };
    assert_eq!(priorities(&world).each_ref().map(Option::as_deref), [Some("1"), None, Some("2")], "a user's own stays");
    world.tainted = vec!["p-1".to_owned()];
    world.set_pool(&json!({ "spec": { "replicas": 1 } }));
    world.pass();
    assert_eq!(priorities(&world).each_ref().map(Option::as_deref), [Some("1"), Some("2"), None], "it let go of p-2");
}

/// The Nodes that it chose are not known, so no machine is deleted in their place.
#[test]
fn an_autoscaled_pool_has_no_fewer_machines_while_its_nodes_are_unknown() {
    let mut world = World::running();
    world.nodes_unknown = Some("the API server of the workload cluster does not answer".to_owned());
    world.set_pool(&json!({ "spec": { "replicas": 2 } }));
    autoscaled(&mut world);
    let waits = world.pass();
    assert!(waits.iter().any(|wait| wait.contains("because the autoscaler chose some of them")), "{waits:?}");
    assert_eq!(world.deployments["p"]["spec"]["replicas"], 3);
    world.nodes_unknown = None;
    world.pass();
    assert_eq!(world.deployments["p"]["spec"]["replicas"], 2);
}

#[test]
fn a_pool_that_no_autoscaler_has_reads_no_nodes() {
    let mut world = World::running();
    world.set_pool(&json!({ "spec": { "replicas": 2 } }));
    world.pass();
    assert!(!world.log.contains(&"read the Nodes live".to_owned()), "{:?}", world.log);
}

/// The value of `--watch-filter` selects the provider, and is no reason to replace VMs: neither a first one, nor another one, nor
/// one that an earlier version wrote into the template.
#[rstest]
#[case::first(None, Some("blue"))]
#[case::another(Some("red"), Some("blue"))]
#[case::none(Some("red"), None)]
fn another_label_of_the_manager_rolls_no_machines(#[case] stored: Option<&str>, #[case] filter: Option<&str>) {
    const LABEL: &str = "cluster.x-k8s.io/watch-filter";
    let mut world = World::running();
    let of_template = json!({ "spec": { "template": { "metadata": { "labels": { LABEL: stored } } } } });
    patch::apply(world.deployments.get_mut("p").unwrap(), &of_template);
    let template = |world: &World| -> mcm_api::machine::MachineTemplate {
        serde_json::from_value(world.template().clone()).unwrap()
    };
    let before = template(&world);
    world.filter = filter.map(str::to_owned);
    world.set_object(&json!({ "metadata": { "labels": { LABEL: filter } } }));
    world.pass();
    assert!(mcm_api::machine::same_template(&before, &template(&world)), "{}", world.story);
    if let Some(filter) = filter {
        assert_eq!(world.deployments["p"]["metadata"]["labels"][LABEL], filter);
    }
}

/// T6a: the status that an autoscaler reads to scale from zero.
#[rstest]
#[case::class(json!({}))]
#[case::described(json!({ "spec": { "machineClassRef": null, "machineClass": class("small", "a") } }))]
#[case::shown(json!({ "spec": { "machineClassRef": null, "machineDeploymentRef": { "name": "p" } } }))]
fn a_pool_shows_the_capacity_of_its_class(#[case] change: Value) {
    let mut world = World::running();
    world.set_object(&change);
    world.set_pool(&json!({ "metadata": { "annotations": { "cluster.x-k8s.io/replicas-managed-by": "mcm" } } }));
    world.pass();
    let capacity = json!({ "cpu": "1", "memory": "1Gi" });
    assert_eq!(json!(world.status().capacity), capacity, "a gpu is no resource of a Node");
    world.classes.remove("small");
    world.pass();
    assert_eq!(json!(world.status().capacity), capacity, "it is shown as long as nothing else is known");
}

/// The name of a deployment is also the value of a label.
#[rstest]
#[case::fits("p", "a", Some("p-a"))]
#[case::pool_is_long(&"p".repeat(60), "us-east-1a", None)]
#[case::other_zone_of_a_long_one(&"p".repeat(60), "us-east-1b", None)]
fn a_long_name_in_a_zone_is_shortened(#[case] pool: &str, #[case] zone: &str, #[case] expected: Option<&str>) {
    let mut world = World::new();
    world.set_object(&json!({ "metadata": { "name": pool } }));
    in_zones(&mut world, &[zone, "z"]);
    world.pass();
    assert_eq!(world.deployments.len(), 2);
    for (name, deployment) in &world.deployments {
        assert!(mcm_conversion::types::names::is_label_value(name), "{name}");
        assert_eq!(deployment["spec"]["template"]["metadata"]["labels"]["name"], name.as_str());
    }
    assert!(expected.is_none_or(|name| world.deployments.contains_key(name)));
}

/// The condition that the admission policy reads.
#[test]
fn the_pool_says_whether_its_machine_pool_is_being_deleted_or_gone() {
    let mut world = World::running();
    assert_eq!(world.condition("Deletable"), "False MachinePoolInUse");
    world.set_pool(&deleted());
    world.pass();
    assert_eq!(world.condition("Deletable"), "True MachinePoolDeleting");
    let mut world = World::running();
    world.pool = None;
    world.pass();
    assert_eq!((world.condition("Deletable").as_str(), world.log.len()), ("True MachinePoolDeleting", 1));
}

/// T15: a token is renewed every 15 minutes.
#[test]
fn renewed_bootstrap_data_change_no_template_and_other_data_do() {
    let mut world = World::running();
    let before = world.template().clone();
    assert_eq!(
        before["metadata"]["annotations"]["machine.mcm/user-data-secret"], "boot",
        "by name, and nothing of its content"
    );
    world.secrets.clear();
    world.pass();
    assert_eq!(*world.template(), before, "a Secret that is away for a moment");
    assert_eq!(world.condition("BootstrapDataAvailable"), "False WaitingForBootstrapData");
    world.set_template(&json!({ "bootstrap": { "dataSecretName": "boot-2" } }));
    world.pass();
    assert_eq!(world.template()["metadata"]["annotations"]["machine.mcm/user-data-secret"], "boot-2");
}

/// T6, 3.7: changes that roll machines, and changes that are applied in place.
#[rstest]
#[case::version(json!({ "spec": { "version": "v1.34.0" } }), true)]
#[case::node_label(json!({ "metadata": { "labels": { "node-role.kubernetes.io/worker": "" } } }), false)]
#[case::other_label(json!({ "metadata": { "labels": { "team": "a" } } }), false)]
#[case::drain_timeout(json!({ "spec": { "deletion": { "nodeDrainTimeoutSeconds": 60 } } }), false)]
fn only_version_class_and_data_roll_machines(#[case] change: Value, #[case] is_rollout: bool) {
    let mut world = World::running();
    let rolling = |template: &Value| (template["metadata"].clone(), template["spec"]["class"].clone());
    let before = rolling(world.template());
    world.set_pool(&json!({ "spec": { "template": change } }));
    world.pass();
    assert_eq!(rolling(world.template()) != before, is_rollout);
}

#[test]
fn labels_of_nodes_and_limits_of_drains_reach_the_native_template() {
    let mut world = World::new();
    world.set_pool(&json!({ "spec": { "template": {
        "metadata": { "labels": { "node-role.kubernetes.io/worker": "", "team": "a" } },
        "spec": { "minReadySeconds": 7, "deletion": { "nodeDrainTimeoutSeconds": 60 } },
    } } }));
    world.pass();
    assert_eq!(
        world.template()["spec"]["nodeTemplate"]["metadata"]["labels"],
        json!({ "node-role.kubernetes.io/worker": "" })
    );
    assert_eq!(world.template()["spec"]["drainTimeout"], "1m0s");
    assert_eq!(world.deployments["p"]["spec"]["minReadySeconds"], 7);
    world.set_template(&json!({ "deletion": null }));
    world.pass();
    assert_eq!(world.template()["spec"]["drainTimeout"], "876000h0m0s", "T7: absent is without a limit");
}

/// O3, MV1: the chain of owners, and the labels that everything of a pool has.
#[test]
fn native_deployments_belong_to_the_pool_and_get_back_what_somebody_removes() {
    let mut world = World::new();
    world.filter = Some("blue".to_owned());
    world.set_object(&json!({ "metadata": { "labels": { "cluster.x-k8s.io/watch-filter": "blue" } } }));
    world.pass();
    let whole = world.deployments["p"]["metadata"].clone();
    assert_eq!(whole["ownerReferences"][0]["kind"], "MCMMachinePool");
    assert_eq!(
        (&whole["ownerReferences"][0]["controller"], &whole["ownerReferences"][0]["uid"]),
        (&json!(true), &json!("object"))
    );
    let labels = json!({ "cluster.x-k8s.io/cluster-name": "c", "cluster.x-k8s.io/watch-filter": "blue", "machine.mcm/pool": "p" });
    assert_eq!(whole["labels"], labels);
    let of_machines = json!({ "cluster.x-k8s.io/cluster-name": "c", "machine.mcm/pool": "p", "name": "p" });
    assert_eq!(world.template()["metadata"]["labels"], of_machines);
    let stripped =
        json!({ "metadata": { "ownerReferences": null, "labels": { "cluster.x-k8s.io/cluster-name": null } } });
    patch::apply(world.deployments.get_mut("p").unwrap(), &stripped);
    world.pass();
    let healed = &world.deployments["p"]["metadata"];
    assert_eq!((&healed["ownerReferences"], &healed["labels"]), (&whole["ownerReferences"], &whole["labels"]));
}

#[test]
fn a_deployment_of_another_client_is_not_touched() {
    let mut world = World::new();
    let other = json!({ "metadata": { "name": "p", "namespace": "ns", "uid": "x" }, "spec": { "replicas": 9, "template": {} } });
    world.deployments.insert("p".to_owned(), other.clone());
    world.pass();
    assert_eq!(world.deployments["p"], other);
    assert_eq!(world.condition("Ready"), "False NameTaken");
    world.delete();
    world.pass();
    assert_eq!(world.deployments["p"], other);
    assert!(world.object.is_none(), "and the pool has no VMs");
}

/// 3.6: a separate class for each content, so that a change is a rollout and the old machines keep their class.
#[test]
fn a_pool_that_describes_its_vms_has_a_class_for_each_description() {
    let content = |size: &str| json!({ "spec": { "machineClassRef": null, "machineClass": { "provider": "simulated", "providerSpec": { "size": size } } } });
    let mut world = World::new();
    world.set_object(&content("small"));
    world.pass();
    let used = |world: &World| world.template()["spec"]["class"]["name"].as_str().unwrap().to_owned();
    let first = used(&world);
    assert_eq!(world.classes[&first]["metadata"]["ownerReferences"][0]["uid"], "object");
    world.catch_up();
    world.set_object(&content("large"));
    world.pass();
    let second = used(&world);
    assert_ne!(first, second);
    assert!(world.classes.contains_key(&first), "machines of the old class still exist");
    world.catch_up();
    world.pass();
    assert!(!world.classes.contains_key(&first) && world.classes.contains_key(&second));
    assert!(world.classes.contains_key("small"), "the class of somebody else stays");
}

/// One description for a pool in several zones: a class for each zone, and a change of one zone replaces its machines only.
#[test]
fn a_pool_that_describes_its_vms_has_a_class_for_each_zone() {
    let content = |subnet: &str| {
        json!({ "spec": {
        "machineClassRef": null,
        "machineClass": class("small", "a"),
        "zones": { "b": { "subnet": subnet } },
    } })
    };
    let mut world = World::new();
    world.set_pool(&json!({ "spec": { "failureDomains": ["a", "b"] } }));
    world.set_object(&content("b-1"));
    world.pass();
    let used = |world: &World, name: &str| {
        world.deployments[name]["spec"]["template"]["spec"]["class"]["name"].as_str().unwrap().to_owned()
    };
    let (in_a, in_b) = (used(&world, "p-a"), used(&world, "p-b"));
    let shown = |world: &World, name: &str| {
        let class = &world.classes[name];
        (class["nodeTemplate"]["zone"].clone(), class["providerSpec"]["subnet"].clone())
    };
    assert_eq!((shown(&world, &in_a), shown(&world, &in_b)), ((json!("a"), Value::Null), (json!("b"), json!("b-1"))));
    world.catch_up();
    world.set_object(&content("b-2"));
    world.pass();
    assert_eq!(used(&world, "p-a"), in_a);
    let next = used(&world, "p-b");
    assert_eq!(shown(&world, &next), (json!("b"), json!("b-2")));
    world.catch_up();
    world.pass();
    assert!(
        world.classes.contains_key(&in_a) && world.classes.contains_key(&next) && !world.classes.contains_key(&in_b)
    );
}

/// A deleted class changes nothing about the existing machines.
#[test]
fn a_deployment_keeps_its_class_while_the_pool_names_none_that_exists() {
    let mut world = World::running();
    world.set_object(&json!({ "spec": { "machineClassRef": { "name": "missing" } } }));
    world.set_pool(&json!({ "spec": { "replicas": 4 } }));
    world.pass();
    assert_eq!(
        (&world.template()["spec"]["class"]["name"], &world.deployments["p"]["spec"]["replicas"]),
        (&json!("small"), &json!(4))
    );
    assert_eq!(world.condition("ClassResolved"), "False ClassMissing");
}

fn in_zones(world: &mut World, zones: &[&str]) {
    world.set_pool(&json!({ "spec": { "failureDomains": zones } }));
    let domains =
        zones.iter().map(|zone| json!({ "name": zone, "machineClassOverrides": { "small": format!("small-{zone}") } }));
    world.infrastructure = Some(json!({ "metadata": {}, "spec": { "failureDomains": domains.collect::<Vec<_>>() } }));
    for zone in zones {
        world.classes.insert(format!("small-{zone}"), class(&format!("small-{zone}"), zone));
    }
}

/// P9, I6, 3.7: one deployment for each failure domain, with the class of that zone.
#[test]
fn a_pool_is_spread_evenly_over_its_failure_domains() {
    let mut world = World::new();
    in_zones(&mut world, &["b", "a"]);
    world.pass();
    let shares: Vec<_> = world
        .deployments
        .iter()
        .map(|(name, one)| (name.as_str(), &one["spec"]["replicas"], &one["spec"]["template"]["spec"]["class"]["name"]))
        .collect();
    assert_eq!(shares, [("p-a", &json!(2), &json!("small-a")), ("p-b", &json!(1), &json!("small-b"))]);
}

#[test]
fn a_failure_domain_without_a_class_has_no_machines_and_the_others_wait_for_it() {
    let mut world = World::new();
    in_zones(&mut world, &["a", "b"]);
    world.infrastructure = None;
    world.pass();
    assert!(world.deployments.is_empty());
    assert_eq!(world.condition("Ready"), "False FailureDomainUnavailable");
}

/// The machines of a removed zone are deleted once those of the other zones are complete.
#[test]
fn a_failure_domain_is_left_without_a_gap() {
    let mut world = World::new();
    in_zones(&mut world, &["a", "b"]);
    world.pass();
    world.catch_up();
    world.pass();
    in_zones(&mut world, &["b", "c"]);
    world.pass();
    assert!(world.deployments["p-a"]["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(world.condition("Ready"), "False RollingOut");
    world.catch_up();
    world.pass();
    assert!(world.deployments["p-a"]["metadata"]["deletionTimestamp"].is_string());
}

/// The bounds of a rollout are the pool's own; without them one machine is replaced at a time, and none is missing.
#[test]
fn the_strategy_is_that_of_the_pool() {
    let mut world = World::new();
    world.pass();
    let strategy = &world.deployments["p"]["spec"]["strategy"];
    assert_eq!(
        (&strategy["type"], &strategy["rollingUpdate"]),
        (&json!("RollingUpdate"), &json!({ "maxSurge": 1, "maxUnavailable": 0 }))
    );
    let own = json!({ "type": "InPlaceUpdate", "inPlaceUpdate": { "maxSurge": 0, "maxUnavailable": "10%", "orchestrationType": "Auto" } });
    world.set_object(&json!({ "spec": { "strategy": own } }));
    world.pass();
    let strategy = &world.deployments["p"]["spec"]["strategy"];
    assert_eq!((&strategy["type"], &strategy["rollingUpdate"]), (&json!("InPlaceUpdate"), &Value::Null));
}

/// Z1, Z2, Z3.
#[test]
fn a_paused_pool_only_says_so() {
    let mut world = World::running();
    world.set_cluster(&json!({ "spec": { "paused": true } }));
    world.set_pool(&json!({ "spec": { "replicas": 9 } }));
    world.delete();
    world.pass();
    assert_eq!(world.condition("Paused"), "True Paused");
    assert_eq!((world.log.len(), &world.deployments["p"]["spec"]["replicas"]), (1, &json!(3)));
}

/// Path D of 4.4, O1: a deployment of another manager is shown, and nothing of it is written.
#[test]
fn a_deployment_that_is_only_shown_is_never_written() {
    let mut world = World::running();
    let shown = world.deployments.remove("p").unwrap();
    let mut other = shown.clone();
    patch::apply(&mut other, &json!({ "metadata": { "name": "old", "labels": null, "ownerReferences": null } }));
    world.deployments.insert("old".to_owned(), other.clone());
    world.set_object(
        &json!({ "spec": { "machineClassRef": null, "machineDeploymentRef": { "name": "old" } }, "status": null }),
    );
    world.set_pool(&json!({ "spec": { "replicas": 9 } }));
    world.pass();
    assert_eq!(world.condition("Ready"), "False ReplicasNotManagedElsewhere");
    assert!(!world.status().ready, "or core would think that it scales it");
    world.set_pool(&json!({ "metadata": { "annotations": { "cluster.x-k8s.io/replicas-managed-by": "mcm" } } }));
    world.pass();
    assert_eq!((world.condition("Ready").as_str(), world.status().replicas), ("True Provisioned", Some(3)));
    world.delete();
    world.pass();
    assert!(world.object.is_none());
    assert_eq!((world.deployments.len(), &world.deployments["old"]), (1, &other));
}
