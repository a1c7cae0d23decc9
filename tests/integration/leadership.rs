//! Two managers, of which one works.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::ListParams};
use serde_json::json;

use crate::support::{
    wait,
    world::{Manager, World},
};

/// The lease of a leader that is killed, and the longest pause between two attempts of its standby.
const LEASE: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(600);
/// Scheduling delay of two processes and an API server on a busy machine. Less than a second lease.
const SLACK: Duration = Duration::from_secs(25);
/// Half of the lease of a leader that ends in good order: a standby that waits for its end is later.
const AT_ONCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_standby_takes_over_from_a_killed_leader_within_the_lease() {
    let world = World::undisturbed("killed").await;
    let flags =
        ["--leader-elect-lease-duration=30s", "--leader-elect-renew-deadline=20s", "--leader-elect-retry-period=500ms"];
    let (mut leader, _standby) = pair(&world, &flags).await;
    let holders = holders(&world).await;

    leader.program.kill();
    let killed = Instant::now();
    world.scale(6).await;
    changed(&world, &holders).await;
    let took = killed.elapsed();
    assert!(took < LEASE + RETRY + SLACK, "the lease changed hands after {took:?}");
    settled_without_doubles(&world).await;
}

#[tokio::test]
async fn a_standby_takes_over_at_once_from_a_leader_that_ends_in_good_order() {
    let world = World::undisturbed("ended").await;
    let flags =
        ["--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=100s", "--leader-elect-retry-period=2s"];
    let (mut leader, _standby) = pair(&world, &flags).await;
    let holders = holders(&world).await;

    leader.program.terminate();
    let told = Instant::now();
    world.scale(6).await;
    changed(&world, &holders).await;
    let took = told.elapsed();
    assert!(took < AT_ONCE, "the lease changed hands after {took:?}");
    world.until("the first action of the new leader", |scene| scene.machines.len() > 3).await;
    let took = told.elapsed();
    assert!(took < AT_ONCE, "the new leader acted after {took:?}");
    assert_eq!(leader.program.ended().await.code(), Some(0));
    settled_without_doubles(&world).await;
}

/// A leader with three machines, and a standby.
async fn pair(world: &World, flags: &[&str]) -> (Manager, Manager) {
    let leader = world.launch_run(flags).ready().await;
    world.pool(3, json!({})).await;
    world.settled(3, "small").await;
    let standby = world.launch_run(flags).ready().await;
    assert_eq!(standby.get("/healthz").await, (200, "OK".to_owned()));
    (leader, standby)
}

async fn holders(world: &World) -> Vec<String> {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
    let leases = leases.list(&ListParams::default()).await.unwrap().items;
    leases.into_iter().filter_map(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty()).collect()
}

/// Waits until other holders have as many leases.
async fn changed(world: &World, before: &[String]) {
    wait::until("another holder of the leases", async || {
        let now = holders(world).await;
        (now.len() == before.len() && now.iter().all(|holder| !before.contains(holder))).then_some(())
    })
    .await;
}

async fn settled_without_doubles(world: &World) {
    world.settled(6, "small").await;
    world.assert_vms_match().await;
    assert_eq!(world.scene.now().ever.len(), 6, "machines ever made");
    assert_eq!(world.cloud.count("/created").await, 6, "VMs ever made");
}
