//! MachinePools: rolled by the native controllers, shown to core.

use serde_json::{Value, json};

use crate::{
    scene::{Scene, condition, name_of},
    world::{World, play},
};

/// Replaces the VMs of the pool by larger ones.
fn roll(scene: &Scene) {
    let change = r#"{"spec":{"machineClass":{"providerSpec":{"instanceType":"large"}}}}"#;
    let pool = format!("{}-mp-0", scene.name);
    scene.kubectl(&["patch", "mcmmachinepool", &pool, "--type=merge", "-p", change]);
}

fn scale(scene: &Scene, replicas: usize) {
    let pool = format!("machinepool/{}-mp-0", scene.name);
    scene.kubectl(&["scale", &pool, &format!("--replicas={replicas}")]);
}

/// P1 to P5, P7 to P11, T2: from the template to Nodes, more, fewer, other ones, none.
#[test]
fn a_pool_is_made_scaled_rolled_within_its_bounds_and_deleted() {
    play(async |world: &'static World| {
        let scene = Scene::with_pool(world, "pooled", 3).await;
        scene.until("three Nodes", async || scene.has_pool_of(3)).await;
        let pool = scene
            .until("the pool to be ready", async || {
                let pool = scene.get("mcmmachinepool", "pooled-mp-0");
                (condition(&pool, "Ready") == "True Provisioned").then_some(pool)
            })
            .await;
        assert_eq!(
            (&pool["status"]["ready"], &pool["status"]["initialization"]["provisioned"]),
            (&json!(true), &json!(true))
        );
        let owner = &pool["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["controller"]), (&json!("MachinePool"), &json!(true)));
        for node in scene.nodes() {
            assert!(pool["spec"]["providerIDList"].as_array().unwrap().contains(&node["spec"]["providerID"]));
        }
        let columns = scene.kubectl(&["get", "mcmmachinepool"]);
        assert!(columns.contains("pooled") && columns.contains("True"), "{columns}");

        scale(&scene, 4);
        scene.until("four Nodes", async || scene.has_pool_of(4)).await;
        let four = scene.vms().await;
        scale(&scene, 3);
        scene.until("three Nodes", async || scene.has_pool_of(3)).await;
        scene.until("the VM of the fourth to be gone", async || (scene.vms().await.len() == 3).then_some(())).await;
        let before = scene.vms().await;
        assert!(before.iter().all(|(name, ids)| four.get(name) == Some(ids)), "nobody was replaced");
        assert_eq!(scene.node_names(), before.keys().cloned().collect());

        roll(&scene);
        scene
            .until("all VMs to be new", async || {
                let deployment = scene.get("machinedeployments.machine.sapcloud.io", "pooled-mp-0");
                let available = deployment["status"]["availableReplicas"].as_i64().unwrap_or_default();
                assert!(available >= 3, "maxUnavailable 0: {available}");
                let vms = scene.vms().await;
                let alive = scene.all("machines.machine.sapcloud.io");
                let alive = alive.iter().filter(|machine| machine["metadata"]["deletionTimestamp"].is_null()).count();
                assert!(alive <= 4, "maxSurge 1: {alive} machines");
                // P10, T20: the Node of a VM that stays is never deleted.
                let pool = scene.get("mcmmachinepool", "pooled-mp-0");
                assert_eq!(pool["status"]["ready"], true, "P5");
                (vms.len() == 3 && vms.keys().all(|machine| !before.contains_key(machine))).then_some(())
            })
            .await;
        scene.until("three Nodes", async || scene.has_pool_of(3)).await;
        scene.until("no Node to be left of the old VMs", async || (scene.nodes().len() == 3).then_some(())).await;
        scene
            .until("the class of the old VMs to be gone", async || (scene.all("machineclass").len() == 1).then_some(()))
            .await;

        scale(&scene, 0);
        scene
            .until("no VM and no Node", async || {
                (scene.vms().await.is_empty() && scene.nodes().is_empty()).then_some(())
            })
            .await;
        scale(&scene, 2);
        scene.until("two Nodes", async || scene.has_pool_of(2)).await;

        scene.kubectl(&["delete", "machinepool", "pooled-mp-0", "--timeout=150s"]);
        assert!(scene.vms().await.is_empty() && scene.nodes().is_empty());
        for kind in ["mcmmachinepool", "machinedeployments.machine.sapcloud.io", "machines.machine.sapcloud.io"] {
            assert!(scene.all(kind).is_empty(), "{kind}");
        }
        scene.until("the class to be gone", async || scene.all("machineclass").is_empty().then_some(())).await;
    });
}

