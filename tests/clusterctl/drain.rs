//! Core drains a Node before the provider may delete its VM, as `test/e2e/node_drain.go` of Cluster API expects.

use serde_json::{Value, json};

use crate::{
    scene::{Scene, condition},
    support::{objects, pods},
    world::{World, play},
};

/// A pod that no eviction removes: no controller ever updates its budget.
pub async fn guarded_pod(scene: &Scene, node: &str) {
    let workload = &scene.world.workload;
    let namespace = workload.namespace(&scene.name).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "guard", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    objects::apply(&workload.client(), &budget).await;
    pods::run(&workload.client(), &namespace, pods::pod("guarded", node)).await;
}

#[test]
fn a_vm_stays_while_core_drains_its_node_and_goes_after_the_timeout() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "drained", 2).await;
        scene.until("two Machines", async || scene.has_running(2)).await;
        let chosen = scene.machines().swap_remove(0);
        guarded_pod(&scene, &chosen).await;
        let (before, kind) = (scene.vms().await, "machine.cluster.x-k8s.io");
        scene.kubectl(&["annotate", kind, &chosen, "cluster.x-k8s.io/delete-machine=yes"]);
        scene.scale(1);
        scene
            .until("a drain that the budget blocks", async || {
                let machine = scene.find(kind, &chosen)?;
                let deleting =
                    machine["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == "Deleting")?;
                let is_draining = condition(&machine, "Deleting") == "True DrainingNode";
                let names_pod = deleting["message"].as_str()?.contains("guarded");
                (is_draining && names_pod).then_some(())
            })
            .await;
        let is_untouched = |object: &Value| object["metadata"]["deletionTimestamp"].is_null();
        assert!(is_untouched(&scene.get("mcmmachine", &chosen)), "core has not asked to delete it");
        assert!(is_untouched(&scene.get("machines.machine.sapcloud.io", &chosen)));
        assert_eq!(scene.vms().await, before);

        let limit = json!({"spec": {"template": {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 1}}}}}).to_string();
        let deployment = "machinedeployment.cluster.x-k8s.io/drained-md-0";
        scene.kubectl(&["patch", deployment, "--type=merge", "-p", &limit]);
        scene.until("the Machine to be gone", async || scene.has_running(1)).await;
        assert!(!scene.vms().await.contains_key(&chosen) && world.nodes.find("", "node", &chosen).is_none());
        assert_eq!(scene.vms().await.len(), 1, "a timeout is no rollout");
        scene.kubectl(&["delete", "cluster", "drained", "--cascade=foreground", "--timeout=600s"]);
        assert!(scene.vms().await.is_empty());
    });
}
