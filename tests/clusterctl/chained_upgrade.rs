//! Kubernetes is upgraded over two minor versions: control plane, workers and a pool, each VM with the image of its version.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    scene::{Scene, documents, name_of},
    static_pods::{StaticPods, add_etcd, with_external_etcd},
    world::{World, play_since},
};

const FIRST: &str = "v1.36.0";
const NEXT: &str = "v1.37.0";
const LAST: &str = "v1.38.0";
const VERSIONS: [&str; 3] = [FIRST, NEXT, LAST];
const CONTROL_PLANE: usize = 3;
const WORKERS: usize = 2;
const POOL: usize = 2;

fn image(version: &str) -> String {
    format!("kubelet-{version}")
}

/// The Cluster of the first version, and the class of the release for three versions.
fn objects(scene: &Scene) -> Value {
    let mut all = documents(&scene.generate_version("topology", FIRST, WORKERS, &[]));
    for object in &mut all {
        match object["kind"].as_str().unwrap() {
            "Cluster" => {
                let topology = &mut object["spec"]["topology"];
                assert_eq!(topology["version"], FIRST);
                topology["controlPlane"]["replicas"] = json!(CONTROL_PLANE);
                let pools = json!([{"class": "default-pool", "name": "mp-0", "replicas": POOL}]);
                topology["workers"]["machinePools"] = pools;
            }
            "ClusterClass" => object["spec"]["kubernetesVersions"] = json!(VERSIONS),
            _ => {}
        }
    }
    let all: Vec<Value> = all.into_iter().map(with_external_etcd).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": all})
}

/// Adds the images of the next versions, which changes no template.
async fn add_images(scene: &Scene) {
    let images: BTreeMap<&str, String> = VERSIONS.iter().map(|version| (*version, image(version))).collect();
    let cluster = scene.get("cluster", &scene.name);
    let variables = cluster["spec"]["topology"]["variables"].as_array().unwrap();
    let place = variables.iter().position(|variable| variable["name"] == "images").unwrap();
    let path = format!("/spec/topology/variables/{place}/value");
    let change = json!([{"op": "replace", "path": path, "value": images}]).to_string();
    let infrastructure = || -> BTreeSet<String> {
        scene.all("mcmmachinetemplate").iter().map(|template| name_of(template).to_owned()).collect()
    };
    let before = infrastructure();
    scene.kubectl(&["patch", "cluster", &scene.name, "--type=json", "-p", &change]);
    scene.until("the topology to have the images", async || is_reconciled(scene)).await;
    assert_eq!(infrastructure(), before, "an image of another version replaces no machine");
}

/// Core has applied the last change of the topology.
fn is_reconciled(scene: &Scene) -> Option<()> {
    let cluster = scene.get("cluster", &scene.name);
    let all = cluster["status"]["conditions"].as_array()?;
    let reconciled = all.iter().find(|one| one["type"] == "TopologyReconciled")?;
    let is_seen = reconciled["observedGeneration"] == cluster["metadata"]["generation"];
    (is_seen && reconciled["status"] == "True").then_some(())
}

/// The part of the cluster that a machine belongs to.
pub fn part(scene: &Scene, machine: &str) -> &'static str {
    let rest = machine.strip_prefix(&format!("{}-", scene.name)).unwrap();
    ["md-0", "mp-0"].into_iter().find(|part| rest.starts_with(part)).unwrap_or("control plane")
}

/// The versions of all VMs that exist, and those that there were.
#[derive(Default)]
struct UpgradeRecord {
    /// Version by machine.
    now: BTreeMap<String, String>,
    /// All machines that ever had a VM, by part and version.
    seen: BTreeMap<(&'static str, String), BTreeSet<String>>,
}

impl UpgradeRecord {
    /// Reads all VMs. Each has the image of its version, kubelets are never newer than the control plane, and the control plane
    /// spans two minor versions at most.
    fn look(&mut self, scene: &Scene) {
        self.now.clear();
        for machine in scene.all("machines.cluster.x-k8s.io") {
            let (name, version) = (name_of(&machine), machine["spec"]["version"].as_str().unwrap());
            if let Some(vm) = scene.find("mcmmachine", name) {
                assert_eq!(vm["spec"]["machineClass"]["providerSpec"]["image"], image(version), "{name}");
                self.add(scene, name, version);
            }
        }
        for machine in scene.selected("machines.machine.sapcloud.io", "machine.mcm/pool") {
            let class = scene.find("machineclass", machine["spec"]["class"]["name"].as_str().unwrap());
            let Some(class) = class else { continue };
            let image = class["providerSpec"]["image"].as_str().unwrap().to_owned();
            self.add(scene, name_of(&machine), image.strip_prefix("kubelet-").unwrap());
        }
        for node in scene.nodes() {
            let kubelet = &node["status"]["nodeInfo"]["kubeletVersion"];
            if let Some(version) = self.now.get(name_of(&node)) {
                assert_eq!(kubelet, version, "{}", name_of(&node));
            }
        }
        let of_control_plane = |name: &String| part(scene, name) == "control plane";
        let (control_plane, workers): (Vec<_>, Vec<_>) = self.now.iter().partition(|(name, _)| of_control_plane(name));
        let versions: BTreeSet<&String> = control_plane.iter().map(|(_, version)| *version).collect();
        assert!(versions.len() <= 2 && !(versions.contains(&FIRST.to_owned()) && versions.contains(&LAST.to_owned())));
        let oldest = versions.first();
        for (name, version) in workers {
            assert!(oldest.is_none_or(|oldest| version <= *oldest), "{name} has {version}: {:?}", self.now);
        }
    }

