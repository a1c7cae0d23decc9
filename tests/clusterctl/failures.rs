//! 9.4: clusters of others, and missing objects.

use serde_json::json;

use crate::{
    scene::{Scene, condition},
    world::{World, play},
};

/// C10: neither finalizer nor status; a foreign status provisions the Cluster.
#[test]
fn an_externally_managed_cluster_is_left_to_its_manager() {
    play(async |world: &'static World| {
        let scene = Scene::new(world, "foreign").await;
        let text = scene.generate("fixed", 0);
        let marked = text.replacen(
            "kind: MCMCluster\nmetadata:\n",
            "kind: MCMCluster\nmetadata:\n  annotations:\n    cluster.x-k8s.io/managed-by: \"\"\n",
            2,
        );
        assert!(marked.contains("managed-by"), "{marked}");
        world.kubectl_with(&["apply", "-f", "-"], &marked);
        scene
            .until("core to own it", async || {
                scene.find("mcmcluster", "foreign")?["metadata"]["ownerReferences"][0].is_object().then_some(())
            })
            .await;
        let other = Scene::with_workers(world, "ours", 0).await;
        drop(other);
        let object = scene.get("mcmcluster", "foreign");
        assert!(object["metadata"]["finalizers"].is_null() && object["status"].is_null(), "{object}");
        let status = r#"{"status":{"initialization":{"provisioned":true}}}"#;
        scene.kubectl(&["patch", "mcmcluster", "foreign", "--subresource=status", "--type=merge", "-p", status]);
        scene
            .until("the Cluster to be provisioned", async || {
                let status = &scene.get("cluster", "foreign")["status"];
                (status["initialization"]["infrastructureProvisioned"] == true).then_some(())
            })
            .await;
    });
}

/// Removes a class by force: its finalizer would keep it.
fn remove_class(scene: &Scene, name: &str) {
    scene.kubectl(&["delete", "machineclass", name, "--wait=false"]);
    scene.kubectl(&["patch", "machineclass", name, "--type=merge", "-p", r#"{"metadata":{"finalizers":[]}}"#]);
}

/// O7: the class of a VM that its object describes is restored, so the deletion ends.
#[test]
fn a_cluster_whose_machines_describe_their_vms_is_deleted_without_their_classes() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "robbed", 1).await;
        scene.until("the Machine to run", async || scene.has_running(1)).await;
        remove_class(&scene, &scene.machines()[0]);
        scene.kubectl(&["delete", "cluster", "robbed", "--timeout=150s"]);
        assert!(scene.vms().await.is_empty());
    });
}

/// O7, F1: the deletion of a shared class is reported, and the deletion of the cluster ends once the class is restored:
/// without it the absence of the VM cannot be proved.
#[test]
fn a_cluster_whose_class_is_gone_says_so_and_is_deleted_once_it_is_back() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "bereft", 0).await;
        let described = scene.get("mcmmachinetemplate", "bereft-md-0")["spec"]["template"]["spec"].clone();
        let mut class = described["machineClass"].clone();
        class["apiVersion"] = json!("machine.sapcloud.io/v1alpha1");
        class["kind"] = json!("MachineClass");
        class["metadata"] = json!({"name": "shared", "namespace": scene.namespace});
        world.apply(&class);
        world.apply(&json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachineTemplate",
            "metadata": {"name": "bereft-md-1", "namespace": scene.namespace},
            "spec": {"template": {"spec": {"machineClassRef": {"name": "shared"}}}},
        }));
        let change = r#"{"spec":{"replicas":1,"template":{"spec":{"infrastructureRef":{"name":"bereft-md-1"}}}}}"#;
        let deployment = "machinedeployment.cluster.x-k8s.io/bereft-md-0";
        scene.kubectl(&["patch", deployment, "--type=merge", "-p", change]);
        scene.until("the Machine to run", async || scene.has_running(1)).await;
        let machines = scene.machines();
        let [machine] = machines.as_slice() else { panic!("not one Machine: {machines:?}") };
        remove_class(&scene, "shared");
        scene.kubectl(&["delete", "cluster", "bereft", "--wait=false"]);
        scene
            .until("the reason", async || {
                let object = scene.find("mcmmachine", machine)?;
                let told = object["status"]["conditions"].to_string().contains("create it again");
                (told && condition(&object, "Ready") == "False Deleting").then_some(())
            })
            .await;
        assert_eq!(scene.vms().await.len(), 1);
        world.apply(&class);
        scene.until("the Cluster to be gone", async || scene.find("cluster", "bereft").is_none().then_some(())).await;
        assert!(scene.vms().await.is_empty());
    });
}

/// C14, O9: a Cluster is deleted while its API server does not answer.
#[test]
fn a_cluster_is_deleted_without_its_api_server() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "silent", 1).await;
        scene.until("the Machine to run", async || scene.has_running(1)).await;
        let nowhere = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
                       users: [{name: u}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
        let value = json!({"data": {"value": k8s_openapi::ByteString(nowhere.as_bytes().to_vec())}});
        scene.kubectl(&["patch", "secret", "silent-kubeconfig", "--type=merge", "-p", &value.to_string()]);
        scene.kubectl(&["delete", "cluster", "silent", "--timeout=150s"]);
        assert!(scene.vms().await.is_empty());
        assert!(scene.find("mcmcluster", "silent").is_none());
    });
}
