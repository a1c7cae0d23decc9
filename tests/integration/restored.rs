//! An older state of etcd is restored: VMs that serve have no Machine, and Machines have no VM.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::{
    drain::{Kubelet, budget},
    support::{
        control_plane::ControlPlane,
        identity::Rights,
        pods,
        scene::{Scene, Watched},
        wait,
        world::World,
    },
};

/// The shortest times of the orphan collector, and a short patience with machines that have no VM.
const SOON: [&str; 4] = [
    "--machine-health-timeout=40s",
    "--machine-safety-orphan-vms-period=1m",
    "--machine-safety-orphan-vms-minimum-age=1m",
    "--machine-creation-timeout=20s",
];
const REPLICAS: usize = 2;
/// Some lists and a drain for each VM that serves.
const LIMIT: Duration = Duration::from_secs(900);
/// A Node may have our finalizer for so long after its VM has ended.
const FINALIZER_LIMIT: Duration = Duration::from_secs(60);

/// With the CRDs and the rights of this project, and with those of the Go programs: a world refuses to end if a request of
/// the manager was denied. Both wait most of the time, so they run beside each other.
#[tokio::test]
async fn vms_that_serve_are_drained_one_by_one_and_the_pool_keeps_its_replicas() {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("skipped: the CRDs of the Go programs are in a Go module: install Go");
        return restore(Rights::Standalone).await;
    }
    tokio::join!(restore(Rights::Standalone), restore(Rights::Reference));
}

async fn restore(rights: Rights) {
    let control = ControlPlane::apart().await.unwrap();
    let control = match rights {
        Rights::Reference => control.install_reference().await.unwrap(),
        Rights::Standalone | Rights::DropIn => control.install().await.unwrap(),
    };
    let target = ControlPlane::apart().await.unwrap();
    let (mut etcd, mut api_server) = (control.part("etcd"), control.part("kube-apiserver"));
    let [state, copy] = ["etcd", "etcd-copy"].map(|name| control.folder().join(name));
    let mut world = World::between_with(rights, &control, &target, "restored").await;

    let manager = world.run(&SOON).await;
    world.pool(REPLICAS as u32, json!({})).await;
    world.settled(REPLICAS, "small").await;
    drop(manager);
    etcd.kill().await;
    copy_folder(&state, &copy);
    etcd.start().await;

    let manager = world.run(&SOON).await;
    world.roll("large").await;
    world.settled(REPLICAS, "large").await;
    drop(manager);
    let serving = world.scene.now().names();
    for name in &serving {
        pods::run(&world.target, &world.namespace, pods::pod(&format!("on-{name}"), name)).await;
    }
    budget(&world, 1, 1).await;
    let kubelet = Kubelet::start(&world, true);

    api_server.kill().await;
    etcd.kill().await;
    fs::remove_dir_all(&state).unwrap();
    copy_folder(&copy, &state);
    etcd.start_alone();
    api_server.start().await;
    // A watch that goes on waits for versions that are lost.
    world.scene = Watched::start(&world.client, &world.target, &world.namespace);
    let is_seen = |scene: &Scene| scene.names().len() == REPLICAS && ready_nodes(scene) == REPLICAS;
    world.until("the machines of the copy, and the Nodes that serve", is_seen).await;
    let restored = world.scene.now().names();
    assert!(restored.is_disjoint(&serving), "{restored:?} and {serving:?}");
    world
        .scene
        .always("as many Nodes are ready as there are replicas, but one", |scene| ready_nodes(scene) + 1 >= REPLICAS);

    let _manager = world.run(&SOON).await;
    let mut gone: Vec<(String, Instant)> = Vec::new();
    wait::until_within(LIMIT, "the VMs that have no machine to be gone", async || {
        let vms: BTreeSet<String> = world.cloud.provider_ids().await.into_keys().collect();
        for name in serving.difference(&vms) {
            if gone.iter().all(|(known, _)| known != name) {
                gone.push((name.clone(), Instant::now()));
            }
        }
        let scene = world.scene.now();
        for (name, since) in &gone {
            let is_stuck = scene.nodes.contains_key(name) && since.elapsed() > FINALIZER_LIMIT;
            assert!(!is_stuck, "Node {name} is there a minute after its VM has ended");
        }
        (gone.len() == serving.len() && serving.iter().all(|name| !scene.nodes.contains_key(name))).then_some(())
    })
    .await;
    world.settled(REPLICAS, "small").await;
    assert_eq!(world.scene.broken(), [""; 0]);
    assert_eq!(pods::all(&world.target, &world.namespace).await.len(), 0, "every pod was evicted");
    assert_eq!(kubelet.most_at_once(), 1, "pods that were evicted at the same time under the budget");
    assert_eq!(world.cloud.count("/alive").await, REPLICAS as u64);
    world.assert_vms_match().await;
}

fn ready_nodes(scene: &Scene) -> usize {
    let is_ready = |node: &&Node| {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.filter(|one| one.type_ == "Ready").any(|one| one.status == "True")
    };
    scene.nodes.values().filter(is_ready).count()
}

fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success(), "{} is not copied", from.display());
}
