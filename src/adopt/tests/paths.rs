//! The ways there and back, and every place where they can be interrupted.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::world::World;
use crate::{Kind, MigrationDirection, MigrationStage, plan::plan};
use mcm_api::labels;
use mcm_conversion::types::{MachineAuthority, names};

const THERE: MigrationDirection = MigrationDirection::ToNative;
const BACK: MigrationDirection = MigrationDirection::FromNative;

fn names_of(world: &World, kind: Kind) -> Vec<String> {
    world.s.all(kind).map(|object| object.name().to_owned()).collect()
}

/// Path C of 4.4 with our provider: the native Machines stay, everything above them is native.
#[test]
fn machines_of_cluster_api_become_native_ones() {
    let mut world = World::of_cluster_api(3);
    let before = world.essence();
    world.walk(THERE);
    assert_eq!(world.essence(), before);
    for kind in [Kind::CapiDeployment, Kind::CapiSet, Kind::CapiMachine, Kind::InfraMachine] {
        assert_eq!(names_of(&world, kind), [""; 0]);
    }
    assert_eq!(names_of(&world, Kind::Deployment), ["d"]);
    assert_eq!(names_of(&world, Kind::Set), ["d-abc"]);
    let set = world.s.find(Kind::Set, "d-abc").unwrap();
    assert_eq!(set.number("/spec/replicas"), Some(3), "8, absent replicas");
    let template = set.at("/spec/template/metadata/labels");
    for native in world.s.all(Kind::Machine) {
        assert_eq!(native.controller(), Some(set.uid()));
        assert_eq!(native.label(labels::NODE), Some(native.name()));
        assert_eq!(native.label(labels::TEMPLATE_HASH), template[labels::TEMPLATE_HASH].as_str());
        assert_eq!(native.at("/spec/class"), set.at("/spec/template/spec/class"));
        for gone in [labels::MIGRATION, labels::BEFORE_MIGRATION, labels::USER_DATA_SECRET] {
            assert_eq!(native.annotation(gone), None);
        }
    }
    let node = world.s.all(Kind::Node).next().unwrap();
    assert_eq!(node.annotation("cluster.x-k8s.io/machine"), None);
    assert_eq!(node.annotation("other"), Some("stays"));
    assert_eq!(world.s.migration().unwrap().status.unwrap().authority, Some(MachineAuthority::MachineController));
}

/// Path D of 4.4: back under core, with the same names as before.
#[test]
fn native_machines_return_to_cluster_api() {
    let mut world = World::of_cluster_api(3);
    let kinds = [Kind::CapiDeployment, Kind::CapiSet, Kind::CapiMachine, Kind::InfraMachine, Kind::InfraTemplate];
    let (before, names_before) = (world.essence(), kinds.map(|kind| names_of(&world, kind)));
    world.walk(THERE);
    world.walk(BACK);
    assert_eq!((world.essence(), kinds.map(|kind| names_of(&world, kind))), (before, names_before));
    for kind in [Kind::Deployment, Kind::Set] {
        assert_eq!(names_of(&world, kind), [""; 0]);
    }
    let set = world.s.find(Kind::CapiSet, "d-abc").unwrap();
    assert_eq!(set.label(labels::TEMPLATE_HASH), Some("abc"), "T24");
    for machine in world.s.all(Kind::CapiMachine) {
        let (infra, native) =
            (world.s.find(Kind::InfraMachine, machine.name()), world.s.find(Kind::Machine, machine.name()));
        let (infra, native) = (infra.unwrap(), native.unwrap());
        assert_eq!(machine.controller(), Some(set.uid()));
        assert_eq!((infra.controller(), native.controller()), (Some(machine.uid()), Some(infra.uid())));
        assert_eq!(machine.text("/spec/bootstrap/dataSecretName"), "boot");
        assert_eq!(infra.text("/spec/providerID"), native.text("/spec/providerID"));
        assert_eq!(native.label(names::CLUSTER_NAME), Some("c"));
        assert_eq!(native.text("/spec/creationTimeout"), "876000h0m0s");
    }
    world.walk(THERE);
}

/// Core never counts a machine of a Cluster without a control plane as available: no step waits for that.
#[test]
fn machines_return_to_a_cluster_without_a_control_plane() {
    let mut world = World::of_cluster_api(2);
    world.edit(Kind::Cluster, "c", &json!({ "status": { "conditions": null } }));
    world.controllers();
    world.walk(THERE);
    world.walk(BACK);
    assert_eq!(world.s.find(Kind::CapiDeployment, "d").unwrap().number("/status/availableReplicas"), Some(0));
}

/// With one, the migration is complete when they are.
#[test]
fn machines_that_are_not_available_are_waited_for() {
    let mut world = World::of_cluster_api(1);
    world.walk(THERE);
    for _ in 0..30 {
        world.round(BACK, usize::MAX);
        world.controllers();
        if world.s.find(Kind::CapiSet, "d-abc").is_some() {
            world.edit(Kind::CapiSet, "d-abc", &json!({ "status": { "availableReplicas": 0 } }));
        }
    }
    let plan = world.plan(BACK);
    assert_eq!(plan.todo.waits, ["all machines of the MachineSet to be available"]);
}

