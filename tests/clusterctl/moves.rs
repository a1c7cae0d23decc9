//! 9.6: `clusterctl move`, there and back. The cloud must not notice.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Stdio,
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    scene::{Scene, name_of},
    world::{World, play},
};

const WORKERS: usize = 10;

/// The same cluster as another management cluster has it.
pub fn seen_from(world: &'static World, scene: &Scene) -> Scene {
    Scene::bare(world, scene.namespace.clone(), &scene.name)
}

/// Changes in the cloud's journal since then to VMs of this cluster: created, deleted, or changed.
pub fn journal_of(scene: &Scene, before: &BTreeSet<String>, ids: &[String]) -> Vec<String> {
    let prefix = format!("\"{}-", scene.name);
    let concerns = |entry: &String| entry.contains(&prefix) || ids.iter().any(|id| entry.contains(id));
    journal_so_far(scene).into_iter().filter(|entry| !before.contains(entry) && concerns(entry)).collect()
}

/// The journal of the cloud. It is compacted from time to time, so positions in the file mean nothing.
pub fn journal_so_far(scene: &Scene) -> BTreeSet<String> {
    let text = std::fs::read_to_string(&scene.world.cloud.journal).unwrap();
    // The last line may be incomplete.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Map<String, Value>>(line).ok());
    lines.flatten().map(|(what, value)| format!("{what}: {value}")).collect()
}

/// IDs of the VMs of a cluster in the cloud.
pub async fn ids(scene: &Scene) -> Vec<String> {
    let prefix = format!("{}-", scene.name);
    let own = |vm: &Value| vm["machineName"].as_str().is_some_and(|name| name.starts_with(&prefix));
    let vms = scene.world.cloud.vms().await;
    vms.iter().filter(|vm| own(vm)).map(|vm| vm["id"].as_str().unwrap().to_owned()).collect()
}

/// UIDs of the Nodes of a cluster.
pub fn nodes(scene: &Scene) -> BTreeMap<String, String> {
    let uid = |node: &Value| node["metadata"]["uid"].as_str().unwrap().to_owned();
    scene.nodes().iter().map(|node| (name_of(node).to_owned(), uid(node))).collect()
}

/// A Cluster with Machines, and a pool of as many VMs.
pub async fn with_machines_and_pool(world: &'static World, name: &str, count: usize) -> Scene {
    let scene = Scene::with_workers(world, name, count).await;
    apply_pool(&scene, &scene.generate("fixed-pool", count));
    is_complete(&scene, count).await;
    scene
}

/// The same with a pool of a class that other pools share, with a Secret.
async fn with_shared_class(world: &'static World, name: &str) -> Scene {
    let scene = Scene::with_workers(world, name, WORKERS).await;
    let pool = scene.generate("fixed-pool", WORKERS);
    let mut pools = serde_yaml_ng::Deserializer::from_str(&pool).map(|one| Value::deserialize(one).unwrap());
    let object = pools.find(|object| object["kind"] == "MCMMachinePool").unwrap();
    let metadata = json!({
        "name": "shared", "namespace": scene.namespace, "labels": {"clusterctl.cluster.x-k8s.io/move": ""},
    });
    let secret = json!({"name": "shared", "namespace": scene.namespace});
    world.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {}}));
    let mut class = object["spec"]["machineClass"].clone();
    class["apiVersion"] = json!("machine.sapcloud.io/v1alpha1");
    class["kind"] = json!("MachineClass");
    class["metadata"] = metadata;
    class["credentialsSecretRef"] = secret;
    world.apply(&class);
    let (before, after) = (pool.find("  machineClass:").unwrap(), pool.find("  strategy:").unwrap());
    let pool = format!("{}  machineClassRef: {{name: shared}}\n{}", &pool[..before], &pool[after..]);
    apply_pool(&scene, &pool);
    is_complete(&scene, WORKERS).await;
    scene
}

/// Applies the two objects of the pool in the output of `clusterctl generate cluster`.
pub fn apply_pool(scene: &Scene, text: &str) {
    let pool: Vec<&str> = text.split("---\n").filter(|object| object.contains("MachinePool\n")).collect();
    assert_eq!(pool.len(), 2);
    scene.world.kubectl_with(&["apply", "-f", "-"], &pool.join("---\n"));
}

pub async fn is_complete(scene: &Scene, count: usize) {
    scene.until("all Machines", async || scene.has_running(count)).await;
    scene.until("the pool", async || scene.has_pool_of(count)).await;
}

/// Arguments of a move.
pub fn words<'a>(from: &'a Scene, to: &'a str) -> [&'a str; 5] {
    ["move", "--to-kubeconfig", to, "--namespace", &from.namespace]
}

fn move_to(from: &Scene, to: &Scene) {
    let kubeconfig = to.world.management.kubeconfig().display().to_string();
    from.world.must(&words(from, &kubeconfig));
    // Status does not move, and the control plane has no controller.
    to.initialize();
}

/// Nothing of the cluster is left there.
pub async fn is_gone_from(scene: &Scene) {
    let kinds = [
        "cluster",
        "mcmcluster",
        "mcmmachine",
        "mcmmachinepool",
        "machines.machine.sapcloud.io",
        "machinesets.machine.sapcloud.io",
        "machinedeployments.machine.sapcloud.io",
    ];
    scene
        .until("the source to be empty", async || kinds.iter().all(|kind| scene.all(kind).is_empty()).then_some(()))
        .await;
}

