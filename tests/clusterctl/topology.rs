//! A cluster of the ClusterClass of a release, with a control plane by kubeadm.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    scene::{Scene, condition, name_of},
    world::{World, play},
};

const WORKERS: usize = 2;
/// Kinds that core or mcm would write repeatedly if they disagreed.
const QUIET: [&str; 8] = [
    "cluster",
    "mcmcluster",
    "mcmmachinetemplate",
    "mcmmachine",
    "machinedeployments.cluster.x-k8s.io",
    "machinesets.cluster.x-k8s.io",
    "machines.machine.sapcloud.io",
    "machineclass",
];

/// The cluster that clusterctl makes of the class, once its machines are Nodes. Its control plane is an API server that runs
/// already; with its authority, kubeadm's controllers make the kubeconfig.
pub async fn with_topology(world: &'static World, name: &str) -> Scene {
    let scene = Scene::with_authority(world, name).await;
    let text = scene.generate("topology", WORKERS);
    assert!(text.contains("kind: ClusterClass"), "clusterctl adds the class: {text}");
    world.kubectl_with(&["apply", "-f", "-"], &text);
    scene.until("control plane and workers to be Nodes", async || scene.has_running(1 + WORKERS)).await;
    scene
}

/// Changes one field.
fn replace(scene: &Scene, object: [&str; 2], path: &str, value: &Value) {
    let change = json!([{"op": "replace", "path": path, "value": value}]).to_string();
    scene.kubectl(&["patch", object[0], object[1], "--type=json", "-p", &change]);
}

/// The VMs of the workers, and those of the control plane.
async fn vms(scene: &Scene) -> (BTreeMap<String, Vec<String>>, BTreeMap<String, Vec<String>>) {
    let prefix = format!("{}-md-0-", scene.name);
    scene.vms().await.into_iter().partition(|(machine, _)| machine.starts_with(&prefix))
}

/// All workers are other ones, and there were never fewer; the control plane stays.
async fn is_rolled(scene: &Scene, count: usize, change: impl FnOnce()) {
    let (workers_before, control_plane) = vms(scene).await;
    change();
    scene
        .until("all workers to be new", async || {
            let (workers, kept) = vms(scene).await;
            assert_eq!(kept, control_plane);
            assert!(workers.len() >= count, "surge 1, unavailable 0: {workers:?}");
            let are_new = workers.keys().all(|machine| !workers_before.contains_key(machine));
            (workers.len() == count && are_new).then_some(())
        })
        .await;
    scene.until("all Machines to run", async || scene.has_running(1 + count)).await;
}

/// `field` of the VMs that the workers are to be.
fn classes(scene: &Scene, field: &str) -> Vec<Value> {
    let prefix = format!("{}-md-0-", scene.name);
    let workers = scene.all("mcmmachine").into_iter().filter(|one| name_of(one).starts_with(&prefix));
    workers.map(|one| one["spec"]["machineClass"].pointer(field).cloned().unwrap_or_default()).collect()
}

/// K7, C8, C9, T4a: clusterctl adds the class. A change of the topology, or of the class, reaches the workers and nothing else;
/// for that core tries changes of our templates in dry runs, and the policy lets it.
#[test]
fn a_cluster_of_the_class_is_scaled_and_rolled_by_its_topology() {
    play(async |world: &'static World| {
        let scene = with_topology(world, "classy").await;
        let cluster = || scene.get("cluster", "classy");
        let endpoint = &cluster()["spec"]["controlPlaneEndpoint"];
        assert_eq!((&endpoint["host"], scene.all("mcmcluster").len()), (&json!("127.0.0.1"), 1));
        let described = world.must(&["describe", "cluster", "classy", "-n", &scene.namespace]);
        for object in ["KubeadmControlPlane", "MachineDeployment", "MCMCluster"] {
            assert!(described.contains(&format!("{object} {}/classy-", scene.namespace)), "{described}");
        }

        let workers = "/spec/topology/workers/machineDeployments/0/replicas";
        replace(&scene, ["cluster", "classy"], workers, &json!(WORKERS + 1));
        scene.until("one more worker", async || scene.has_running(2 + WORKERS)).await;
        replace(&scene, ["cluster", "classy"], workers, &json!(WORKERS));
        scene.until("one worker less", async || scene.has_running(1 + WORKERS)).await;
        scene.until("its VM to be gone", async || (vms(&scene).await.0.len() == WORKERS).then_some(())).await;

        is_rolled(&scene, WORKERS, || {
            replace(&scene, ["cluster", "classy"], "/spec/topology/variables/2/value", &json!("large"));
        })
        .await;
        assert_eq!(classes(&scene, "/providerSpec/instanceType"), vec![json!("large"); WORKERS]);
        assert_eq!(classes(&scene, "/nodeTemplate/instanceType"), vec![json!("large"); WORKERS]);

        // A template of the class is changed by another one.
        let path = "/spec/template/spec/machineClass/nodeTemplate/capacity/cpu";
        let change = json!([{"op": "replace", "path": path, "value": "8"}]).to_string();
        let words = ["patch", "mcmmachinetemplate", "simulated", "-n", &scene.namespace, "--type=json", "-p", &change];
        let refused = world.try_kubectl(&words, "").unwrap_err();
        assert!(refused.contains("create another template"), "{refused}");
        let mut template = scene.get("mcmmachinetemplate", "simulated");
        template["metadata"] = json!({"name": "more-cpu", "namespace": scene.namespace});
        template.as_object_mut().unwrap().remove("status");
        template["spec"]["template"]["spec"]["machineClass"]["nodeTemplate"]["capacity"]["cpu"] = json!("8");
        world.apply(&template);
        is_rolled(&scene, WORKERS, || {
            let path = "/spec/workers/machineDeployments/0/infrastructure/templateRef/name";
            replace(&scene, ["clusterclass", "simulated"], path, &json!("more-cpu"));
        })
        .await;
        assert_eq!(classes(&scene, "/nodeTemplate/capacity/cpu"), vec![json!("8"); WORKERS]);

        scene.is_idle(&QUIET).await;
        assert!(condition(&cluster(), "TopologyReconciled").starts_with("True"), "{}", cluster());

        scene.kubectl(&["delete", "cluster", "classy", "--timeout=170s"]);
        assert!(scene.vms().await.is_empty());
        for kind in ["mcmcluster", "mcmmachine", "machines.machine.sapcloud.io", "machineclass"] {
            scene.until("the rest to be gone", async || scene.all(kind).is_empty().then_some(())).await;
        }
        scene.kubectl(&["delete", "clusterclass", "simulated", "--timeout=170s"]);
    });
}
