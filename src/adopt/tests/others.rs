//! Machines of another infrastructure provider.

use std::{collections::BTreeMap, sync::Arc};

use rstest::rstest;
use serde_json::{Value, json};

use super::world::{World, is_held};
use crate::{Kind, MigrationDirection, MigrationStage, UnstructuredObject, plan::plan, snapshot::CloudAnswers};
use mcm_api::labels;
use mcm_conversion::types::{MachineAuthority, names};

const THERE: MigrationDirection = MigrationDirection::FromOther;
const BACK: MigrationDirection = MigrationDirection::ToOther;

impl World {
    /// A cluster whose machines are of the provider for AWS. Their class exists and is not used.
    pub fn of_other(count: usize) -> Self {
        let mut world = Self::empty();
        world.cluster();
        let spec = json!({ "instanceType": "m5.large" });
        world.put(Kind::AWS_TEMPLATE, "t", json!({ "spec": { "template": { "spec": spec } } }));
        world.put(Kind::Class, "t", json!({ "provider": "simulated", "providerSpec": { "zone": "z" } }));
        let (keys, spec, set) = world.core("AWSMachineTemplate", count);
        for number in 0..count {
            let name = format!("d-abc-{number}");
            let (id, owner) = world.running(&name, &keys, &spec, &set, "AWSMachine");
            let annotations = json!({ "cluster.x-k8s.io/cloned-from-name": "t", "kept": "yes" });
            let metadata = json!({
                "labels": keys, "annotations": annotations, "ownerReferences": owner,
                "finalizers": ["awsmachine.infrastructure.cluster.x-k8s.io"],
            });
            let spec = json!({ "providerID": id, "instanceType": "m5.large" });
            world.put(
                Kind::AWS_MACHINE,
                &name,
                json!({ "metadata": metadata, "spec": spec, "status": { "ready": true } }),
            );
        }
        world.controllers();
        world
    }

    /// A world before a migration in this direction.
    pub fn at_beginning_of(way: MigrationDirection, count: usize) -> Self {
        let mut world = if way.keeps_core() { Self::of_other(count) } else { Self::of_cluster_api(count) };
        if matches!(way, MigrationDirection::FromNative | MigrationDirection::ToOther) {
            world.walk(way.back());
        }
        world
    }

    /// State that must not change during a migration: natively the native Machines, else the objects of core.
    pub fn essence_on(&self, way: MigrationDirection) -> Vec<(String, String, String)> {
        if !way.keeps_core() || self.s.unit.is_pool() {
            return self.essence();
        }
        let kinds = [Kind::CapiDeployment, Kind::CapiSet, Kind::CapiMachine, Kind::Node];
        let known = |one: &UnstructuredObject| {
            (one.id().to_string(), one.uid().to_owned(), one.text("/spec/providerID").to_owned())
        };
        kinds.into_iter().flat_map(|kind| self.s.all(kind)).map(known).collect()
    }

    /// Invariants of every state between providers.
    pub fn inspect_providers(&self) {
        let works = |object: &&UnstructuredObject| !is_held(object);
        for class in self.s.all(Kind::Class).filter(works) {
            let has_machine = |name: &&String| self.s.find(Kind::Machine, name).is_none();
            let orphan = self.tagged.iter().find(has_machine);
            assert_eq!(orphan, None, "the collector of {} would delete a VM", class.id());
        }
        for other in self.s.all(Kind::AWS_MACHINE).filter(works).filter(|one| one.controller().is_some()) {
            let ours = self.s.find(Kind::InfraMachine, other.name()).filter(works);
            assert_eq!(ours.map(UnstructuredObject::id), None, "VM {} has two providers", other.name());
        }
        for kind in [Kind::AWS_MACHINE, Kind::InfraMachine] {
            for infra in self.s.all(kind).filter(works) {
                assert_ne!(infra.text("/spec/providerID"), "", "{} would create a VM", infra.id());
            }
        }
        for machine in self.s.all(Kind::CapiMachine).filter(works) {
            let kind = if machine.text("/spec/infrastructureRef/kind") == "AWSMachine" {
                Kind::AWS_MACHINE
            } else {
                Kind::InfraMachine
            };
            assert!(self.s.find(kind, machine.name()).is_some(), "{} lost its infrastructure", machine.id());
        }
        for deployment in self.s.all(Kind::CapiDeployment).filter(works) {
            let template = deployment.at("/spec/template/spec/infrastructureRef");
            let is_same = |set: &&UnstructuredObject| set.at("/spec/template/spec/infrastructureRef") == template;
            assert!(
                self.s.controlled(Kind::CapiSet, Some(deployment)).iter().any(is_same),
                "{} would roll",
                deployment.id()
            );
        }
    }

