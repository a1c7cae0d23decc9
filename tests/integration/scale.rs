//! As many machines as desired: never too many while scaling up, and only the surplus is deleted while scaling down.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::json;

use crate::support::{objects, world::World};

#[rstest]
#[case::thirty(30)]
#[case::more_than_are_deleted_at_once(150)]
#[tokio::test]
async fn a_scale_down_removes_exactly_the_surplus(#[case] many: u32) {
    let count = usize::try_from(many).unwrap();
    let world = World::new("scale").await;
    let _manager = world.run(&[]).await;
    world.pool(many, json!({})).await;
    world.settled(count, "small").await;
    let before = world.scene.now().uids();
    assert_eq!(world.scene.now().ever.len(), count, "machines ever made");
    assert_eq!(world.cloud.count("/created").await, u64::from(many), "VMs ever made");

    world.scene.always("three available at least", |scene| scene.available() >= 3);
    world.scale(3).await;
    world.settled(3, "small").await;
    world.assert_vms_match().await;
    let scene = world.scene.now();
    assert!(scene.uids().is_subset(&before), "survivors were replaced");
    assert_eq!(scene.ever, before, "machines were made on the way down");
}

/// Creations and deletions in flight follow the desired number. With the limits of the drop-in programs they take many
/// seconds.
#[tokio::test]
async fn a_wish_that_changes_stops_what_is_under_way() {
    let world = World::patient("changed").await;
    let _manager = world.run(&["--kube-api-qps=20", "--kube-api-burst=30"]).await;
    world.pool(150, json!({})).await;
    world.until("some machines", |scene| scene.machines.len() >= 10).await;
    world.scale(5).await;
    let limit = Duration::from_secs(150);
    world
        .scene
        .find("five machines", limit, |scene| (scene.machines.len() == 5 && scene.available() == 5).then_some(()))
        .await;
    let ever = world.scene.now().ever.len();
    // As many as the reference creates, which stops at a hundred before it observes again.
    assert!(ever <= 100, "{ever} machines were made");
}

/// Helm, Flux and others apply a manifest, and the API server removes fields that it no longer contains.
#[tokio::test]
async fn replicas_that_a_manifest_loses_are_kept() {
    let world = World::new("manifest").await;
    let _manager = world.run(&[]).await;
    world.classes().await;
    let mut manifest = objects::deployment("pool", 2);
    let helm = PatchParams::apply("helm").force();
    world.deployments().patch("pool", &helm, &Patch::Apply(&manifest)).await.unwrap();
    world.settled(2, "small").await;
    let before = world.scene.now().uids();
    let kept = before.clone();
    world.scene.always("no machine goes", move |scene| {
        scene.uids() == kept && !scene.machines.values().any(|machine| machine.is_terminating())
    });

    manifest["spec"].as_object_mut().unwrap().remove("replicas");
    world.deployments().patch("pool", &helm, &Patch::Apply(&manifest)).await.unwrap();
    let is_told = |reason: Option<&str>| reason == Some("ReplicasRestored");
    world.until("an event", |scene| scene.events.values().any(|event| is_told(event.reason.as_deref()))).await;
    world.settled(2, "small").await;

    world.scene.forget_rules();
    manifest["spec"]["replicas"] = json!(0);
    world.deployments().patch("pool", &helm, &Patch::Apply(&manifest)).await.unwrap();
    world.until("no machine", |scene| scene.machines.is_empty()).await;
    assert_eq!(world.scene.now().ever, before);
}
