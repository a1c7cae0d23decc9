//! A driver in another process that does not live long.

use std::{path::PathBuf, time::Duration};

use rand::Rng;
use serde_json::json;

use crate::support::{
    objects,
    program::{MCM, Program},
    world::{Manager, World},
};

const REPLICAS: usize = 100;
const KILLS: usize = 5;
/// From before the first creation until some are done.
const LIFE_MILLIS: std::ops::Range<u64> = 100..800;
/// Longer than a hundred machines take on a busy machine.
const LONG: Duration = Duration::from_secs(240);

/// The driver of the simulated cloud, in front of the cloud of this world.
fn driver(world: &World) -> (Program, String) {
    let socket: PathBuf = world.folder().join("driver.sock");
    let arguments = [
        "driver".to_owned(),
        "serve".to_owned(),
        "--provider=simulated".to_owned(),
        format!("--listen=unix://{}", socket.display()),
        world.cloud_flag(),
        "--v=3".to_owned(),
    ];
    let program = Program::start(MCM, arguments.to_vec(), world.folder().join("driver.log"));
    (program, format!("--driver=simulated=unix://{}", socket.display()))
}

async fn manager(world: &World, flag: &str) -> Manager {
    world.launch("run", &["--leader-elect=false", "--concurrent-syncs=50", flag]).ready().await
}

#[tokio::test]
async fn no_vm_is_lost_or_doubled_however_often_the_driver_is_killed() {
    let world = World::new("remote").await;
    let (mut driver, flag) = driver(&world);
    let _manager = manager(&world, &flag).await;
    world.classes().await;
    let mut class = objects::class("small");
    objects::merge(&mut class, json!({"providerSpec": {"createLatency": "300ms", "deleteLatency": "300ms"}}));
    world.apply(class).await;
    let mut trouble = async || {
        for _ in 0..KILLS {
            // Not a wait for a state: the moment shall be any.
            let life = rand::rng().random_range(LIFE_MILLIS);
            tokio::time::sleep(Duration::from_millis(life)).await;
            driver.restart_after_kill();
            for (machine, vms) in world.cloud.provider_ids().await {
                assert_eq!(vms.len(), 1, "{machine} has several VMs: {vms:?}");
            }
        }
    };

    world.apply(objects::deployment("pool", u32::try_from(REPLICAS).unwrap())).await;
    trouble().await;
    let settled = |scene: &crate::support::scene::Scene| scene.settled(REPLICAS, "small").then_some(());
    world.scene.find("all machines to serve", LONG, settled).await;
    world.assert_vms_match().await;
    assert_eq!(world.scene.now().ever.len(), REPLICAS, "machines ever made");
    assert_eq!(world.cloud.count("/created").await, u64::try_from(REPLICAS).unwrap(), "VMs ever made");

    world.scale(0).await;
    trouble().await;
    world.scene.find("all machines to be gone", LONG, |scene| scene.machines.is_empty().then_some(())).await;
    assert_eq!(world.cloud.count("/alive").await, 0);
    assert_eq!(world.cloud.count("/created").await, u64::try_from(REPLICAS).unwrap(), "VMs ever made");
}

#[tokio::test]
async fn a_hanging_driver_is_reported_and_used_again_once_it_responds() {
    let world = World::patient("hangs").await;
    let (driver, flag) = driver(&world);
    let _manager = manager(&world, &flag).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;

    driver.signal("STOP");
    world.scale(3).await;
    let told = world
        .find("a machine that says why it has no VM", |scene| {
            scene.told.iter().find(|told| told.operation.error_code == "Unavailable").cloned()
        })
        .await;
    assert!(told.operation.description.contains("driver simulated at unix://"), "{told:?}");
    // Noticed either by the poll of the driver, or by the pings on the connection of the calls.
    let notices = ["did not respond within", "timed out"];
    assert!(notices.iter().any(|text| told.operation.description.contains(text)), "{told:?}");

    driver.signal("CONT");
    world.settled(3, "small").await;
    world.assert_vms_match().await;
    assert_eq!(world.cloud.count("/created").await, 3);
}