    fn references(&self) -> BTreeMap<String, String> {
        let kinds = [Kind::CapiDeployment, Kind::CapiSet, Kind::CapiMachine];
        let kind_of = |one: &UnstructuredObject| match one.kind {
            Kind::CapiMachine => one.text("/spec/infrastructureRef/kind").to_owned(),
            _ => one.text("/spec/template/spec/infrastructureRef/kind").to_owned(),
        };
        kinds.into_iter().flat_map(|kind| self.s.all(kind)).map(|one| (one.id().to_string(), kind_of(one))).collect()
    }

    pub fn failed(&mut self, way: MigrationDirection) -> Vec<String> {
        self.plan(way).failed().map(ToString::to_string).collect()
    }
}

/// Path B of 4.4: core keeps its objects, mcm has the VMs, and only the template of the other provider is left.
#[test]
fn core_keeps_its_machines_when_mcm_takes_them_over() {
    let mut world = World::of_other(3);
    let before = world.essence_on(THERE);
    world.walk(THERE);
    assert_eq!(world.essence_on(THERE), before);
    assert!(world.references().values().all(|kind| kind.starts_with("MCMMachine")), "{:?}", world.references());
    assert_eq!(world.s.all(Kind::AWS_MACHINE).count(), 0);
    assert_eq!(world.s.all(Kind::AWS_TEMPLATE).count(), 1);
    assert_eq!(world.tagged.len(), 3, "4.4, step 8");
    for infra in world.s.all(Kind::InfraMachine) {
        let machine = world.s.find(Kind::CapiMachine, infra.name()).unwrap();
        assert_eq!(infra.controller(), Some(machine.uid()));
        assert_eq!(infra.text("/spec/providerID"), machine.text("/spec/providerID"));
        assert_eq!(infra.text("/spec/machineClassRef/name"), "t");
        assert_eq!(infra.label(names::CLUSTER_NAME), Some("c"));
        assert_eq!(infra.annotation("kept"), Some("yes"));
        let of_template = infra.annotation("cluster.x-k8s.io/cloned-from-groupkind");
        assert_eq!(of_template, Some("MCMMachineTemplate.infrastructure.cluster.x-k8s.io"));
        let native = world.s.find(Kind::Machine, infra.name()).unwrap();
        assert_eq!(native.controller(), Some(infra.uid()));
    }
    assert!(world.s.objects.values().all(|object| object.annotation(labels::MIGRATION).is_none()));
    assert_eq!(world.s.migration().unwrap().status.unwrap().authority, Some(MachineAuthority::ClusterApi));
}

/// Path E of 4.4: the same objects of core, and none of mcm.
#[test]
fn machines_return_to_the_other_provider_with_the_ids_of_their_vms() {
    let mut world = World::of_other(2);
    let (before, references) = (world.essence_on(BACK), world.references());
    world.walk(THERE);
    world.walk(BACK);
    assert_eq!((world.essence_on(BACK), world.references()), (before, references));
    for kind in [Kind::InfraMachine, Kind::Machine] {
        assert_eq!(world.s.all(kind).count(), 0, "{kind}");
    }
    assert!(world.tagged.is_empty(), "no collector finds a VM");
    for other in world.s.all(Kind::AWS_MACHINE) {
        let machine = world.s.find(Kind::CapiMachine, other.name()).unwrap();
        assert_eq!(other.controller(), Some(machine.uid()));
        assert_eq!(other.text("/spec/providerID"), machine.text("/spec/providerID"));
        assert_eq!(other.text("/spec/instanceType"), "m5.large");
    }
    world.walk(THERE);
}

