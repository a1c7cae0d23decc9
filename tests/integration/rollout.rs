//! Rollouts keep their bounds at every instant.

use std::collections::BTreeSet;

use mcm::api::labels;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{objects, scene::Scene, world::World};

/// Never more than `most` machines that are not being deleted, never fewer than `least` that serve.
fn bounds(most: usize, least: usize) -> impl Fn(&Scene) -> bool + Send + 'static {
    move |scene| scene.live().count() <= most && scene.available() >= least
}

#[rstest]
#[case::one_more(4, json!({"maxSurge": 1, "maxUnavailable": 0}), 5, 4)]
#[case::one_less(4, json!({"maxSurge": 0, "maxUnavailable": 1}), 4, 3)]
#[case::a_fifth_each_way(10, json!({"maxSurge": "20%", "maxUnavailable": "20%"}), 12, 8)]
#[tokio::test]
async fn a_rolling_update_keeps_its_bounds(
    #[case] replicas: u32,
    #[case] limits: Value,
    #[case] most: usize,
    #[case] least: usize,
) {
    let count = usize::try_from(replicas).unwrap();
    let world = World::new("rolling").await;
    let _manager = world.run(&[]).await;
    world.pool(replicas, json!({"spec": {"strategy": {"rollingUpdate": limits}}})).await;
    world.settled(count, "small").await;

    let text = format!("{} live machines at most, {} available at least", most, least);
    world.scene.always(&text, bounds(most, least));
    world.roll("large").await;
    world.settled(count, "large").await;
    world.assert_vms_match().await;
    assert_eq!(world.scene.now().ever.len(), 2 * count, "each machine was replaced once");
}

#[tokio::test]
async fn recreate_never_has_machines_of_two_templates() {
    let world = World::new("recreate").await;
    let _manager = world.run(&[]).await;
    world.pool(3, json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}})).await;
    world.settled(3, "small").await;

    world.scene.always("machines of one template only", |scene| {
        let hashes: BTreeSet<_> = scene
            .machines
            .values()
            .map(|machine| machine.metadata.labels.as_ref()?.get(labels::TEMPLATE_HASH))
            .collect();
        hashes.len() <= 1
    });
    world.roll("large").await;
    world.settled(3, "large").await;
    world.assert_vms_match().await;
}

#[tokio::test]
async fn a_rollout_is_paused_scaled_resumed_and_taken_back() {
    let world = World::new("turns").await;
    let _manager = world.run(&[]).await;
    world.pool(4, json!({})).await;
    world.settled(4, "small").await;
    let originals = world.scene.now().uids();
    let first_set = world.scene.now().sets.keys().next().unwrap().clone();

    // The rollout is not over before the pause.
    let mut slow = objects::class("large");
    slow["providerSpec"]["bootLatency"] = "3s".into();
    world.apply(slow).await;
    world.scene.always("five live machines at most, four available at least", bounds(5, 4));
    world.roll("large").await;
    world.until("the rollout to be under way", |scene| scene.available_of("large") >= 1).await;
    world.change(json!({"spec": {"paused": true}})).await;
    world
        .until("the pause to be seen", |scene| {
            let conditions = scene.deployments["pool"].status.iter().flat_map(|status| &status.conditions);
            conditions.into_iter().any(|condition| condition.reason == "DeploymentPaused")
        })
        .await;
    world.scene.forget_rules();

    // A paused deployment still scales, and divides the new machines between both templates.
    let classes =
        |scene: &Scene| -> BTreeSet<String> { scene.live().map(|machine| machine.spec.class.name.clone()).collect() };
    let both = BTreeSet::from(["large".to_owned(), "small".to_owned()]);
    world.scale(8).await;
    world
        .until("machines of both classes, and more of them", |scene| scene.available() >= 8 && classes(scene) == both)
        .await;

    world.scene.always("nine live machines at most, eight available at least", bounds(9, 8));
    world.change(json!({"spec": {"paused": null}})).await;
    world.roll("small").await;
    world.settled(8, "small").await;
    world.assert_vms_match().await;
    let scene = world.scene.now();
    assert_eq!(scene.sets[&first_set].spec.replicas, 8, "the first set has the template again");
    let survivors = originals.intersection(&scene.uids()).count();
    assert!(survivors >= 2, "machines of the wanted template were replaced: {survivors} of the first four are left");
}

/// A typed client, such as the autoscaler's, drops unknown fields when it writes the whole object.
#[tokio::test]
async fn a_key_that_nobody_knows_rolls_nothing_when_it_comes_or_goes() {
    let world = World::new("unknown-key").await;
    let _manager = world.run(&[]).await;
    let typo = |value: Value| {
        json!({"spec": {"template": {
            "metadata": {"annotation": value},
            "spec": {"nodeTemplate": {"metadata": {"label": value}}},
        }}})
    };
    world.pool(2, typo(json!({"a": "b"}))).await;
    world.settled(2, "small").await;
    let first = world.scene.now().uids();

    let kept = first.clone();
    world.scene.always("no machine is replaced, and there is one set", move |scene| {
        scene.sets.len() == 1 && kept.is_subset(&scene.uids()) && scene.live().count() >= kept.len()
    });
    world.change(typo(Value::Null)).await;
    world.scale(3).await;
    world.settled(3, "small").await;
    world.change(typo(json!({"c": "d"}))).await;
    world.scale(4).await;
    world.settled(4, "small").await;
    assert_eq!(world.scene.now().ever.len(), 4, "machines ever made");
}
