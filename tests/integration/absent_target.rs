//! The target cluster is unreachable, or its Nodes send no heartbeats, while a pool grows. No running machine is
//! replaced, and the process reports that it cannot see the Nodes.

use std::{collections::BTreeSet, time::Duration};

use mcm::api::machine::MachinePhase;
use serde_json::json;

use crate::support::{
    control_plane::ControlPlane,
    door, objects, pods, wait,
    world::{Manager, World},
};

/// Time for which the target cluster is silent.
const PAUSE: Duration = Duration::from_secs(100);
const STALL: Duration = Duration::from_secs(90);
/// Within which all is well again.
const RECOVERY: Duration = Duration::from_secs(120);
/// Shorter than the pause: a program that relies on the clock alone replaces every machine.
const CREATION_TIMEOUT: &str = "--machine-creation-timeout=30s";
const FEW: usize = 2;
const MANY: usize = 6;

#[tokio::test]
async fn a_paused_target_costs_no_machine() {
    let target = ControlPlane::apart().await.unwrap();
    let world = World::between(ControlPlane::shared().await, &target, "paused", &[]).await;
    let manager = world.run(&[CREATION_TIMEOUT, "--machine-health-timeout=40s"]).await;
    start(&world).await;
    let running = run_pods(&world, "early").await;

    world.scale(MANY.try_into().unwrap()).await;
    made(&world, MANY).await;
    keep_all(&world, MANY);
    let paused = target.pause();
    let told = tells_the_truth(&manager);
    // Not a wait for a state: a machine would be replaced after a time.
    let ((), ()) = tokio::join!(told, tokio::time::sleep(PAUSE));
    drop(paused);

    recovered(&world, &manager).await;
    assert_eq!(untouched_pods(&world).await, running, "pods that run");
}

#[tokio::test]
async fn a_stalled_watch_of_nodes_costs_no_machine() {
    let world = World::patient("stalled").await;
    let door = world.door_to(ControlPlane::shared().await).await;
    let manager = world.run(&[CREATION_TIMEOUT]).await;
    start(&world).await;
    let mut running = run_pods(&world, "early").await;

    door.hold(door::node_watches);
    world.scale(MANY.try_into().unwrap()).await;
    made(&world, MANY).await;
    keep_all(&world, MANY);
    world
        .until("the new nodes to join", |scene| scene.machines.keys().all(|name| scene.nodes.contains_key(name)))
        .await;
    running.extend(run_pods(&world, "late").await);
    // Not a wait for a state: a machine would be replaced after a time.
    tokio::time::sleep(STALL).await;
    door.open();

    recovered(&world, &manager).await;
    assert_eq!(untouched_pods(&world).await, running, "pods that run");
}

#[tokio::test]
async fn a_watch_of_nodes_that_is_never_answered_is_opened_again() {
    let world = World::patient("unanswered").await;
    let door = world.door_to(ControlPlane::shared().await).await;
    let manager = world.run(&[CREATION_TIMEOUT]).await;
    start(&world).await;
    let mut running = run_pods(&world, "early").await;

    door.ignore(door::node_watches, 1);
    wait::until("the watch to be opened in vain", async || (door.ignored() > 0).then_some(())).await;
    world.scale(MANY.try_into().unwrap()).await;
    made(&world, MANY).await;
    keep_all(&world, MANY);
    world
        .until("the new nodes to join", |scene| scene.machines.keys().all(|name| scene.nodes.contains_key(name)))
        .await;
    running.extend(run_pods(&world, "late").await);

    recovered(&world, &manager).await;
    assert_eq!(untouched_pods(&world).await, running, "pods that run");
}

/// A small pool whose machines take some seconds to join.
async fn start(world: &World) {
    world.pool(FEW.try_into().unwrap(), json!({})).await;
    world.settled(FEW, "small").await;
    let mut class = objects::class("small");
    objects::merge(&mut class, json!({"providerSpec": {"bootLatency": "5s"}}));
    world.apply(class).await;
}

/// Waits until there are so many VMs.
async fn made(world: &World, count: usize) {
    wait::until("the VMs", async || (world.cloud.vms().await.len() == count).then_some(())).await;
}

/// From now on no machine fails, is deleted or created.
fn keep_all(world: &World, count: usize) {
    world.scene.always("every machine is kept", move |scene| {
        scene.live().count() == count
            && scene.ever.len() == count
            && !scene.machines.values().any(|machine| machine.phase() == MachinePhase::Failed)
    });
}

/// The process is not ready, and its metrics contain the reason.
async fn tells_the_truth(manager: &Manager) {
    let mut was_told = (false, false);
    wait::until_within(PAUSE, "the process to say that its caches are old", async || {
        was_told.0 |= manager.get("/readyz").await.0 != 200;
        was_told.1 |= node_cache_age(&manager.get("/metrics").await.1).is_some_and(|age| age > 30.0);
        (was_told == (true, true)).then_some(())
    })
    .await;
}

/// Seconds since the last event of the watch of Nodes.
fn node_cache_age(metrics: &str) -> Option<f64> {
    let is_age = |line: &&str| line.starts_with("mcm_cache_age_seconds{") && line.contains(r#"kind="nodes""#);
    metrics.lines().find(is_age)?.rsplit_once(' ')?.1.parse().ok()
}

/// Waits until all machines serve and the process is ready, without any help.
async fn recovered(world: &World, manager: &Manager) {
    let what = "all machines to serve";
    world.scene.find(what, RECOVERY, |scene| scene.settled(MANY, "small").then_some(())).await;
    wait::until("the process to be ready", async || (manager.get("/readyz").await.0 == 200).then_some(())).await;
    world.assert_vms_match().await;
    assert_eq!(world.cloud.count("/created").await, u64::try_from(MANY).unwrap(), "VMs ever made");
}

/// Runs a pod on each Node of the pool; returns their UIDs.
async fn run_pods(world: &World, prefix: &str) -> BTreeSet<String> {
    let mut uids = BTreeSet::new();
    let names = world.scene.now().names();
    for node in names {
        let pod = pods::pod(&format!("{prefix}-{node}"), &node);
        uids.insert(pods::run(&world.target, &world.namespace, pod).await);
    }
    uids
}

/// UIDs of the pods that were not deleted.
async fn untouched_pods(world: &World) -> BTreeSet<String> {
    let pods = pods::all(&world.target, &world.namespace).await.into_iter();
    pods.filter(|pod| pod.metadata.deletion_timestamp.is_none()).filter_map(|pod| pod.metadata.uid).collect()
}