/// Path C from another provider: two ways, one after the other, and both back.
#[test]
fn machines_of_another_provider_become_native_ones_by_way_of_mcm() {
    let mut world = World::of_other(2);
    let before = world.references();
    world.walk(MigrationDirection::FromOther);
    let natives = world.essence();
    world.walk(MigrationDirection::ToNative);
    world.walk(MigrationDirection::FromNative);
    assert_eq!(world.essence(), natives);
    world.walk(MigrationDirection::ToOther);
    assert_eq!(world.references(), before);
}

/// 4.4 step 1 and "what can go wrong": nothing is begun while an object is changing, unknown, or cannot be adopted.
#[rstest]
#[case::deleting(
    Kind::AWS_MACHINE, "d-abc-1", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
    "machine d-abc-1: settled: AWSMachine d-abc-1 is being deleted"
)]
#[case::updating(
    Kind::CapiMachine, "d-abc-1", json!({ "status": { "phase": "Updating" } }),
    "machine d-abc-1: settled: its phase is Updating, not Running"
)]
#[case::no_node(
    Kind::CapiMachine, "d-abc-1", json!({ "status": { "nodeRef": null } }), "machine d-abc-1: node: it has no Node"
)]
#[case::control_plane(
    Kind::CapiMachine, "d-abc-1", json!({ "metadata": { "labels": { "cluster.x-k8s.io/control-plane": "" } } }),
    "machine d-abc-1: settled: Machine d-abc-1 is of a control plane"
)]
#[case::topology(
    Kind::CapiDeployment, "d", json!({ "metadata": { "labels": { "topology.cluster.x-k8s.io/owned": "" } } }),
    "deployment: belongs to a ClusterClass, which would overwrite it: create a separate deployment"
)]
#[case::other_id(
    Kind::AWS_MACHINE, "d-abc-1", json!({ "spec": { "providerID": "simulated:///r/x" } }),
    "machine d-abc-1: settled: AWSMachine d-abc-1 has VM simulated:///r/x, Machine d-abc-1 has simulated:///r/d-abc-1"
)]
#[case::claimed_twice(
    Kind::AWS_MACHINE, "d-abc-0", json!({ "spec": { "providerID": "simulated:///r/d-abc-1" } }),
    "machine d-abc-1: unclaimed: AWSMachine d-abc-0 also has VM simulated:///r/d-abc-1"
)]
#[case::other_bootstrap(
    Kind::CapiDeployment, "d", json!({ "spec": { "template": { "spec": { "bootstrap": { "configRef": { "name": "k" } } } } } }),
    "rollout: MachineSet d-abc has another template: wait until the rollout is complete"
)]
#[case::no_replicas(
    Kind::CapiDeployment, "d", json!({ "spec": { "replicas": null } }), "rollout: spec.replicas is absent: write it"
)]
#[case::paused(
    Kind::AWS_MACHINE, "d-abc-1", json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } }),
    "pause: AWSMachine d-abc-1 is paused by another client"
)]
#[case::unknown_provider(
    Kind::CapiDeployment, "d", json!({ "spec": { "template": { "spec": { "infrastructureRef": { "name": "x" } } } } }),
    "provider: its template AWSMachineTemplate x does not exist or is of a provider that mcm does not know"
)]
fn nothing_is_begun_while_a_machine_cannot_be_taken_over(
    #[case] kind: Kind,
    #[case] name: &str,
    #[case] change: Value,
    #[case] expected: &str,
) {
    let mut world = World::of_other(2);
    world.edit(kind, name, &change);
    let plan = world.plan(THERE);
    assert_eq!((plan.stage, plan.todo.actions.len()), (MigrationStage::Fresh, 0));
    let failed = world.failed(THERE);
    assert!(failed.iter().any(|text| text.starts_with(expected)), "{failed:#?}");
}

/// The provider mcm takes no machine into a class of another zone.
#[rstest]
#[case("z", None)]
#[case("y", Some("class: MachineClass t is not in failureDomain y: set its nodeTemplate.zone"))]
fn the_class_is_in_the_zone_of_the_machines(#[case] zone: &str, #[case] expected: Option<&str>) {
    let mut world = World::of_other(1);
    for (kind, name) in [(Kind::CapiDeployment, "d"), (Kind::CapiSet, "d-abc")] {
        world.edit(kind, name, &json!({ "spec": { "template": { "spec": { "failureDomain": zone } } } }));
    }
    assert_eq!(world.failed(THERE), expected.into_iter().map(str::to_owned).collect::<Vec<_>>());
}

