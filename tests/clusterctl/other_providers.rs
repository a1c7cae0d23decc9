//! 4.4, paths B and E: core keeps 20 machines while their infrastructure provider changes, there and back. Neither cloud nor
//! core notices, wherever the command dies.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    adopt::Adoption,
    moves::{ids, journal_of, journal_so_far, nodes},
    other_provider::OtherProvider,
    scene::{Scene, name_of},
    world::{World, play},
};

const MACHINES: usize = 20;
/// Objects of core, which stay.
const OF_CORE: [&str; 3] =
    ["machinedeployments.cluster.x-k8s.io", "machinesets.cluster.x-k8s.io", "machines.cluster.x-k8s.io"];

/// A cluster with machines of the other provider. Their class exists.
async fn with_machines_of_other(world: &'static World, name: &str, machines: usize) -> (Scene, OtherProvider) {
    let scene = Scene::new(world, name).await;
    let other = OtherProvider::start(&scene).await;
    let text = scene.generate("fixed", machines);
    for object in serde_yaml_ng::Deserializer::from_str(&text).map(|one| Value::deserialize(one).unwrap()) {
        for object in of_other(object) {
            world.apply(&object);
        }
    }
    let ready = json!({"status": {"ready": true}}).to_string();
    scene.kubectl(&["patch", "awscluster", name, "--subresource=status", "--type=merge", "-p", &ready]);
    scene.initialize();
    scene.until("all Machines to run", async || scene.has_running(machines)).await;
    (scene, other)
}

/// An object of the flavour, with the other provider in place of mcm.
fn of_other(mut object: Value) -> Vec<Value> {
    let metadata = object["metadata"].clone();
    let (group, name) = ("infrastructure.cluster.x-k8s.io/v1beta2", metadata["name"].clone());
    match object["kind"].as_str().unwrap() {
        "Cluster" => object["spec"]["infrastructureRef"]["kind"] = json!("AWSCluster"),
        "MachineDeployment" => {
            object["spec"]["template"]["spec"]["infrastructureRef"]["kind"] = json!("AWSMachineTemplate");
        }
        "MCMCluster" => {
            let spec = json!({"region": "simulated"});
            return vec![json!({"apiVersion": group, "kind": "AWSCluster", "metadata": metadata, "spec": spec})];
        }
        "MCMMachineTemplate" => {
            let spec = json!({"template": {"spec": {"instanceType": "m5.large"}}});
            let template =
                json!({"apiVersion": group, "kind": "AWSMachineTemplate", "metadata": metadata, "spec": spec});
            let mut class = object["spec"]["template"]["spec"]["machineClass"].clone();
            class["apiVersion"] = json!("machine.sapcloud.io/v1alpha1");
            class["kind"] = json!("MachineClass");
            class["metadata"] = json!({"name": name, "namespace": metadata["namespace"]});
            return vec![template, class];
        }
        _ => {}
    }
    vec![object]
}

/// State that must not change: VMs, Nodes since the same boot, and the objects of core.
#[derive(Debug, PartialEq)]
struct Essence {
    vms: BTreeMap<String, Vec<String>>,
    nodes: BTreeMap<String, String>,
    boots: BTreeMap<String, String>,
    of_core: BTreeMap<String, String>,
}

async fn essence(adoption: &Adoption) -> Essence {
    let scene = &adoption.scene;
    let all = OF_CORE.iter().flat_map(|kind| scene.all(kind));
    let uid = |one: &Value| one["metadata"]["uid"].as_str().unwrap().to_owned();
    let of_core = all.map(|one| (format!("{} {}", one["kind"].as_str().unwrap(), name_of(&one)), uid(&one))).collect();
    Essence { vms: scene.vms().await, nodes: nodes(scene), boots: adoption.boots(), of_core }
}

/// VMs that came or went. Tags may change.
fn lost_or_doubled(scene: &Scene, from: &BTreeSet<String>, ids: &[String]) -> Vec<String> {
    let all = journal_of(scene, from, ids);
    let is_change = |entry: &String| ids.iter().any(|id| entry.contains(&format!("\"id\":\"{id}\"")));
    all.into_iter().filter(|entry| !is_change(entry)).collect()
}

