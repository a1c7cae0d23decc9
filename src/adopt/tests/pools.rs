//! Pools of another infrastructure provider.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    paths::{any_turns, stop_anywhere, wander},
    world::{World, is_held},
};
use crate::{
    Kind, MigrationDirection, UnstructuredObject, object::ObjectId, snapshot::CloudAnswers, unit::MigrationUnit,
};
use mcm_api::labels;
use mcm_conversion::types::{MachineAuthority, names};

const THERE: MigrationDirection = MigrationDirection::FromOther;
const BACK: MigrationDirection = MigrationDirection::ToOther;
const POOL: &str = "d";
const LEAVE: &str = "wait until the VMs left their group";
const JOIN: &str = "wait until the VMs joined their group";

impl World {
    /// A cluster with a pool of the provider for AWS. The class of its VMs exists.
    pub fn of_pool(count: usize) -> Self {
        let mut world = Self::empty();
        world.s.unit = MigrationUnit::Pool(POOL.to_owned());
        world.cluster();
        world.put(Kind::Secret, "boot", json!({ "data": { "value": "I2Nsb3VkLWNvbmZpZw==" } }));
        let content = json!({ "zone": "z", "region": "r" });
        world.put(Kind::Class, "t", json!({ "provider": "simulated", "providerSpec": content }));
        let names: BTreeSet<String> = (0..count).map(|number| format!("i-{number}")).collect();
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        for name in &names {
            let id = format!("simulated:///r/{name}");
            world.vms.insert(name.clone(), id.clone());
            let status = json!({ "conditions": ready, "nodeInfo": { "bootID": format!("boot-{name}") } });
            let node = json!({ "spec": { "providerID": id }, "status": status });
            world.put(Kind::Node, name, node);
        }
        let reference = json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachinePool", "name": "t" });
        let spec = json!({
            "clusterName": "c", "version": "v1.33.0", "infrastructureRef": reference,
            "bootstrap": { "configRef": { "kind": "KubeadmConfig", "name": "k" }, "dataSecretName": "boot" },
        });
        let spec = json!({ "clusterName": "c", "replicas": count, "template": { "spec": spec } });
        let owner = world.put(Kind::MachinePool, POOL, json!({ "spec": spec }));
        let metadata = json!({ "ownerReferences": owner, "finalizers": ["awsmachinepool"] });
        world.put(Kind::AWS_POOL, "t", json!({ "metadata": metadata, "spec": { "minSize": 1, "maxSize": 5 } }));
        world.group = Some(names);
        world.controllers();
        world.controllers();
        world
    }

    fn pool_at_beginning_of(way: MigrationDirection, count: usize) -> Self {
        let mut world = Self::of_pool(count);
        if way == BACK {
            world.walk(THERE);
        }
        world
    }

    /// The user runs the commands that a plan waits for, one VM after the other.
    pub fn act_by_hand(&mut self, waits: &[String]) {
        let Some(group) = &mut self.group else { return };
        let Some(wait) = waits.iter().find(|wait| wait.contains("; run: aws autoscaling")) else { return };
        let name = wait.split([',', ' ']).next().unwrap().to_owned();
        if wait.contains(" to leave ") {
            group.remove(&name)
        } else {
            group.insert(name)
        };
    }

    /// The provider writes its numbers into the group and shows the VMs. `None` while it ignores the pool.
    pub fn observe_group(&mut self, pool: &UnstructuredObject) -> Option<Value> {
        let group = self.group.clone().filter(|_| !is_held(pool))?;
        let ids: Vec<String> = group.iter().map(|name| self.vms[name].clone()).collect();
        self.edit(pool.kind, pool.name(), &json!({ "spec": { "providerIDList": ids } }));
        Some(json!({ "replicas": ids.len() }))
    }