/// MV1 to MV5, Z4, Z5, T9, T10, T11: 20 machines, there and back: no VM is created, none is deleted, no Node changes.
#[test]
fn a_cluster_moves_there_and_back_and_the_cloud_does_not_notice() {
    play(async |world: &'static World| {
        let here = with_machines_and_pool(world, "moved", WORKERS).await;
        let there = seen_from(world.another().await, &here);
        let kubeconfig = there.world.management.kubeconfig().display().to_string();
        let dry_run = world.clusterctl(&[&words(&here, &kubeconfig)[..], &["--dry-run", "-v5"]].concat());
        let listed = String::from_utf8_lossy(&dry_run.stderr);
        for native in [
            "MachineDeployment=\"moved-mp-0\"",
            "MachineSet=\"moved-mp-0-",
            "Machine=\"moved-mp-0-",
            "MachineClass=\"moved-mp-0-",
        ] {
            assert!(listed.contains(&format!("Creating {native}")), "MV1: {native} in {listed}");
        }
        let (before, ids, nodes_before, from) =
            (here.vms().await, ids(&here).await, nodes(&here), journal_so_far(&here));
        assert_eq!((before.len(), nodes_before.len()), (2 * WORKERS, 2 * WORKERS));

        move_to(&here, &there);
        is_complete(&there, WORKERS).await;
        is_gone_from(&here).await;
        assert_eq!((there.vms().await, nodes(&there)), (before.clone(), nodes_before.clone()));
        move_to(&there, &here);
        is_complete(&here, WORKERS).await;
        is_gone_from(&there).await;
        assert_eq!((here.vms().await, nodes(&here)), (before, nodes_before));
        assert_eq!(journal_of(&here, &from, &ids), [""; 0], "the cloud noticed");

        // It is alive: machines come and go again.
        here.scale(WORKERS + 1);
        here.until("one more Machine", async || here.has_running(WORKERS + 1)).await;
        here.kubectl(&["delete", "cluster", "moved", "--timeout=600s"]);
        assert!(here.vms().await.is_empty());
    });
}

/// MV2, T23: the same with a shared class, while our managers die: at the source when the Cluster is paused, at the target when its objects arrive.
#[test]
fn a_move_survives_the_death_of_both_managers() {
    play(async |world: &'static World| {
        let here = with_shared_class(world, "mortal").await;
        let there = seen_from(world.another().await, &here);
        let (before, ids, nodes_before, from) =
            (here.vms().await, ids(&here).await, nodes(&here), journal_so_far(&here));
        let kubeconfig = there.world.management.kubeconfig().display().to_string();
        let mut command = world.command(&words(&here, &kubeconfig));
        let mut moving = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        here.until("the Cluster to be paused", async || {
            (here.find("cluster", "mortal")?["spec"]["paused"] == true).then_some(())
        })
        .await;
        here.world.kill_provider();
        there.until("objects to arrive", async || there.find("mcmcluster", "mortal").map(drop)).await;
        there.world.kill_provider();
        let moved = here.until("the move to end", async || moving.try_wait().unwrap()).await;
        assert!(moved.success());
        there.initialize();
        is_complete(&there, WORKERS).await;
        is_gone_from(&here).await;
        assert_eq!((there.vms().await, nodes(&there)), (before, nodes_before));
        assert_eq!(journal_of(&there, &from, &ids), [""; 0], "the cloud noticed");
        there.kubectl(&["delete", "cluster", "mortal", "--timeout=600s"]);
        assert!(there.vms().await.is_empty());
    });
}

/// MV6: a move that begins while a VM of a pool is in the making waits until its ID is stored. At the target another UID would
/// lead to a second VM.
#[test]
fn mv6_a_move_waits_for_a_vm_in_the_making() {
    play(async |world: &'static World| {
        // The first VM of the pool: clusterctl fails if a listed object is deleted before the pause, as in a rollout.
        let here = Scene::with_workers(world, "making", 0).await;
        let (spec, slow) = ("providerSpec:\n", "providerSpec:\n      createLatency: 20s\n");
        let pool = here.generate("fixed-pool", 1);
        assert!(pool.contains(spec));
        let there = seen_from(world.another().await, &here);
        apply_pool(&here, &pool.replace(spec, slow));
        let is_new = |machine: &Value| machine["spec"]["providerID"].as_str().unwrap_or_default().is_empty();
        let new = here
            .until("an MCM Machine whose VM is in the making", async || {
                let is_begun = !ids(&here).await.is_empty();
                here.all("machines.machine.sapcloud.io").into_iter().find(is_new).filter(|_| is_begun)
            })
            .await;
        let mark = "clusterctl.cluster.x-k8s.io/block-move";
        assert_eq!(new["metadata"]["annotations"][mark], "");
        let name = new["metadata"]["name"].as_str().unwrap();
        move_to(&here, &there);
        let moved = there.get("machines.machine.sapcloud.io", name);
        assert!(!is_new(&moved), "its ID was stored before it was moved: {moved}");
        assert!(moved["metadata"]["annotations"][mark].is_null());
        is_gone_from(&here).await;
        there.until("the pool", async || there.has_pool_of(1)).await;
        let vms = there.vms().await;
        assert_eq!(vms.iter().map(|(name, ids)| (name.as_str(), ids.len())).collect::<Vec<_>>(), [(name, 1)]);
        there.kubectl(&["delete", "cluster", "making", "--timeout=600s"]);
        assert!(there.vms().await.is_empty());
    });
}
