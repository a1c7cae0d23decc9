//! The namespace of a shoot on a seed, as Gardener makes it.

use serde_json::Value;

use crate::{
    cluster::{Cluster, documents},
    support::wait,
};

const OF_GARDENER: &str = include_str!("gardener.yaml");
pub const NAME: &str = "machine-controller-manager";

/// The namespace of a shoot with the Deployment, and the containers of its pod.
pub async fn shoot(cluster: &Cluster, namespace: &str) -> Value {
    cluster.control.ensure_namespace(namespace).await;
    // The objects of the shoot that are not in this namespace have theirs in the manifest.
    let objects = documents(&OF_GARDENER.replace("NAMESPACE", namespace));
    for object in objects {
        let of = object["metadata"]["namespace"].as_str().unwrap_or(namespace);
        cluster.kubectl(&["apply", "--validate=strict", "-n", of, "-f", "-"], &object.to_string());
    }
    pod(cluster, namespace).await
}

pub async fn pod(cluster: &Cluster, namespace: &str) -> Value {
    wait::until("the pod", async || {
        let pods = cluster.kubectl(&["get", "pods", "-n", namespace, "-l", &format!("role={NAME}"), "-o", "json"], "");
        let pods: Value = serde_json::from_str(&pods).unwrap();
        let alive = pods["items"].as_array()?.iter().find(|pod| pod["metadata"]["deletionTimestamp"].is_null())?;
        Some(alive["spec"].clone())
    })
    .await
}

/// The images of the containers of a pod.
pub fn images(pod: &Value) -> Vec<String> {
    pod["containers"].as_array().unwrap().iter().map(|one| one["image"].as_str().unwrap().to_owned()).collect()
}