    /// Core copies the VMs of the infrastructure, and deletes the Nodes of others.
    pub fn observe_pool(&mut self, machine_pool: &UnstructuredObject, conditions: &[Value]) -> Value {
        let observed = machine_pool.at("/metadata/generation");
        let mut status = json!({ "conditions": conditions, "observedGeneration": observed });
        let Some(pool) = self.s.find(Kind::AWS_POOL, "t").filter(|_| !is_held(machine_pool)) else { return status };
        let ids = pool.at("/spec/providerIDList");
        status["replicas"] = json!(pool.number("/status/replicas").unwrap_or_default());
        let nodes = self.s.all(Kind::Node).filter(|node| is_listed(&ids, node));
        status["nodeRefs"] = nodes.map(|node| json!({ "name": node.name() })).collect();
        self.edit(Kind::MachinePool, POOL, &json!({ "spec": { "providerIDList": ids } }));
        status
    }

    /// Invariants of a pool in every state.
    pub fn inspect_pool(&self) {
        let (Some(group), Some(machine_pool)) = (&self.group, self.s.find(Kind::MachinePool, POOL)) else { return };
        let pool = self.s.find(Kind::AWS_POOL, "t").unwrap();
        assert!(!pool.is_deleting() && !machine_pool.is_deleting(), "the group would be deleted");
        if !is_held(pool) {
            let wanted = machine_pool.number("/spec/replicas");
            let count = |number: usize| i64::try_from(number).ok();
            assert!(wanted >= count(group.len()), "the group would end VMs");
            assert!(wanted <= count(group.len() + self.lost), "the group would start VMs");
            assert!(pool.number("/spec/minSize") <= wanted, "the group would start VMs");
            for infra in self.s.all(Kind::InfraMachine).filter(|infra| !is_held(infra)) {
                assert!(!group.contains(infra.name()), "{} has two providers", infra.name());
            }
        }
        if !is_held(machine_pool) {
            let ids = pool.at("/spec/providerIDList");
            for reference in machine_pool.value["status"]["nodeRefs"].as_array().into_iter().flatten() {
                let node = self.s.find(Kind::Node, reference["name"].as_str().unwrap());
                assert!(node.is_none_or(|node| is_listed(&ids, node)), "core would delete {reference}");
            }
        }
    }

    fn number(&self, kind: Kind, name: &str, pointer: &str) -> Option<i64> {
        self.s.find(kind, name).unwrap().number(pointer)
    }
}

fn is_listed(ids: &Value, node: &UnstructuredObject) -> bool {
    ids.as_array().is_some_and(|ids| ids.contains(&node.at("/spec/providerID")))
}

/// The pool stays, without machines, and is unpaused.
#[test]
fn the_vms_of_a_pool_become_machines_of_a_deployment() {
    let mut world = World::of_pool(3);
    let before = world.essence_on(THERE);
    world.walk(THERE);
    assert_eq!(world.essence_on(THERE), before);
    assert_eq!(world.group, Some(BTreeSet::new()));
    assert_eq!(world.tagged.len(), 3);
    let deployment = world.s.find(Kind::CapiDeployment, POOL).unwrap();
    assert_eq!(deployment.number("/spec/replicas"), Some(3));
    assert_eq!(deployment.at("/spec/template/spec/bootstrap"), json!({ "dataSecretName": "boot" }));
    assert_eq!(deployment.text("/spec/template/spec/infrastructureRef/kind"), "MCMMachineTemplate");
    for machine in world.s.all(Kind::CapiMachine) {
        let infra = world.s.find(Kind::InfraMachine, machine.name()).unwrap();
        assert_eq!(infra.controller(), Some(machine.uid()));
        assert_eq!(infra.text("/spec/providerID"), format!("simulated:///r/{}", machine.name()));
        assert_eq!(machine.at("/spec/bootstrap"), json!({ "dataSecretName": "boot" }));
    }
    assert_eq!(world.number(Kind::MachinePool, POOL, "/spec/replicas"), Some(0));
    assert_eq!(world.number(Kind::AWS_POOL, "t", "/spec/minSize"), Some(0));
    assert!(world.s.objects.values().all(|object| object.annotation(labels::MIGRATION).is_none()));
    assert_eq!(world.s.migration().unwrap().status.unwrap().authority, Some(MachineAuthority::ClusterApi));
}