/// P12 to P15: core creates Machines for the VMs, and drains those being deleted.
#[test]
fn a_pool_with_machines_is_scaled_down_by_the_machine_that_somebody_chose() {
    play(async |world: &'static World| {
        let scene = Scene::new(world, "membered").await;
        let text = scene.generate("fixed-pool", 2);
        let enabled = text.replace("spec:\n  machineClass:", "spec:\n  machinePoolMachines: Enabled\n  machineClass:");
        assert_ne!(text, enabled);
        world.kubectl_with(&["apply", "-f", "-"], &enabled);
        scene.initialize();
        scene.until("two Machines", async || scene.has_running(2)).await;
        scene.until("two Nodes", async || scene.has_pool_of(2)).await;
        for member in scene.all("mcmmachine") {
            let owners = member["metadata"]["ownerReferences"].as_array().unwrap();
            let controllers: Vec<&Value> = owners.iter().filter(|owner| owner["controller"] == true).collect();
            assert_eq!(controllers.len(), 1, "{owners:?}");
            assert_eq!(controllers[0]["kind"], "Machine");
        }
        let chosen = scene.machines().swap_remove(0);
        let machine = format!("machine.cluster.x-k8s.io/{chosen}");
        scene.kubectl(&["annotate", &machine, "cluster.x-k8s.io/delete-machine=yes"]);
        scale(&scene, 1);
        scene.until("one Machine", async || scene.has_running(1)).await;
        assert!(!scene.machines().contains(&chosen));
        scene
            .until("its VM and its Node to be gone", async || {
                (!scene.vms().await.contains_key(&chosen) && !scene.node_names().contains(&chosen)).then_some(())
            })
            .await;
        let survivor = scene.machines().swap_remove(0);
        // A user deletes a Machine: it is replaced.
        scene.kubectl(&["delete", &format!("machine.cluster.x-k8s.io/{survivor}"), "--timeout=120s"]);
        scene.until("another Machine in its place", async || scene.has_running(1)).await;
        assert!(!scene.machines().contains(&survivor));
        roll(&scene);
        let before = scene.vms().await;
        scene
            .until("another VM", async || {
                let vms = scene.vms().await;
                (vms.len() == 1 && vms.keys().all(|machine| !before.contains_key(machine))).then_some(())
            })
            .await;
        scene.until("one Machine", async || scene.has_running(1)).await;
        scene.kubectl(&["delete", "cluster", "membered", "--timeout=150s"]);
        assert!(scene.vms().await.is_empty());
        no_node_is_held(&scene).await;
        assert!(scene.all("mcmmachine").is_empty() && scene.all("machines.machine.sapcloud.io").is_empty());
    });
}

/// No Node of the cluster has a finalizer, so that each can be deleted.
async fn no_node_is_held(scene: &Scene) {
    scene
        .until("no Node to have a finalizer", async || {
            let is_held = |node: &Value| node["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
            (!scene.nodes().iter().any(is_held)).then_some(())
        })
        .await;
}

/// The API server of a workload cluster may outlive its Cluster. Core, and mcm, leave the Nodes there.
#[test]
fn the_nodes_of_a_deleted_cluster_can_be_deleted() {
    play(async |world: &'static World| {
        let scene = Scene::with_pool(world, "outlived", 3).await;
        scene.until("three Nodes", async || scene.has_pool_of(3)).await;
        scene
            .until("their finalizers", async || {
                let held = scene.nodes().iter().filter(|node| node["metadata"]["finalizers"].is_array()).count();
                (held == 3).then_some(())
            })
            .await;
        scene.kubectl(&["delete", "cluster", "outlived", "--timeout=150s"]);
        assert!(scene.vms().await.is_empty());
        no_node_is_held(&scene).await;
    });
}

