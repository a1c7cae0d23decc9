//! Two pairs of the drop-in programs: one leads, the other is a standby for a long time and then takes over.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use mcm::api::machine::{Machine, MachinePhase};
use serde_json::json;

use crate::support::{
    objects,
    scene::Scene,
    world::{Manager, World},
};

const ELECTION: [&str; 3] =
    ["--leader-elect-lease-duration=12s", "--leader-elect-renew-deadline=10s", "--leader-elect-retry-period=500ms"];
/// Machines with fixed names, so that the names of their Nodes are reused.
const REUSED: [&str; 2] = ["reused-a", "reused-b"];
/// A Machine whose Node's name was once that of another Node.
const FORMER: &str = "former";
const REPLICAS: usize = 4;

#[tokio::test]
async fn a_standby_of_a_whole_rollout_deletes_nothing_when_it_takes_over() {
    let world = World::new("standby").await;
    let mut leaders = pair(&world).await;
    world.pool(u32::try_from(REPLICAS).unwrap(), json!({})).await;
    world.pool_serves(REPLICAS, "small").await;
    let _standbys = pair(&world).await;

    // Meanwhile Nodes go, and some of their names are used again.
    for name in REUSED {
        stand_alone(&world, name).await;
    }
    for name in REUSED {
        world.machines().delete(name, &DeleteParams::default()).await.unwrap();
    }
    world
        .until("the machines and their nodes to be gone", |scene| {
            !REUSED.iter().any(|name| scene.machines.contains_key(*name) || scene.nodes.contains_key(*name))
        })
        .await;
    come_and_go(&world, FORMER).await;
    for name in REUSED.into_iter().chain([FORMER]) {
        stand_alone(&world, name).await;
    }
    world.roll("large").await;
    world.pool_serves(REPLICAS, "large").await;

    let healthy = world.scene.now().uids();
    let victim = pool(&world.scene.now()).next().map(|machine| machine.metadata.clone()).unwrap();
    world.scene.always("nobody deletes a healthy machine", move |scene| {
        healthy.iter().all(|uid| scene.live().any(|machine| machine.metadata.uid.as_ref() == Some(uid)))
    });
    for leader in &mut leaders {
        leader.program.kill();
    }
    world.scale(u32::try_from(REPLICAS + 1).unwrap()).await;
    world.pool_serves(REPLICAS + 1, "large").await;

    // Nodes that go are dealt with in their order: when a new one is, so are all that the standby remembers. Not that of a
    // machine of this very second, which might be the successor of another.
    world.scene.forget_rules();
    let before = world.scene.now().uids();
    nodes(&world).delete(&victim.name.unwrap(), &DeleteParams::default()).await.unwrap();
    let gone = victim.uid.unwrap();
    world.until("the machine without node to be gone", |scene| !scene.uids().contains(&gone)).await;
    world.pool_serves(REPLICAS + 1, "large").await;
    let lost: BTreeSet<String> = before.difference(&world.scene.now().uids()).cloned().collect();
    assert_eq!(lost, BTreeSet::from([gone]), "machines that went");
    world.assert_vms_match().await;
}

/// Both programs, ready.
async fn pair(world: &World) -> [Manager; 2] {
    let sets = world.launch("machine-controller-manager", &ELECTION).ready().await;
    let machines = world.launch("machine-controller", &[&ELECTION[..], &[&world.cloud_flag()]].concat()).ready().await;
    [sets, machines]
}

fn pool(scene: &Scene) -> impl Iterator<Item = &Machine> {
    scene.live().filter(|machine| machine.metadata.owner_references.is_some())
}

/// Creates a Machine without a set, and waits until it serves.
async fn stand_alone(world: &World, name: &str) {
    world.apply(objects::machine(name)).await;
    world.until("the machine to serve", |scene| scene.phase(name) == Some(MachinePhase::Running)).await;
}

/// Another client's Node, which is created and deleted.
async fn come_and_go(world: &World, name: &str) {
    let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    nodes(world).create(&PostParams::default(), &node).await.unwrap();
    world.until("the node to be seen", |scene| scene.nodes.contains_key(name)).await;
    nodes(world).delete(name, &DeleteParams::default()).await.unwrap();
    world.until("the node to be gone", |scene| !scene.nodes.contains_key(name)).await;
}

fn nodes(world: &World) -> Api<Node> {
    Api::all(world.target.clone())
}
