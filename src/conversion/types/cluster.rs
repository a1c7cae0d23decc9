use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{infrastructure::Endpoint, machine::ObjectRef};
use mcm_api::{machine::schema as native, wire::is_zero};

/// Spec of a Cluster, as far as mcm reads it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Cluster",
    plural = "clusters",
    singular = "cluster",
    shortname = "cl",
    category = "cluster-api",
    namespaced,
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
    /// Address of the API server.
    #[serde(skip_serializing_if = "is_zero")]
    pub control_plane_endpoint: Endpoint,
    /// The object of the infrastructure provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub infrastructure_ref: ObjectRef,
    /// The object of the control plane provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub control_plane_ref: ObjectRef,
    /// Topology from which a ClusterClass creates the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "native::anything")]
    pub topology: Option<Value>,
    /// Fields that mcm does not read.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Map<String, Value>,
}

/// Status of a Cluster, as far as mcm reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClusterStatus {
    /// One-time results of the initialization.
    #[serde(skip_serializing_if = "is_zero")]
    pub initialization: ClusterInitialization,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 32, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Fields that mcm does not read.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Map<String, Value>,
}

/// One-time results of the initialization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Its control plane was reachable.
    pub fn is_control_plane_initialized(&self) -> bool {
        let initialization = self.status.as_ref().map(|status| &status.initialization);
        initialization.is_some_and(|all| all.control_plane_initialized == Some(true))
    }

    /// Its infrastructure was complete. A Cluster without infrastructure waits for nothing.
    pub fn is_provisioned(&self) -> bool {
        let initialization = self.status.as_ref().map(|status| &status.initialization);
        let was_complete = initialization.is_some_and(|all| all.infrastructure_provisioned == Some(true));
        was_complete || self.spec.infrastructure_ref.name.is_empty()
    }
}