    fn add(&mut self, scene: &Scene, name: &str, version: &str) {
        self.now.insert(name.to_owned(), version.to_owned());
        self.seen.entry((part(scene, name), version.to_owned())).or_default().insert(name.to_owned());
    }

    /// The machines of a part have this version, and there are so many.
    fn has(&self, scene: &Scene, wanted: &str, count: usize, version: &str) -> bool {
        let own: Vec<_> = self.now.iter().filter(|(name, _)| part(scene, name) == wanted).collect();
        own.len() == count && own.iter().all(|(_, own)| *own == version)
    }

    /// How many machines of a part ever had a version.
    fn count(&self, part: &'static str, version: &str) -> usize {
        self.seen.get(&(part, version.to_owned())).map_or(0, BTreeSet::len)
    }
}

#[test]
fn control_plane_workers_and_a_pool_are_upgraded_over_two_versions_with_their_images() {
    // Earlier ones have no versions in the ClusterClass.
    play_since(12, async |world: &'static World| {
        let scene = Scene::with_authority(world, "chained").await;
        add_etcd(&scene);
        let own = scene.name.clone();
        let _pods = StaticPods::run(&scene, move |node| {
            let name = node.name_any();
            name.starts_with(&format!("{own}-")) && !name.contains("-md-0-") && !name.contains("-mp-0-")
        });
        world.apply(&objects(&scene));
        let mut record = UpgradeRecord::default();
        let has_all = |record: &mut UpgradeRecord, version: &str| {
            record.look(&scene);
            let parts = [("control plane", CONTROL_PLANE), ("md-0", WORKERS), ("mp-0", POOL)];
            parts.into_iter().all(|(part, count)| record.has(&scene, part, count, version)).then_some(())
        };
        scene.until("all machines of the first version", async || has_all(&mut record, FIRST)).await;
        scene.until("their Nodes", async || scene.has_running(CONTROL_PLANE + WORKERS)).await;

        add_images(&scene).await;
        let change = json!({"spec": {"topology": {"version": LAST}}}).to_string();
        scene.kubectl(&["patch", "cluster", &scene.name, "--type=merge", "-p", &change]);
        scene
            .until("the control plane to have the next version", async || {
                record.look(&scene);
                record.has(&scene, "control plane", CONTROL_PLANE, NEXT).then_some(())
            })
            .await;
        scene
            .until("the control plane to have the last version", async || {
                record.look(&scene);
                record.has(&scene, "control plane", CONTROL_PLANE, LAST).then_some(())
            })
            .await;
        scene.until("all machines of the last version", async || has_all(&mut record, LAST)).await;
        scene.until("their Nodes", async || scene.has_running(CONTROL_PLANE + WORKERS)).await;

        for version in VERSIONS {
            assert_eq!(record.count("control plane", version), CONTROL_PLANE, "{:?}", record.seen);
        }
        let count = |part| [FIRST, LAST].map(|version| record.count(part, version));
        assert_eq!(count("md-0"), [WORKERS; 2], "each machine is replaced once: {:?}", record.seen);
        // Core changes the MCMMachinePool before the MachinePool, so a machine of the surge may have the new image and the old version.
        let [first, last] = count("mp-0");
        assert!(first == POOL && (POOL..=POOL + 1).contains(&last), "{:?}", record.seen);
        scene.until("the topology to be reconciled", async || is_reconciled(&scene)).await;
        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=600s"]);
        assert!(scene.vms().await.is_empty());
    });
}
