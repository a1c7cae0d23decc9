//! Deletions by propagation policy (`kubectl delete --cascade`), with the real garbage collector.

use std::time::Duration;

use kube::{
    ResourceExt,
    api::{DeleteParams, PropagationPolicy},
};
use serde_json::{Value, json};

use crate::support::{
    control_plane::ControlPlane,
    objects::{self, api_of},
    wait,
    world::World,
};

/// Kinds that were just installed are watched after 30 s at most.
const RESYNC: Duration = Duration::from_secs(120);

#[tokio::test]
async fn machines_stay_with_the_policy_orphan_and_go_in_the_foreground() {
    let control = ControlPlane::apart_with(&["--with", "kube-controller-manager"]).await.unwrap();
    let control = control.install().await.unwrap();
    until_the_garbage_collector_watches(&control).await;
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

    // The usual reason for it: the same machines under another deployment.
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

/// Waits until the garbage collector has listed sets and machines: before, it takes an owner of them for one without dependents,
/// and deletes the dependents later, whatever the policy was.
async fn until_the_garbage_collector_watches(control: &ControlPlane) {
    let namespace = control.namespace("collected").await;
    let (mut set, mut machine) = (objects::deployment("unowned", 0), objects::machine("unowned"));
    set["kind"] = "MachineSet".into();
    set["spec"].as_object_mut().unwrap().remove("strategy");
    for (object, owner) in [(&mut set, "MachineDeployment"), (&mut machine, "MachineSet")] {
        object["metadata"]["namespace"] = namespace.as_str().into();
        object["metadata"]["ownerReferences"] = owned_by_a_missing(owner);
        objects::apply(&control.client(), object).await;
        let api = api_of(&control.client(), object);
        wait::until_within(RESYNC, "the garbage collector to delete an object whose owner is missing", async || {
            api.get_opt("unowned").await.unwrap().is_none().then_some(())
        })
        .await;
    }
}

fn owned_by_a_missing(kind: &str) -> Value {
    json!([{
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": kind,
        "name": "missing",
        "uid": "5d1f0c9a-0000-4000-8000-000000000000",
    }])
}