/// GCP finds VMs by their names.
#[test]
fn a_vm_of_google_cloud_with_another_name_than_its_machine_stays() {
    let mut world = World::of_other(1);
    let id = json!({ "spec": { "providerID": "gce://p/z/another" } });
    for kind in [Kind::AWS_MACHINE, Kind::CapiMachine, Kind::Node] {
        world.edit(kind, "d-abc-0", &id);
    }
    let expected = "machine d-abc-0: settled: its VM is named another, and MCM requires the name of the machine";
    assert!(world.failed(THERE).contains(&expected.to_owned()), "{:#?}", world.failed(THERE));
}

/// Unknown is not absent, and another VM is not this one.
#[test]
fn a_vm_that_the_cloud_does_not_show_stays() {
    let mut world = World::of_other(1);
    world.vms.clear();
    assert!(world.failed(THERE).contains(&"machine d-abc-0: vm: the cloud was not asked".to_owned()));
}

/// T9: with the tags of the class, a VM of another deployment would be an orphan of the class as soon as it is released.
#[test]
fn a_foreign_vm_with_the_tags_of_the_class_prevents_a_migration() {
    let mut world = World::of_other(1);
    world.vms.insert("control-plane".to_owned(), "simulated:///r/cp".to_owned());
    world.tagged.insert("control-plane".to_owned());
    let expected =
        "orphans: VM simulated:///r/cp (control-plane) has no machine: the MCM orphan collector would delete it";
    assert_eq!(world.failed(THERE), [expected]);
}

/// Unknown is not absent: a VM that cannot be listed may have its tags. Classes of other machines do not matter.
#[test]
fn a_vm_is_tagged_only_once_its_class_is_listed() {
    let mut world = World::of_other(1);
    world.put(Kind::Class, "x", json!({ "provider": "simulated", "providerSpec": { "zone": "z" } }));
    world.walk_until(THERE, "tag the VMs as their class specifies");
    let denied = || Err("denied".to_owned());
    let mut todo = |listed| {
        world.s.cloud = Some(CloudAnswers { listed, ..CloudAnswers::default() });
        plan(&world.s, THERE).unwrap().todo
    };
    let unknown = todo([("t".to_owned(), denied()), ("x".to_owned(), denied())].into());
    assert_eq!(unknown.waits, ["the VMs of MachineClass t, which cannot be listed: denied"]);
    assert_eq!(unknown.actions, []);
    let absent = todo([("t".to_owned(), Ok(Arc::default())), ("x".to_owned(), denied())].into());
    assert_eq!((absent.waits.len(), absent.actions.len()), (0, 1));
}

/// The other provider is asked to pause its objects; a confirmation, if it supports one, is waited for.
#[test]
fn another_provider_that_confirms_a_pause_is_waited_for() {
    let mut world = World::of_other(1);
    world.edit(
        Kind::AWS_MACHINE,
        "d-abc-0",
        &json!({ "status": { "conditions": [{ "type": "Paused", "status": "False" }] } }),
    );
    for _ in 0..20 {
        world.round(THERE, usize::MAX);
        world.controllers();
    }
    assert_eq!(world.plan(THERE).todo.waits, ["the condition Paused of AWSMachine d-abc-0"]);
}

/// Nothing refers to an MCMMachine before the provider mcm has confirmed that it runs.
#[test]
fn without_the_provider_mcm_nothing_is_switched() {
    let mut world = World::of_other(1);
    for _ in 0..30 {
        world.round(THERE, usize::MAX);
        world.controllers();
        if world.s.find(Kind::InfraMachine, "d-abc-0").is_some() {
            world.edit(Kind::InfraMachine, "d-abc-0", &json!({ "status": null }));
        }
    }
    let plan = world.plan(THERE);
    assert_eq!(plan.todo.waits, ["the condition Paused of MCMMachine d-abc-0"]);
    assert!(world.references().values().all(|kind| kind.starts_with("AWSMachine")));
}