/// 4.4: core deletes Nodes, and only the native controllers would remove their finalizer.
#[test]
fn nodes_lose_what_only_the_native_controllers_would_remove() {
    let mut world = World::of_cluster_api(1);
    world.walk(THERE);
    let marks = json!({
        "finalizers": [labels::NODE_FINALIZER, "other"], "labels": { (labels::MACHINE_NAME): "d-abc-0", "other": "stays" },
    });
    world.edit(Kind::Node, "d-abc-0", &json!({ "metadata": marks }));
    world.walk(BACK);
    let node = world.s.find(Kind::Node, "d-abc-0").unwrap();
    assert_eq!(node.at("/metadata/finalizers"), json!(["other"]));
    assert_eq!(node.at("/metadata/labels"), json!({ "other": "stays" }));
}

/// Nothing restores a machine whose VM ends after the switch. The others go on.
#[rstest]
fn a_machine_that_ends_after_the_switch_does_not_stop_the_others(
    #[values(
        MigrationDirection::ToNative,
        MigrationDirection::FromNative,
        MigrationDirection::FromOther,
        MigrationDirection::ToOther
    )]
    way: MigrationDirection,
) {
    let mut world = World::at_beginning_of(way, 3);
    world.walk_until_switched(way);
    world.lose("d-abc-1");
    world.walk(way);
    assert_eq!(world.plan(way).losses, ["Node d-abc-1 was lost"]);
}

/// Another Node of the same name is not the recorded one.
#[rstest]
#[case::restarted(json!({ "status": { "nodeInfo": { "bootID": "another" } } }), "Node d-abc-0 was restarted")]
#[case::created_again(json!({ "metadata": { "uid": "another" } }), "Node d-abc-0 was lost")]
fn a_node_that_changes_after_the_switch_is_named(#[case] change: serde_json::Value, #[case] expected: &str) {
    let mut world = World::of_cluster_api(1);
    world.walk_until_switched(THERE);
    world.edit(Kind::Node, "d-abc-0", &change);
    world.walk(THERE);
    assert_eq!(world.plan(THERE).losses, [expected]);
}

/// The API server limits the message of a condition.
#[test]
fn only_some_of_many_changed_nodes_are_named() {
    let mut world = World::of_cluster_api(22);
    world.walk_until_switched(THERE);
    for number in 0..22 {
        let change = json!({ "status": { "nodeInfo": { "bootID": "another" } } });
        world.edit(Kind::Node, &format!("d-abc-{number}"), &change);
    }
    world.walk(THERE);
    let losses = world.plan(THERE).losses;
    assert!(losses.len() == 1 && losses[0].ends_with("was restarted and 2 more"), "{losses:?}");
}

/// Every step, interrupted after each number of its writes: it is continued or undone, and never puts anything at risk.
#[rstest]
fn a_migration_that_stops_anywhere_goes_on_or_is_undone(
    #[values(
        MigrationDirection::ToNative,
        MigrationDirection::FromNative,
        MigrationDirection::FromOther,
        MigrationDirection::ToOther
    )]
    way: MigrationDirection,
    #[values(false, true)] is_undone: bool,
) {
    stop_anywhere(|| World::at_beginning_of(way, 2), way, is_undone, 20);
}

/// Stops after every number of writes, of which a way has more than `least`.
pub fn stop_anywhere(beginning: impl Fn() -> World, way: MigrationDirection, is_undone: bool, least: usize) {
    for stop in 0.. {
        let mut world = beginning();
        let before = world.essence_on(way);
        let mut writes = 0;
        while writes < stop && world.plan(way).stage != MigrationStage::Done {
            let left = world.plan(way).todo.actions.len();
            world.round(way, stop - writes);
            writes += left.min(stop - writes);
            world.controllers();
            world.inspect();
        }
        let is_over = world.plan(way).stage == MigrationStage::Done;
        match is_undone.then(|| world.abort()).flatten() {
            Some(back) => {
                assert_eq!(back, way.back());
                world.walk(back);
                let authority = world.s.migration().unwrap().status.unwrap().authority;
                assert_eq!(authority, Some(way.from().into()));
                assert!(world.s.objects.values().all(|object| object.annotation(labels::MIGRATION).is_none()));
            }
            None => world.walk(way),
        }
        assert_eq!(world.essence_on(way), before);
        if is_over {
            assert!(stop > least, "it had {stop} writes");
            return;
        }
    }
}

/// Kills, pauses of the controllers and changes of mind, in any order.
pub fn wander(mut world: World, there: MigrationDirection, turns: Vec<(usize, bool, u8)>) {
    let before = world.essence_on(there);
    let mut way = there;
    for (writes, works, mind) in turns {
        if plan(&world.s, way).is_err() || world.plan(way).stage == MigrationStage::Done {
            way = way.back();
        }
        if mind == 0
            && let Some(back) = world.abort()
        {
            way = back;
        }
        world.round(way, writes);
        if works {
            world.controllers();
        }
        world.inspect();
        assert_eq!(world.essence_on(way), before);
    }
    world.walk(way);
    world.walk(way.back());
    assert_eq!(world.essence_on(way), before);
}

pub fn any_turns() -> impl Strategy<Value = Vec<(usize, bool, u8)>> {
    prop::collection::vec((0_usize..6, any::<bool>(), 0_u8..30), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_happens_on_the_way_no_vm_is_at_risk(turns in any_turns()) {
        wander(World::at_beginning_of(THERE, 3), THERE, turns);
    }

    /// The same between infrastructure providers.
    #[test]
    fn whatever_happens_between_providers_no_vm_is_at_risk(turns in any_turns()) {
        wander(World::at_beginning_of(MigrationDirection::FromOther, 3), MigrationDirection::FromOther, turns);
    }
}