/// C14: a workload cluster that is away harms no other, and is deleted without its API server.
#[test]
fn a_pool_without_its_api_server_harms_no_other_and_goes_with_its_cluster() {
    play(async |world: &'static World| {
        let scene = Scene::with_pool(world, "lonely", 2).await;
        scene.until("two Nodes", async || scene.has_pool_of(2)).await;
        let nowhere = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
                       users: [{name: u}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
        let value = json!({"data": {"value": k8s_openapi::ByteString(nowhere.as_bytes().to_vec())}});
        scene.kubectl(&["patch", "secret", "lonely-kubeconfig", "--type=merge", "-p", &value.to_string()]);
        scene
            .until("the pool to say so", async || {
                let pool = scene.find("mcmmachinepool", "lonely-mp-0")?;
                (condition(&pool, "WorkloadClusterConnected") == "False NotConnected").then_some(())
            })
            .await;
        let other = Scene::with_pool(world, "sociable", 1).await;
        other.until("its Node", async || other.has_pool_of(1)).await;
        scale(&other, 2);
        other.until("two Nodes", async || other.has_pool_of(2)).await;
        assert_eq!(scene.vms().await.len(), 2, "and its own VMs live on");
        scene.kubectl(&["delete", "cluster", "lonely", "--timeout=150s"]);
        assert!(scene.vms().await.is_empty());
    });
}

/// Z3, Z4: a paused Cluster; a Node that is deleted meanwhile is replaced afterwards.
#[test]
fn a_pool_of_a_paused_cluster_stays_as_it_is() {
    play(async |world: &'static World| {
        let scene = Scene::with_pool(world, "resting", 2).await;
        scene.until("two Nodes", async || scene.has_pool_of(2)).await;
        let before = scene.vms().await;
        let pause = |is_paused: bool| {
            let change = json!({"spec": {"paused": is_paused}}).to_string();
            scene.kubectl(&["patch", "cluster", "resting", "--type=merge", "-p", &change])
        };
        pause(true);
        scene
            .until("the condition Paused", async || {
                let pool = scene.find("mcmmachinepool", "resting-mp-0")?;
                (condition(&pool, "Paused") == "True Paused").then_some(())
            })
            .await;
        roll(&scene);
        let deployment = "machinedeployments.machine.sapcloud.io/resting-mp-0";
        scene.kubectl(&["patch", deployment, "--type=merge", "-p", r#"{"spec":{"replicas":3}}"#]);
        let native = name_of(&scene.all("machines.machine.sapcloud.io")[0]).to_owned();
        scene.kubectl(&["delete", &format!("machines.machine.sapcloud.io/{native}"), "--wait=false"]);
        // Something that is not paused takes its whole course in the meantime.
        let other = Scene::with_pool(world, "awake", 1).await;
        other.until("its Node", async || other.has_pool_of(1)).await;
        assert_eq!(scene.vms().await, before);
        pause(false);
        scene
            .until("the rest to happen", async || {
                let vms = scene.vms().await;
                (vms.len() == 2 && vms.keys().all(|machine| !before.contains_key(machine))).then_some(())
            })
            .await;
        scene.until("two Nodes", async || scene.has_pool_of(2)).await;
    });
}

/// O4, F4, 9.8: an idle pool is not written, and metadata removed by hand is restored.
#[test]
fn an_idle_pool_is_idle_and_heals() {
    play(async |world: &'static World| {
        let scene = Scene::with_pool(world, "calm", 2).await;
        scene.until("two Nodes", async || scene.has_pool_of(2)).await;
        let natives =
            ["machinedeployments", "machinesets", "machines"].map(|kind| format!("{kind}.machine.sapcloud.io"));
        let natives = natives.each_ref().map(String::as_str);
        scene.is_idle(&[&["mcmmachinepool"][..], &natives].concat()).await;
        let before = scene.vms().await;
        let bare = r#"{"metadata":{"ownerReferences":[],"finalizers":[]}}"#;
        for kind in [&["mcmmachinepool"][..], &natives].concat() {
            for object in scene.all(kind) {
                scene.kubectl(&["patch", kind, name_of(&object), "--type=merge", "-p", bare]);
            }
        }
        scene
            .until("owners and finalizers to come back", async || {
                let is_whole = |object: &Value| {
                    let meta = &object["metadata"];
                    meta["ownerReferences"][0]["controller"] == true && meta["finalizers"][0].is_string()
                };
                [&["mcmmachinepool"][..], &natives]
                    .concat()
                    .iter()
                    .all(|kind| scene.all(kind).iter().all(is_whole))
                    .then_some(())
            })
            .await;
        assert_eq!(scene.vms().await, before);
        scene.until("two Nodes", async || scene.has_pool_of(2)).await;
    });
}

