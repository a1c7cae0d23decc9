use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{infrastructure::Endpoint, machine::ObjectRef};
use crate::api::wire::is_zero;

/// Spec of a Cluster, as far as mcm reads it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Cluster",
    plural = "clusters",
    namespaced,
    schema = "disabled",
    status = "ClusterStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Cluster is a Kubernetes cluster whose Machines are managed."
)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSpec {
    /// No controller touches any object of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Where the API server is.
    #[serde(skip_serializing_if = "is_zero")]
    pub control_plane_endpoint: Endpoint,
    /// The object of the infrastructure provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub infrastructure_ref: ObjectRef,
    /// Fields that mcm does not read.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Status of a Cluster, as far as mcm reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterStatus {
    /// What happened once and stays.
    #[serde(skip_serializing_if = "is_zero")]
    pub initialization: ClusterInitialization,
    /// Fields that mcm does not read.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What happened once and stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterInitialization {
    /// The infrastructure of the cluster was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// The control plane was reachable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
}

impl Cluster {
    /// Its infrastructure was complete. A Cluster without infrastructure has none to wait for.
    pub fn is_provisioned(&self) -> bool {
        let initialization = self.status.as_ref().map(|status| &status.initialization);
        let was_complete = initialization.is_some_and(|all| all.infrastructure_provisioned == Some(true));
        was_complete || self.spec.infrastructure_ref.name.is_empty()
    }
}
