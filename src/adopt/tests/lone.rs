//! Machines without a set.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    paths::{any_turns, stop_anywhere, wander},
    world::World,
};
use crate::{
    Kind, MigrationDirection, MigrationStage,
    object::lacking,
    plan::{NoPlan, plan},
    unit::MigrationUnit,
};
use mcm_api::labels;
use mcm_conversion::types::{MachineAuthority, MigratedKind, names};

const THERE: MigrationDirection = MigrationDirection::ToNative;
const BACK: MigrationDirection = MigrationDirection::FromNative;

impl World {
    /// A cluster with one machine of the provider mcm, which no set has. It is described in place.
    fn of_lone() -> Self {
        let mut world = Self::empty();
        world.s.unit = MigrationUnit::Machine("m".to_owned());
        world.cluster();
        world.put(Kind::Secret, "boot", json!({ "data": { "value": "I2Nsb3VkLWNvbmZpZw==" } }));
        let class =
            json!({ "provider": "simulated", "providerSpec": { "zone": "z" }, "nodeTemplate": { "zone": "z" } });
        let keys = json!({ "cluster.x-k8s.io/cluster-name": "c", "team": "a" });
        let spec = json!({
            "clusterName": "c", "version": "v1.33.0", "bootstrap": { "dataSecretName": "boot" },
            "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io" },
        });
        let owners = json!([{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c", "uid": "c" }]);
        world.machine("m", &keys, &spec, &owners, &class);
        world.controllers();
        world
    }

    fn lone_at_beginning_of(way: MigrationDirection) -> Self {
        let mut world = Self::of_lone();
        if way == BACK {
            world.walk(THERE);
        }
        world
    }
}

/// The native Machine stays, without a controller.
#[test]
fn a_machine_without_a_set_becomes_a_native_one() {
    let mut world = World::of_lone();
    let before = world.essence();
    world.walk(THERE);
    assert_eq!(world.essence(), before);
    for kind in [Kind::CapiMachine, Kind::InfraMachine, Kind::Deployment, Kind::Set] {
        assert_eq!(world.s.all(kind).count(), 0, "{kind}");
    }
    let native = world.s.find(Kind::Machine, "m").unwrap();
    assert!(native.at("/metadata/ownerReferences").is_null());
    assert_eq!((native.label(labels::NODE), native.label("team")), (Some("m"), Some("a")));
    assert_eq!(native.label(names::CLUSTER_NAME), Some("c"), "it is found again");
    assert_eq!(
        (native.text("/spec/creationTimeout"), native.text("/spec/providerID")),
        ("876000h0m0s", "simulated:///r/m")
    );
    for gone in [labels::MIGRATION, labels::BEFORE_MIGRATION, labels::USER_DATA_SECRET] {
        assert_eq!(native.annotation(gone), None);
    }
    let class = world.s.find(Kind::Class, native.text("/spec/class/name")).unwrap();
    assert_eq!((class.text("/secretRef/name"), class.annotation(labels::MIGRATION)), ("boot-userdata", None));
    assert!(world.s.find(Kind::Secret, "boot-userdata").is_some());
    let node = world.s.find(Kind::Node, "m").unwrap();
    assert_eq!((node.annotation("cluster.x-k8s.io/machine"), node.annotation("other")), (None, Some("stays")));
    let migration = world.s.migration().unwrap();
    assert_eq!(migration.spec.kind, MigratedKind::Machine);
    assert_eq!(migration.status.unwrap().authority, Some(MachineAuthority::MachineController));
}

/// Back under core, with the same names and the same values as before, and again.
#[test]
fn a_native_machine_without_a_set_returns_to_cluster_api() {
    let mut world = World::of_lone();
    let described = |world: &World| {
        let [machine, infra] = [Kind::CapiMachine, Kind::InfraMachine].map(|kind| world.s.find(kind, "m").unwrap());
        json!({ "spec": machine.at("/spec"), "labels": machine.at("/metadata/labels"), "infra": infra.at("/spec") })
    };
    let (essence, before) = (world.essence(), described(&world));
    for _ in 0..2 {
        world.walk(THERE);
        world.walk(BACK);
        assert_eq!(world.essence(), essence);
        assert_eq!(lacking(&described(&world), &before), None, "but for defaults that are written out");
        let [machine, infra, native] =
            [Kind::CapiMachine, Kind::InfraMachine, Kind::Machine].map(|kind| world.s.find(kind, "m").unwrap());
        assert_eq!((infra.controller(), native.controller()), (Some(machine.uid()), Some(infra.uid())));
        assert_eq!((native.text("/spec/creationTimeout"), native.label("team")), ("876000h0m0s", None));
    }
}

/// The settings are those of the native Machine before, even when its MCMMachine has already taken it over.
#[test]
fn a_machine_keeps_the_settings_of_its_native_machine() {
    let mut world = World::lone_at_beginning_of(BACK);
    world.edit(Kind::Machine, "m", &json!({ "spec": { "drainTimeout": "10m0s" } }));
    world.walk(BACK);
    let machine = world.s.find(Kind::CapiMachine, "m").unwrap();
    assert_eq!(machine.number("/spec/deletion/nodeDrainTimeoutSeconds"), Some(600));
}

/// Every step, stopped after every number of its writes.
#[rstest]
fn a_migration_of_a_lone_machine_that_stops_anywhere_goes_on_or_is_undone(
    #[values(THERE, BACK)] way: MigrationDirection,
    #[values(false, true)] is_undone: bool,
) {
    stop_anywhere(|| World::lone_at_beginning_of(way), way, is_undone, 8);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_happens_to_a_lone_machine_no_vm_is_at_risk(turns in any_turns()) {
        wander(World::of_lone(), THERE, turns);
    }
}

#[rstest]
#[case::control_plane(
    Kind::CapiMachine, "m", json!({ "metadata": { "labels": { "cluster.x-k8s.io/control-plane": "" } } }),
    "machine: is a control plane"
)]
#[case::of_a_set(
    Kind::CapiMachine, "m", json!({ "metadata": { "ownerReferences": [{ "kind": "MachineSet", "controller": true }] } }),
    "machine: there is no Machine m without an owner; a Machine of a MachineSet is migrated with its MachineDeployment"
)]
#[case::bootstrap_by_a_provider(
    Kind::CapiMachine, "m", json!({ "spec": { "bootstrap": { "configRef": { "name": "k" } } } }),
    "conversion: Machine m: spec.bootstrap.configRef"
)]
#[case::paused(
    Kind::InfraMachine, "m", json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } }),
    "pause: MCMMachine m is paused by another client"
)]
#[case::provisioning(
    Kind::CapiMachine, "m", json!({ "status": { "phase": "Provisioning" } }),
    "machine m: settled: its phase is Provisioning, not Running"
)]
fn nothing_is_begun_while_the_machine_is_not_as_it_must_be(
    #[case] kind: Kind,
    #[case] name: &str,
    #[case] change: Value,
    #[case] expected: &str,
) {
    let mut world = World::of_lone();
    world.edit(kind, name, &change);
    let plan = world.plan(THERE);
    assert_eq!((plan.stage, plan.todo.actions.len()), (MigrationStage::Fresh, 0));
    let failed = world.failed(THERE);
    assert!(failed.iter().any(|text| text.starts_with(expected)), "{failed:#?}");
}

