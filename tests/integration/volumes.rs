//! A drain of pods with volumes: a few at a time, each until its volume is attached elsewhere, and a stuck one for a
//! limited time.

use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::json;

use crate::support::{
    attach_detach::{AttachDetach, Latency},
    world::World,
};

const LATENCY: Latency = Latency {
    termination: Duration::from_millis(50),
    detach: Duration::from_millis(300),
    attach: Duration::from_millis(300),
};
const VOLUMES: usize = 8;
const MOST_AT_ONCE: usize = 5;

#[tokio::test]
async fn volumes_move_a_few_at_a_time_and_a_machine_is_deleted_when_they_have_arrived() {
    let world = World::new("volumes").await;
    let _manager = world.run(&[]).await;
    let [first, second] = two_machines(&world).await;
    let names: Vec<String> = (0..VOLUMES).map(|at| format!("web-{at}")).collect();
    AttachDetach::pods(&world, &names, &first).await;
    let controller = AttachDetach::start(&world, LATENCY, &[], &second);

    world.machines().delete(&first, &DeleteParams::default()).await.unwrap();
    world.until("the machine to be gone", |scene| !scene.machines.contains_key(&first)).await;
    let moved = controller.moved();
    let arrived = moved.values().filter(|it| it.attached.is_some()).count();
    assert_eq!(arrived, VOLUMES, "volumes that are attached elsewhere: {moved:?}");
    let most = controller.most_at_once();
    assert!((2..=MOST_AT_ONCE).contains(&most), "{most} volumes were on the move");
    assert!(!world.scene.now().was_told(&first, "Force Drain"));
}

#[tokio::test]
async fn a_stuck_volume_is_reported_and_delays_a_drain_for_a_limited_time() {
    let world = World::new("stuck").await;
    let _manager = world.run(&["--machine-pv-detach-timeout=10s"]).await;
    let [first, second] = two_machines(&world).await;
    let names = ["stuck".to_owned(), "well".to_owned()];
    AttachDetach::pods(&world, &names, &first).await;
    let controller = AttachDetach::start(&world, LATENCY, &names[..1], &second);

    world.machines().delete(&first, &DeleteParams::default()).await.unwrap();
    world
        .until("the stuck volume to be told", |scene| {
            scene.was_told(&first, "timeout while waiting for PVs to detach from node")
        })
        .await;
    world.until("the machine to be gone", |scene| !scene.machines.contains_key(&first)).await;
    let moved = controller.moved();
    assert!(moved["well"].attached.is_some() && moved["stuck"].detached.is_none(), "{moved:?}");
}

/// The Nodes of a pool of two, on which no pods run yet.
async fn two_machines(world: &World) -> [String; 2] {
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let names: Vec<String> = world.scene.now().names().into_iter().collect();
    names.try_into().unwrap()
}
