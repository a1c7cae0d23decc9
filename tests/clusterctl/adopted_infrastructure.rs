//! The steps of `test/e2e/kcp_infra_adoption.go` of Cluster API: a cluster is removed by force, its VMs stay, and another
//! cluster takes over the machines of the control plane.

use serde_json::{Value, json};

use crate::{
    scene::{KUBERNETES, Scene, condition, name_of},
    topology::with_topology,
    world::{World, play},
};

const NATIVES: &str = "machines.machine.sapcloud.io";

/// The objects as upstream deletes them: each is deleted and then loses its finalizers, infrastructure first.
fn force_delete(scene: &Scene) {
    let kinds = [
        "mcmmachines",
        "kubeadmconfigs",
        "machines.cluster.x-k8s.io",
        "machinesets.cluster.x-k8s.io",
        "mcmmachinetemplates",
        "kubeadmconfigtemplates",
        "machinedeployments.cluster.x-k8s.io",
        "kubeadmcontrolplanes",
        "mcmclusters",
        "clusters",
    ];
    for kind in kinds {
        for object in scene.selected(kind, "").iter().filter(|object| !is_of_class(object)) {
            let name = name_of(object);
            scene.kubectl(&["delete", kind, name, "--wait=false", "--ignore-not-found"]);
            let bare = r#"{"metadata":{"finalizers":[]}}"#;
            let words = ["patch", kind, name, "-n", &scene.namespace, "--type=merge", "-p", bare];
            if let Err(error) = scene.world.try_kubectl(&words, "") {
                assert!(error.contains("not found"), "{error}");
            }
        }
    }
}

/// Templates of the ClusterClass stay.
fn is_of_class(object: &Value) -> bool {
    object["metadata"]["labels"]["topology.cluster.x-k8s.io/owned"].is_null()
        && object["kind"].as_str().is_some_and(|kind| kind.ends_with("Template"))
}

/// The object as it is created again: without fields from the API server and controllers.
fn again(object: &Value) -> Value {
    let meta = &object["metadata"];
    let mut next = json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "spec": object["spec"],
        "metadata": { "name": meta["name"], "namespace": meta["namespace"] },
    });
    let labels = [("cluster.x-k8s.io/cluster-name", &meta["labels"]["cluster.x-k8s.io/cluster-name"])];
    next["metadata"]["labels"] = json!({ (labels[0].0): labels[0].1, "cluster.x-k8s.io/control-plane": "" });
    next
}

fn create(world: &World, object: &Value) {
    world.kubectl_with(&["create", "-f", "-"], &object.to_string());
}

fn is_of_control_plane(machine: &&Value) -> bool {
    machine["metadata"]["labels"]["cluster.x-k8s.io/control-plane"].is_string()
}