/// Also one that was created meanwhile.
#[test]
fn the_vms_return_to_their_pool_with_its_bounds() {
    let mut world = World::of_pool(2);
    let before = world.essence_on(BACK);
    world.walk(THERE);
    world.walk(BACK);
    assert_eq!(world.essence_on(BACK), before);
    assert_eq!(world.group.as_ref().unwrap().len(), 2);
    for kind in [Kind::CapiDeployment, Kind::CapiSet, Kind::CapiMachine, Kind::InfraMachine, Kind::Machine] {
        assert_eq!(world.s.all(kind).count(), 0, "{kind}");
    }
    assert!(world.tagged.is_empty(), "no collector finds a VM");
    assert_eq!(world.number(Kind::MachinePool, POOL, "/spec/replicas"), Some(2));
    assert_eq!(world.number(Kind::AWS_POOL, "t", "/spec/minSize"), Some(1));
    assert_eq!(world.s.find(Kind::AWS_POOL, "t").unwrap().annotation(labels::BEFORE_MIGRATION), None);
    world.walk(THERE);
}

#[rstest]
fn a_migration_of_a_pool_that_stops_anywhere_goes_on_or_is_undone(
    #[values(THERE, BACK)] way: MigrationDirection,
    #[values(false, true)] is_undone: bool,
) {
    stop_anywhere(|| World::pool_at_beginning_of(way, 2), way, is_undone, 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_happens_to_a_pool_no_vm_is_at_risk(turns in any_turns()) {
        wander(World::of_pool(3), THERE, turns);
    }
}

/// The commands are in the plan before anything is begun, and name the region, the group and each instance.
#[test]
fn a_plan_names_the_commands_of_its_user() {
    let mut world = World::of_pool(20);
    let on = " --region r --auto-scaling-group-name t";
    let plan = world.plan(THERE);
    assert_eq!(plan.failed().next(), None);
    let commands = plan.by_hand;
    assert_eq!(commands.len(), 4, "at most 19 instances each: {commands:#?}");
    assert_eq!(commands[0], format!("aws autoscaling suspend-processes{on} --scaling-processes Launch"));
    assert_eq!(commands[1], format!("aws autoscaling update-auto-scaling-group{on} --min-size 0"));
    let detach = format!("aws autoscaling detach-instances{on} --should-decrement-desired-capacity --instance-ids i-");
    assert!(commands[2].starts_with(&detach) && commands[3].starts_with(&detach), "{commands:#?}");
}

/// Whoever may write a MachinePool chooses its IDs, and an administrator pastes the commands.
#[test]
fn no_text_of_an_object_is_executed_by_a_command() {
    let mut world = World::of_pool(1);
    world.edit(Kind::AWS_POOL, "t", &json!({ "spec": { "providerIDList": ["simulated:///r/$(reboot)"] } }));
    world.edit(Kind::MachinePool, POOL, &json!({ "spec": { "providerIDList": ["simulated:///r/$(reboot)"] } }));
    let region = json!({ "zone": "z", "region": "r;reboot" });
    world.edit(Kind::Class, "t", &json!({ "providerSpec": region }));
    let commands = world.plan(THERE).by_hand;
    assert!(commands.iter().all(|command| command.contains(" --region 'r;reboot' ")), "{commands:#?}");
    assert!(commands.iter().any(|command| command.ends_with(" --instance-ids '$(reboot)'")), "{commands:#?}");
}

/// Until then nothing of mcm exists.
#[test]
fn a_vm_that_is_still_a_member_is_waited_for() {
    let mut world = World::of_pool(1);
    for _ in 0..20 {
        world.group = Some(["i-0".to_owned()].into());
        world.round(THERE, usize::MAX);
        world.controllers();
    }
    world.group = Some(["i-0".to_owned()].into());
    let waits = world.plan(THERE).todo.waits;
    assert!(waits.len() == 1 && waits[0].starts_with("i-0 to leave Auto Scaling group t; run: "), "{waits:?}");
    assert_eq!(world.s.all(Kind::InfraMachine).count(), 0);
}

/// Unknown is not absent.
#[test]
fn a_group_that_cannot_be_listed_is_waited_for() {
    let mut world = World::of_pool(1);
    world.walk_until(THERE, LEAVE);
    let denied = Err("UnauthorizedOperation".to_owned());
    world.s.cloud = Some(CloudAnswers { members: Some(denied), ..CloudAnswers::default() });
    let waits = crate::plan::plan(&world.s, THERE).unwrap().todo.waits;
    assert_eq!(waits, ["the members of Auto Scaling group t, which cannot be listed: UnauthorizedOperation"]);
}

/// A group that the other provider still gave its capacity.
#[test]
fn a_successor_that_the_group_started_is_named() {
    let mut world = World::of_pool(1);
    world.walk_until(THERE, LEAVE);
    world.vms.insert("i-9".to_owned(), "simulated:///r/i-9".to_owned());
    world.group = Some(["i-9".to_owned()].into());
    let waits = world.plan(THERE).todo.waits;
    assert!(waits.len() == 1 && waits[0].starts_with("i-9, which Auto Scaling group t started meanwhile"), "{waits:?}");
}

/// The class, with which the group is listed, exists before a VM leaves. So the flags for it are not needed to undo that.
#[test]
fn a_migration_of_a_pool_without_a_class_is_undone_without_the_flags_for_it() {
    let mut world = World::of_pool(2);
    world.s.objects.remove(&ObjectId::new(Kind::Class, "t"));
    let template = json!({
        "ami": { "id": "ami-1" }, "instanceType": "m5.large", "iamInstanceProfile": "nodes",
        "rootVolume": { "size": 8, "type": "gp3" },
    });
    let spec = json!({ "awsLaunchTemplate": template, "subnets": [{ "id": "subnet-1" }] });
    world.edit(Kind::AWS_POOL, "t", &json!({ "spec": spec }));
    world.network();
    world.s.credentials = Some("cloud".to_owned());
    world.walk_until(THERE, LEAVE);
    world.round(THERE, usize::MAX);
    assert_eq!(world.group.as_ref().unwrap().len(), 1);
    world.s.credentials = None;
    world.edit(Kind::AWS_POOL, "t", &json!({ "spec": { "awsLaunchTemplate": { "ami": null } } }));
    let back = world.abort().unwrap();
    world.walk(back);
    assert_eq!(world.group.unwrap().len(), 2);
    assert_eq!(world.s.find(Kind::Class, "t").unwrap().annotation(labels::MIGRATION), None);
}

/// A VM that ended can neither join its group nor become a machine.
#[rstest]
#[case::there(THERE, LEAVE, &["i-0"])]
#[case::back(BACK, JOIN, &[])]
fn a_migration_of_a_pool_is_undone_when_a_vm_ended(
    #[case] way: MigrationDirection,
    #[case] step: &str,
    #[case] group: &[&str],
) {
    let mut world = World::pool_at_beginning_of(way, 2);
    world.walk_until(way, step);
    world.lose("i-1");
    for _ in 0..5 {
        world.round(way, usize::MAX);
        world.controllers();
    }
    assert_eq!(world.plan(way).todo.waits, ["VM i-1, which ended: undo the migration with mcm adopt abort"]);
    let back = world.abort().unwrap();
    world.walk(back);
    assert_eq!(world.group.unwrap(), group.iter().map(|name| (*name).to_owned()).collect());
}

/// A Node that is Ready runs on a VM, even if the cloud does not show it, for example with other credentials.
#[test]
fn a_vm_whose_node_is_ready_did_not_end() {
    let mut world = World::of_pool(1);
    world.walk_until(THERE, LEAVE);
    world.round(THERE, usize::MAX);
    let back = world.abort().unwrap();
    world.plan(back);
    let cloud = world.s.cloud.as_mut().unwrap();
    (cloud.found, cloud.members) = ([("i-0".to_owned(), Ok(None))].into(), Some(Ok(BTreeSet::new())));
    let waits = crate::plan::plan(&world.s, back).unwrap().todo.waits;
    assert!(waits[0].starts_with("i-0 to join Auto Scaling group t"), "{waits:?}");
}

#[rstest]
fn a_vm_that_ends_after_the_switch_does_not_stop_the_others(#[values(THERE, BACK)] way: MigrationDirection) {
    let mut world = World::pool_at_beginning_of(way, 3);
    world.walk_until_switched(way);
    world.lose("i-1");
    world.walk(way);
    assert_eq!(world.plan(way).losses, ["Node i-1 was lost"]);
}

/// Core creates Machines for the VMs of a pool with this label.
#[rstest]
#[case(POOL.to_owned())]
#[case::hashed("p".repeat(64))]
fn a_pool_whose_vms_have_machines_stays(#[case] name: String) {
    let mut world = World::of_pool(1);
    let spec = world.s.find(Kind::MachinePool, POOL).unwrap().at("/spec");
    world.put(Kind::MachinePool, &name, json!({ "spec": spec }));
    world.s.unit = MigrationUnit::Pool(name.clone());
    let labels = json!({ (names::POOL_NAME): names::label_value(&name) });
    world.put(Kind::CapiMachine, "m", json!({ "metadata": { "labels": labels } }));
    let failed = world.failed(THERE);
    assert!(failed.iter().any(|text| text.starts_with("size: its VMs have Machines, such as m")), "{failed:#?}");
}

/// New machines of the deployment would not boot.
#[test]
fn a_pool_without_its_bootstrap_data_stays() {
    let mut world = World::of_pool(1);
    assert!(world.s.secret_names().contains("boot"), "it is read");
    world.s.objects.remove(&ObjectId::new(Kind::Secret, "boot"));
    assert_eq!(world.failed(THERE), ["bootstrap: Secret boot does not exist"]);
}

#[rstest]
#[case::scaled_elsewhere(
    Kind::MachinePool, json!({ "metadata": { "annotations": { "cluster.x-k8s.io/replicas-managed-by": "a" } } }),
    "size: a scales it: stop it and remove the annotation cluster.x-k8s.io/replicas-managed-by"
)]
#[case::of_google(
    Kind::MachinePool, json!({ "spec": { "template": { "spec": { "infrastructureRef": { "kind": "GCPMachinePool" } } } } }),
    "provider: its infrastructure is GCPMachinePool t: create a MachineDeployment"
)]
#[case::scaling(Kind::MachinePool, json!({ "spec": { "replicas": 3 } }), "size: 2 VMs, 3 replicas: wait until it is scaled")]
#[case::no_bootstrap(
    Kind::MachinePool, json!({ "spec": { "template": { "spec": { "bootstrap": { "dataSecretName": null } } } } }),
    "bootstrap: the MachinePool names no Secret with bootstrap data yet"
)]
#[case::paused(
    Kind::AWS_POOL, json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } }),
    "pause: AWSMachinePool t is paused by another client"
)]
#[case::listed_only(
    Kind::AWS_POOL, json!({ "spec": { "providerIDList": ["simulated:///r/i-0"] } }),
    "members: simulated:///r/i-1 is a member of Auto Scaling group t: wait until its size is settled"
)]
fn nothing_is_begun_while_a_pool_cannot_be_moved(#[case] kind: Kind, #[case] change: Value, #[case] expected: &str) {
    let mut world = World::of_pool(2);
    let name = if kind == Kind::AWS_POOL { "t" } else { POOL };
    world.edit(kind, name, &change);
    let failed = world.failed(THERE);
    assert!(failed.iter().any(|text| text.starts_with(expected)), "{failed:#?}");
    assert!(world.plan(THERE).todo.actions.is_empty());
}

/// The names of the machines are those of their VMs.
#[test]
fn a_machine_with_the_name_of_a_vm_prevents_a_migration() {
    let mut world = World::of_pool(1);
    world.put(Kind::InfraMachine, "i-0", json!({}));
    assert!(world.failed(THERE).contains(&"names: MCMMachine i-0 exists: rename or delete it".to_owned()));
}

/// CAPA writes the number of machines into the group, which takes no more than its maximum.
#[test]
fn a_pool_that_takes_fewer_vms_prevents_the_return() {
    let mut world = World::of_pool(2);
    world.walk(THERE);
    world.edit(Kind::AWS_POOL, "t", &json!({ "spec": { "maxSize": 1 } }));
    assert_eq!(world.failed(BACK), ["size: AWSMachinePool t takes 1 VMs: set spec.maxSize to 2"]);
    world.edit(Kind::AWS_POOL, "t", &json!({ "spec": { "maxSize": 2 } }));
    world.edit(Kind::MachinePool, POOL, &json!({ "spec": { "replicas": 1 } }));
    assert_eq!(world.failed(BACK), ["size: MachinePool d has machines: scale it to 0"]);
}
