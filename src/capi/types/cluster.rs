use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Spec of a Cluster, as far as mcm reads it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Cluster",
    plural = "clusters",
    namespaced,
    schema = "disabled",
    status = "Map<String, Value>",
    derive = "Default",
    derive = "PartialEq",
    doc = "Cluster is a Kubernetes cluster whose Machines are managed."
)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSpec {
    /// No controller touches any object of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Fields that mcm does not read.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