/// A set makes every machine that it selects its own, and then counts one too many: it would delete one.
#[rstest]
fn a_set_that_would_adopt_the_machine_stands_in_the_way(
    #[values(THERE, BACK)] way: MigrationDirection,
    #[values(Kind::Set, Kind::CapiSet)] kind: Kind,
) {
    let mut world = World::lone_at_beginning_of(way);
    let selecting = |team: &str| json!({ "spec": { "replicas": 0, "selector": { "matchLabels": { "team": team } } } });
    world.put(kind, "s", selecting("b"));
    assert_eq!(world.failed(way), [""; 0]);
    world.put(kind, "s", selecting("a"));
    let expected = format!("sets: {kind} s selects it and would adopt it: change its labels");
    assert_eq!(world.failed(way), [expected]);
}

/// A machine without a set is never replaced, but a health check may refer to a repair program.
#[test]
fn a_health_check_is_not_changed_unless_it_repairs_the_machine() {
    let mut world = World::of_lone();
    let check = json!({ "spec": { "clusterName": "c", "selector": {}, "checks": {} } });
    world.put(Kind::HealthCheck, "h", check.clone());
    assert_eq!(world.failed(THERE), [""; 0]);
    let template = json!({ "spec": { "remediation": { "templateRef": { "name": "reboot" } } } });
    world.edit(Kind::HealthCheck, "h", &template);
    let expected = "health checks: MachineHealthCheck h has another controller repair it (remediation.templateRef), \
                    which MCM cannot do: change its selector";
    assert_eq!(world.failed(THERE), [expected]);
    world.put(Kind::HealthCheck, "h", check.clone());
    world.walk(THERE);
    assert_eq!(world.s.find(Kind::HealthCheck, "h").unwrap().at("/spec"), check["spec"]);
}

#[test]
fn a_name_has_one_migration() {
    let mut world = World::of_lone();
    world.walk(THERE);
    world.s.unit = MigrationUnit::Deployment("m".to_owned());
    let error = plan(&world.s, THERE).unwrap_err();
    assert!(matches!(error, NoPlan::OtherUnit { .. }), "{error}");
}

#[rstest]
fn a_lone_machine_does_not_go_from_provider_to_provider(
    #[values(MigrationDirection::FromOther, MigrationDirection::ToOther)] way: MigrationDirection,
) {
    let expected = "provider: between infrastructure providers only whole deployments are migrated";
    assert_eq!(World::of_lone().failed(way), [expected]);
}