/// I15, O10: the adoption neither deletes nor creates a VM.
#[test]
fn a_cluster_that_was_removed_by_force_is_adopted_by_another_one() {
    play(async |world: &'static World| {
        let scene = with_topology(world, "taken").await;
        let before = scene.vms().await;
        let cluster = scene.get("cluster", "taken");
        let machines = scene.all("machines.cluster.x-k8s.io");
        let machine = machines.iter().find(is_of_control_plane).unwrap();
        let infrastructure = scene.get("mcmmachine", machine["spec"]["infrastructureRef"]["name"].as_str().unwrap());
        let configuration = machine["spec"]["bootstrap"]["configRef"]["name"].as_str().unwrap();
        let kubeadm = scene.get("kubeadmconfig", configuration);

        scene.kubectl(&["patch", "cluster", "taken", "--type=merge", "-p", r#"{"spec":{"paused":true}}"#]);
        let is_paused = |object: &Value| condition(object, "Paused") == "True Paused";
        scene
            .until("the provider to leave the machines alone", async || {
                scene.all("mcmmachine").iter().all(is_paused).then_some(())
            })
            .await;
        // Certificates outlive their cluster.
        for purpose in ["ca", "etcd", "sa", "proxy"] {
            let name = format!("taken-{purpose}");
            if scene.find("secret", &name).is_some() {
                let free = r#"{"metadata":{"ownerReferences":[]}}"#;
                scene.kubectl(&["patch", "secret", &name, "--type=merge", "-p", free]);
            }
        }
        force_delete(&scene);
        for kind in ["mcmmachine", "machines.cluster.x-k8s.io", "kubeadmcontrolplane", "mcmcluster", "cluster"] {
            scene.until("all to be gone", async || scene.all(kind).is_empty().then_some(())).await;
        }
        let is_collected = |native: &Value| native["metadata"]["deletionTimestamp"].is_string();
        scene
            .until("the garbage collector to delete the MCM Machines", async || {
                let natives = scene.all(NATIVES);
                (natives.len() == before.len() && natives.iter().all(is_collected)).then_some(())
            })
            .await;
        assert_eq!(scene.vms().await, before);

        let mut next = again(&cluster);
        next["metadata"]["labels"] = json!({});
        next["spec"]["paused"] = json!(false);
        let spec = next["spec"].as_object_mut().unwrap();
        spec.remove("infrastructureRef");
        spec.remove("controlPlaneRef");
        next["spec"]["topology"]["controlPlane"]["metadata"]["annotations"] = json!({ "cluster.x-k8s.io/paused": "" });
        next["spec"]["topology"]["workers"]["machineDeployments"][0]["replicas"] = json!(0);
        create(world, &next);
        scene
            .until("a control plane that is paused", async || {
                let all = scene.all("kubeadmcontrolplane");
                all.first()?["metadata"]["annotations"]["cluster.x-k8s.io/paused"].is_string().then_some(())
            })
            .await;

        // The machine already exists, so its bootstrap data are empty.
        create(
            world,
            &json!({
                "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
                "metadata": {
                    "name": configuration, "namespace": scene.namespace, "labels": { "cluster.x-k8s.io/cluster-name": "taken" },
                },
            }),
        );
        let mut config = again(&kubeadm);
        config["spec"].as_object_mut().unwrap().remove("initConfiguration");
        config["spec"]["joinConfiguration"]["controlPlane"] = json!({});
        create(world, &config);
        create(world, &again(&infrastructure));
        let mut adopted = again(machine);
        adopted["spec"]["bootstrap"]["dataSecretName"] = json!(configuration);
        create(world, &adopted);

        let name = name_of(machine).to_owned();
        let infrastructure = name_of(&infrastructure).to_owned();
        scene
            .until("the Machine to have its VM", async || {
                let machine = scene.find("machines.cluster.x-k8s.io", &name)?;
                let own = scene.find("mcmmachine", &infrastructure)?;
                let is_owned = own["metadata"]["ownerReferences"][0]["uid"] == machine["metadata"]["uid"];
                let has_addresses = machine["status"]["addresses"].as_array().is_some_and(|all| !all.is_empty());
                (is_owned && has_addresses && condition(&own, "Ready") == "True Provisioned").then_some(())
            })
            .await;
        let change =
            r#"{"spec":{"topology":{"controlPlane":{"metadata":{"annotations":{"cluster.x-k8s.io/paused":null}}}}}}"#;
        scene.kubectl(&["patch", "cluster", "taken", "--type=merge", "-p", change]);
        scene
            .until("the control plane to have the Machine", async || {
                let machine = scene.find("machines.cluster.x-k8s.io", &name)?;
                let owners = machine["metadata"]["ownerReferences"].as_array()?;
                let is_control_plane =
                    |owner: &Value| owner["kind"] == "KubeadmControlPlane" && owner["controller"] == true;
                let is_owned = owners.iter().any(is_control_plane);
                (is_owned && machine["status"]["phase"] == "Running").then_some(())
            })
            .await;
        assert_eq!(scene.vms().await, before, "no VM was made, and none is gone");
        let own = scene.get(NATIVES, &infrastructure);
        assert!(own["metadata"]["deletionTimestamp"].is_null(), "{own}");
        assert_eq!(
            own["spec"]["providerID"].as_str().map(|id| vec![id.to_owned()]).as_ref(),
            before.get(&infrastructure)
        );
        assert_eq!(scene.get("cluster", "taken")["spec"]["topology"]["version"], KUBERNETES);

        // The workers were not adopted, so a user decides about their VMs.
        for native in scene.all(NATIVES).iter().filter(|native| name_of(native) != infrastructure) {
            scene.kubectl(&["annotate", NATIVES, name_of(native), "machine.mcm/delete-vm="]);
        }
        scene.until("their VMs to be gone", async || (scene.vms().await.len() == 1).then_some(())).await;
        scene.kubectl(&["delete", "cluster", "taken", "--timeout=600s"]);
        assert!(scene.vms().await.is_empty());
    });
}
