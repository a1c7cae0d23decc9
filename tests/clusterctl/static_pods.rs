//! Parts of a control plane that the controller of KubeadmControlPlanes looks at: static pods, and the certificates of an external etcd.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{scene::Scene, support::objects};

const NAMESPACE: &str = "kube-system";
/// Static pods of kubeadm, without which a machine of a control plane does not count as healthy.
const COMPONENTS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// The mirror pods that kubelets create for static pods: on each Node of a cluster, until it is gone.
pub struct StaticPods(JoinHandle<()>);

impl StaticPods {
    /// On Nodes for which the function returns true.
    pub fn run(scene: &Scene, is_of_control_plane: impl Fn(&Node) -> bool + Send + Sync + 'static) -> Self {
        let client = scene.workload().client();
        Self(tokio::spawn(async move {
            let mut period = tokio::time::interval(Duration::from_millis(500));
            let mut known = BTreeSet::<String>::new();
            loop {
                period.tick().await;
                // What fails is repeated.
                let Ok(now) = nodes(&client, &is_of_control_plane).await else { continue };
                let (new, gone) = (&now - &known, &known - &now);
                for node in new {
                    if create_pods(&client, &node).await.is_ok() {
                        known.insert(node);
                    }
                }
                for node in gone {
                    if delete_pods(&client, &node).await.is_ok() {
                        known.remove(&node);
                    }
                }
            }
        }))
    }
}

impl Drop for StaticPods {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn nodes(client: &Client, is_own: &impl Fn(&Node) -> bool) -> kube::Result<BTreeSet<String>> {
    let nodes: Api<Node> = Api::all(client.clone());
    let all = nodes.list(&ListParams::default()).await?.items;
    Ok(all.iter().filter(|node| is_own(node)).map(ResourceExt::name_any).collect())
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), NAMESPACE)
}

async fn create_pods(client: &Client, node: &str) -> kube::Result<()> {
    for component in COMPONENTS {
        let name = format!("{component}-{node}");
        let labels = json!({"tier": "control-plane", "component": component});
        let mirror = json!({"kubernetes.io/config.mirror": "simulated"});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": mirror},
            "spec": {"nodeName": node, "containers": [{"name": component, "image": "registry.invalid/component"}]},
        });
        objects::try_apply(client, &pod).await?;
        let ready = json!({"type": "Ready", "status": "True"});
        let status = json!({"status": {"phase": "Running", "conditions": [ready]}});
        pods(client).patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    Ok(())
}

async fn delete_pods(client: &Client, node: &str) -> kube::Result<()> {
    for component in COMPONENTS {
        let at_once = DeleteParams::default().grace_period(0);
        match pods(client).delete(&format!("{component}-{node}"), &at_once).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => drop(answer?),
        }
    }
    Ok(())
}

/// An object of a flavour or of a ClusterClass, with an external etcd, because the members of kubeadm's own one would have to
/// answer. The dates of certificates, which the controller would otherwise read from each API server, are given.
pub fn with_external_etcd(mut object: Value) -> Value {
    let etcd = json!({"external": {
        "endpoints": ["https://etcd.example.com:2379"], "caFile": "/etcd/ca.crt", "certFile": "/etcd/client.crt",
        "keyFile": "/etcd/client.key",
    }});
    let expiry = json!({"annotations": {"machine.cluster.x-k8s.io/certificates-expiry": "2099-01-01T00:00:00Z"}});
    match object["kind"].as_str().unwrap() {
        "KubeadmControlPlane" => {
            object["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"] = etcd;
            object["spec"]["machineTemplate"]["metadata"] = expiry;
        }
        "KubeadmControlPlaneTemplate" => {
            object["spec"]["template"]["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"] = etcd;
        }
        "Cluster" if !object["spec"]["topology"].is_null() => {
            object["spec"]["topology"]["controlPlane"]["metadata"] = expiry;
        }
        _ => {}
    }
    object
}

/// The certificates of that etcd.
pub fn add_etcd(scene: &Scene) {
    let pki = scene.workload().folder().join("pki");
    scene.add_secret("etcd", &[("tls.crt", &pki.join("ca.crt"))]);
    let client = [("tls.crt", pki.join("server.crt")), ("tls.key", pki.join("server.key"))];
    scene.add_secret("apiserver-etcd-client", &[(client[0].0, &client[0].1), (client[1].0, &client[1].1)]);
}
