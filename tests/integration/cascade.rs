//! Deletions by propagation policy (`kubectl delete --cascade`), with the real garbage collector.

use kube::{
    ResourceExt,
    api::{DeleteParams, PropagationPolicy},
};
use serde_json::json;

use crate::support::{control_plane::ControlPlane, world::World};

#[tokio::test]
async fn machines_stay_with_the_policy_orphan_and_go_in_the_foreground() {
    let control = ControlPlane::apart_with(&["--with", "kube-controller-manager"]).await.unwrap();
    let control = control.install().await.unwrap();
    let world = World::between(&control, ControlPlane::shared().await, "cascade", &[]).await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let before = world.scene.now().uids();
    let kept = before.clone();
    world.scene.always("no machine goes or comes", move |scene| {
        scene.uids() == kept && !scene.machines.values().any(|machine| machine.is_terminating())
    });

    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    world.deployments().delete("pool", &orphan).await.unwrap();
    let set = world
        .find("a set without owner", |scene| {
            let set = scene.sets.values().next()?;
            (scene.deployments.is_empty() && set.owner_references().is_empty()).then(|| set.name_any())
        })
        .await;
    world.sets().delete(&set, &orphan).await.unwrap();
    world
        .until("machines without owner", |scene| {
            scene.sets.is_empty() && scene.machines.values().all(|machine| machine.owner_references().is_empty())
        })
        .await;

    // The reason why people do it: the same machines under another deployment.
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    assert_eq!(world.scene.now().ever, before);
    world.assert_vms_match().await;

    world.scene.forget_rules();
    world.deployments().delete("pool", &DeleteParams::foreground()).await.unwrap();
    world
        .until("everything of the pool to be gone", |scene| {
            scene.machines.is_empty() && scene.sets.is_empty() && scene.deployments.is_empty()
        })
        .await;
    world.assert_vms_match().await;
}
