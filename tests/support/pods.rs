//! Pods that a test ends by hand, without a kubelet.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::objects;

/// A pod on a Node, with a second to end.
pub fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "web.invalid/main"}],
        },
    })
}

/// Creates the pod, running and ready, and returns its UID.
pub async fn run(client: &Client, namespace: &str, mut pod: Value) -> String {
    pod["metadata"]["namespace"] = namespace.into();
    let name = objects::apply(client, &pod).await.name_any();
    let ready = json!({"type": "Ready", "status": "True"});
    let status = json!({"status": {"phase": "Running", "conditions": [ready]}});
    let pod = api(client, namespace).patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    pod.metadata.uid.unwrap()
}

/// All of a namespace.
pub async fn all(client: &Client, namespace: &str) -> Vec<Pod> {
    api(client, namespace).list(&ListParams::default()).await.unwrap().items
}

/// Pods of a namespace.
pub fn api(client: &Client, namespace: &str) -> Api<Pod> {
    Api::namespaced(client.clone(), namespace)
}
