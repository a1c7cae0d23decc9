//! VMs that no machine has, with the permissions of `config/standalone/control.yaml`.

use std::{collections::BTreeSet, path::Path, time::Duration};

use k8s_openapi::api::core::v1::Event;
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use crate::support::{control_plane::ControlPlane, identity::Rights, objects, pods, program, wait, world::World};

/// The shortest times: lists are a minute apart.
const SOON: [&str; 3] = [
    "--machine-safety-orphan-vms-period=1m",
    "--machine-safety-orphan-vms-minimum-age=1m",
    "--machine-creation-timeout=20s",
];
/// Three lists, and a drain.
const SOME_LISTS: Duration = Duration::from_secs(360);
/// Lists of the collector while the VMs of the Go program must stay.
const PERIODS: u64 = 3;

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

/// With the roles of `config/standalone`, which the chart grants as well, and with those of the drop-in.
#[tokio::test]
async fn a_go_program_in_another_namespace_with_the_same_tag_keeps_its_vms() {
    let Some(go) = tokio::task::spawn_blocking(program::reference).await.unwrap() else {
        eprintln!("skipped: the Go programs are built from a Go module: install Go");
        return;
    };
    tokio::join!(shares_a_tag_with_go(Rights::Standalone, &go), shares_a_tag_with_go(Rights::DropIn, &go));
}

async fn shares_a_tag_with_go(rights: Rights, go: &Path) {
    let control = ControlPlane::shared().await;
    let ours = World::between_with(rights, control, control, "beside-go").await;
    let mut theirs = World::between_with(Rights::DropIn, control, control, "of-go").await;
    theirs.environment = vec![
        ("SIMULATED_CLOUD".to_owned(), ours.cloud.url.clone()),
        ("SIMULATED_CLUSTER".to_owned(), ours.namespace.clone()),
    ];
    theirs.may_be_refused = true;
    // The Go program lists VMs when it starts, and then every 15 minutes: it would delete ours.
    let mut managers = Vec::new();
    for program in ["machine-controller-manager", "machine-controller"] {
        managers.push(theirs.launch_as(&go.join(program), &[], &format!("{program}.log"), &["--leader-elect=false"]));
    }
    theirs.pool(2, json!({})).await;
    theirs.settled(2, "small").await;
    let of_go = theirs.scene.now().names();

    let _manager = ours.run(&SOON).await;
    ours.pool(1, json!({})).await;
    ours.settled(1, "small").await;
    let before = ours.cloud.count("/calls/list/total").await;
    wait::until_within(SOME_LISTS, "some lists", async || {
        (ours.cloud.count("/calls/list/total").await >= before + PERIODS).then_some(())
    })
    .await;
    let of_class = ours.scene.find("the event", SOME_LISTS, |scene| {
        let kept = |event: &&Event| event.reason.as_deref() == Some("OrphanKept");
        scene.events.values().find(kept).and_then(|event| event.message.clone())
    });
    let told = of_class.await;
    assert!(told.contains("Grant the right to list machineclasses.machine.sapcloud.io in all namespaces"), "{told}");
    assert!(of_go.iter().any(|machine| told.contains(machine)), "{told} names none of {of_go:?}");
    assert_eq!(theirs.scene.now().uids().len(), 2, "the Go program replaced none");
    assert!(theirs.scene.now().settled(2, "small"));
    assert!(ours.scene.now().settled(1, "small"));
    let alive = &of_go | &ours.scene.now().names();
    assert_eq!(ours.cloud.provider_ids().await.into_keys().collect::<BTreeSet<_>>(), alive);
    drop(managers);
}