/// P16: core follows the number that another program sets, and keeps it afterwards.
#[test]
fn the_number_of_a_pool_that_another_program_scales_reaches_its_machine_pool() {
    play(async |world: &'static World| {
        let scene = Scene::with_pool(world, "external", 2).await;
        scene.until("two Nodes", async || scene.has_pool_of(2)).await;
        let pool = "machinepool/external-mp-0";
        scene.kubectl(&["annotate", pool, "cluster.x-k8s.io/replicas-managed-by=external"]);
        let native = "machinedeployments.machine.sapcloud.io/external-mp-0";
        scene.kubectl(&["patch", native, "--type=merge", "-p", r#"{"spec":{"replicas":4}}"#]);
        scene.until("four Nodes in a pool that is Running", async || scene.has_pool_of(4)).await;
        assert_eq!(scene.get("machinepool", "external-mp-0")["spec"]["replicas"], 4);
        let four = scene.vms().await;
        scene.kubectl(&["annotate", pool, "cluster.x-k8s.io/replicas-managed-by-"]);
        // The next change of core is one of the number that it has now.
        scale(&scene, 5);
        scene.until("five Nodes", async || scene.has_pool_of(5)).await;
        let five = scene.vms().await;
        assert!(four.iter().all(|(name, ids)| five.get(name) == Some(ids)), "no machine was deleted");
    });
}

/// O10: the pool and everything above it are removed by force.
#[test]
fn a_pool_that_was_removed_by_force_keeps_its_vms() {
    play(async |world: &'static World| {
        let scene = Scene::with_pool(world, "seized", 2).await;
        scene.until("two Nodes", async || scene.has_pool_of(2)).await;
        let before = scene.vms().await;
        let refused = ["delete", "mcmmachinepool", "seized-mp-0", "-n", &scene.namespace, "--wait=false"];
        let refused = world.try_kubectl(&refused, "").unwrap_err();
        assert!(refused.contains("delete the MachinePool"), "{refused}");
        scene.kubectl(&["patch", "cluster", "seized", "--type=merge", "-p", r#"{"spec":{"paused":true}}"#]);
        scene
            .until("the condition Paused", async || {
                let pool = scene.find("mcmmachinepool", "seized-mp-0")?;
                (condition(&pool, "Paused") == "True Paused").then_some(())
            })
            .await;
        let bare = r#"{"metadata":{"finalizers":[]}}"#;
        for (kind, name) in [("mcmmachinepool", "seized-mp-0"), ("machinepool", "seized-mp-0"), ("cluster", "seized")] {
            scene.kubectl(&["delete", kind, name, "--wait=false"]);
            scene.kubectl(&["patch", kind, name, "--type=merge", "-p", bare]);
        }
        let natives = "machinedeployments.machine.sapcloud.io";
        scene
            .until("the MCM MachineDeployment to say that it keeps the VMs", async || {
                let native = scene.find(natives, "seized-mp-0")?;
                (condition(&native, "Paused") == "True VMKept").then_some(())
            })
            .await;
        assert_eq!(scene.vms().await, before);
        let all = ["machinedeployments", "machinesets", "machines"]
            .map(|kind| format!("{kind}.machine.sapcloud.io"))
            .join(",");
        scene.kubectl(&["annotate", &all, "-l", "machine.mcm/pool=seized-mp-0", "machine.mcm/delete-vm="]);
        scene.until("the VMs to be gone", async || scene.vms().await.is_empty().then_some(())).await;
        scene.until("the MCM MachineDeployment to be gone", async || scene.all(natives).is_empty().then_some(())).await;
    });
}