/// PA3, PA4, I15, T1: SIGKILL in every step and after the first write of every sort, there and back.
#[test]
fn machines_of_another_provider_come_to_mcm_and_return_and_nobody_notices() {
    play(async |world: &'static World| {
        let (scene, other) = with_machines_of_other(world, "foreign", MACHINES).await;
        let adoption = Adoption::beside(scene).await;
        let scene = &adoption.scene;
        let (before, ids, from, deeds) =
            (essence(&adoption).await, ids(scene).await, journal_so_far(scene), other.deeds());
        assert_eq!(
            (before.nodes.len(), ids.len(), before.of_core.len(), deeds.len()),
            (MACHINES, MACHINES, MACHINES + 2, MACHINES)
        );
        let plan = adoption.must(&["plan", "--from", "other", "--to", "capi"]);
        assert!(
            plan.contains("every check passed") && plan.contains("switch the references to the MCMMachines"),
            "{plan}"
        );

        let killed = adoption.apply_with_kills(&["--from", "other", "--to", "capi"]);
        assert!(killed.len() >= 12, "{killed:#?}");
        assert_eq!(essence(&adoption).await, before, "after the way there");
        assert!(scene.all("awsmachines").is_empty());
        assert_eq!(adoption.names(&["mcmmachines", "machines.machine.sapcloud.io"]).len(), 2 * MACHINES);
        scene.until("the Cluster to be Available", async || scene.is_available()).await;

        let killed = adoption.apply_with_kills(&["--from", "capi", "--to", "other"]);
        assert!(killed.len() >= 12, "{killed:#?}");
        assert_eq!(essence(&adoption).await, before, "after the way back");
        assert_eq!(scene.all("awsmachines").len(), MACHINES);
        assert_eq!(adoption.names(&["mcmmachines", "machines.machine.sapcloud.io"]), [""; 0]);
        assert_eq!(other.deeds(), deeds, "the other provider made or deleted a VM");
        assert_eq!(lost_or_doubled(scene, &from, &ids), [""; 0], "the cloud noticed");
        adoption.found_no_orphans();

        // It works: the other provider creates one more, and deletes them all.
        scene.scale(MACHINES + 1);
        scene.until("one more Machine", async || scene.has_running(MACHINES + 1)).await;
        scene.kubectl(&["delete", "cluster", "foreign", "--timeout=600s"]);
        assert!(scene.vms().await.is_empty());
    });
}

/// 4.3, path C: a running migration is undone, a failed check changes nothing, and by way of mcm machines become native
/// ones.
#[test]
fn a_migration_between_providers_is_undone_and_continued_to_native() {
    play(async |world: &'static World| {
        let (scene, other) = with_machines_of_other(world, "borrowed", 2).await;
        let adoption = Adoption::beside(scene).await;
        let scene = &adoption.scene;
        let (before, deeds) = (essence(&adoption).await, other.deeds());

        let both = adoption.run(&["plan", "--from", "other", "--to", "native"]);
        assert!(String::from_utf8_lossy(&both.stderr).contains("this takes two migrations"), "{both:?}");
        let label =
            |change: &str| scene.kubectl(&["label", "machinedeployment.cluster.x-k8s.io/borrowed-md-0", change]);
        label("topology.cluster.x-k8s.io/owned=");
        let refused = adoption.run(&["apply", "--from", "other", "--to", "capi"]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && error.contains("belongs to a ClusterClass"), "{error}");
        assert!(scene.all("mcmmigrations").is_empty() && scene.all("mcmmachines").is_empty(), "nothing was begun");
        label("topology.cluster.x-k8s.io/owned-");

        adoption.stop_at(&["--from", "other", "--to", "capi"], "switch the references to the MCMMachines");
        assert_eq!(scene.all("mcmmachines").len(), 2);
        adoption.must(&["abort", "--timeout=600s"]);
        assert_eq!(essence(&adoption).await, before);
        assert!(scene.all("mcmmachines").is_empty());
        assert_eq!(scene.all("mcmmigrations")[0]["status"]["authority"], "OtherProvider");
        scene.until("all Machines to run", async || scene.has_running(2)).await;

        adoption.must(&["apply", "--from", "other", "--to", "capi", "--timeout=600s"]);
        assert_eq!(essence(&adoption).await, before);
        adoption.must(&["apply", "--from", "capi", "--to", "native", "--timeout=600s"]);
        assert_eq!((scene.vms().await, nodes(scene)), (before.vms, before.nodes));
        adoption.must(&["apply", "--from", "native", "--to", "capi", "--timeout=600s"]);
        scene.until("all Machines to run", async || scene.has_running(2)).await;
        assert_eq!(other.deeds(), deeds);
        adoption.found_no_orphans();
        scene.kubectl(&["delete", "cluster", "borrowed", "--timeout=600s"]);
        assert!(scene.vms().await.is_empty());
    });
}
