//! VMs that no machine has, with the permissions of `config/standalone/control.yaml`.

use std::time::Duration;

use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use crate::support::{objects, pods, wait, world::World};

/// The shortest times: lists are a minute apart.
const SOON: [&str; 3] = [
    "--machine-safety-orphan-vms-period=1m",
    "--machine-safety-orphan-vms-minimum-age=1m",
    "--machine-creation-timeout=20s",
];
/// Three lists, and a drain.
const SOME_LISTS: Duration = Duration::from_secs(360);

/// As after the restore of an older etcd: the machine of a Node that serves is lost.
#[tokio::test]
async fn the_node_of_a_vm_whose_machine_was_lost_is_drained_before_the_vm_is_deleted() {
    let world = World::new("orphans").await;
    let manager = world.run(&SOON).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    drop(manager);
    let lost = world.scene.now().names().into_iter().next().unwrap();
    pods::run(&world.target, &world.namespace, pods::pod("web", &lost)).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "strict", "namespace": world.namespace},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    });
    objects::apply(&world.target, &budget).await;
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.machines().patch(&lost, &PatchParams::default(), &none).await.unwrap();
    world.machines().delete(&lost, &DeleteParams::default()).await.unwrap();
    world.until("the machine to be lost", |scene| !scene.machines.contains_key(&lost)).await;

    let _manager = world.run(&SOON).await;
    wait::until_within(SOME_LISTS, "the drain of its node", async || {
        let scene = world.scene.now();
        let is_cordoned = scene.nodes.get(&lost)?.spec.as_ref()?.unschedulable == Some(true);
        (is_cordoned && scene.was_told(&lost, "strict")).then_some(())
    })
    .await;
    assert_eq!(world.scene.now().available(), 2, "the pool has its replicas without it");
    assert!(world.cloud.provider_ids().await.contains_key(&lost), "its VM stays while the budget keeps the pod");
    let machine = world.scene.now().machines.get(&lost).cloned().unwrap();
    assert!(machine.owner_references().is_empty(), "no set has it");

    pods::api(&world.target, &world.namespace).delete("web", &DeleteParams::default().grace_period(0)).await.unwrap();
    world
        .until("its machine, VM and node to be gone", |scene| {
            !scene.machines.contains_key(&lost) && !scene.nodes.contains_key(&lost)
        })
        .await;
    assert_eq!(world.cloud.count("/alive").await, 2, "as many as replicas");
    world.assert_vms_match().await;
}

/// A VM of a Go MCM in another namespace, for all that this process can see.
#[tokio::test]
async fn a_vm_without_a_marker_is_kept_and_the_missing_right_named() {
    let world = World::new("unmarked").await;
    let manager = world.run(&SOON).await;
    world.classes().await;
    world.cloud.make(&world.namespace, "of-others").await;
    let told = wait::until_within(SOME_LISTS, "the event", async || {
        let class =
            world.scene.now().events.values().find(|event| event.reason.as_deref() == Some("OrphanKept")).cloned();
        class.and_then(|event| event.message)
    })
    .await;
    assert!(told.contains("Grant the right to list machineclasses.machine.sapcloud.io in all namespaces"), "{told}");
    assert!(told.contains("(machine of-others)"), "{told}");
    assert!(world.cloud.provider_ids().await.contains_key("of-others"));
    drop(manager);
}
