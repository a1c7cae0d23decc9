use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{Condition, LabelSelector, Time},
    util::intstr::IntOrString,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{machine::MachineTemplate, schema};
use mcm_api::wire::is_zero;

/// Spec of a MachineDeployment.
#[expect(clippy::duplicated_attributes, reason = "each column says its type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineDeployment",
    plural = "machinedeployments",
    singular = "machinedeployment",
    shortname = "md",
    category = "cluster-api",
    namespaced,
    status = "MachineDeploymentStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "MachineDeployment keeps a number of Machines and replaces them gradually when their template changes.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.clusterName",
        description = "Cluster to which it belongs."
    ),
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".spec.replicas",
        description = "Desired number of Machines."
    ),
    printcolumn(
        name = "Current",
        type_ = "integer",
        json_path = ".status.replicas",
        description = "Number of Machines."
    ),
    printcolumn(
        name = "Ready",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "Number of ready Machines."
    ),
    printcolumn(
        name = "Available",
        type_ = "integer",
        json_path = ".status.availableReplicas",
        description = "Number of available Machines."
    ),
    printcolumn(
        name = "Up-to-date",
        type_ = "integer",
        json_path = ".status.upToDateReplicas",
        description = "Number of Machines with the current template."
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "Summary of the status."),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the object was created."
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".spec.template.spec.version",
        description = "Version of Kubernetes."
    )
)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["clusterName", "selector", "template"]))]
pub struct MachineDeploymentSpec {
    /// Name of the Cluster.
    #[schemars(schema_with = "schema::cluster_name")]
    pub cluster_name: String,
    /// Desired number of Machines; 1 or the autoscaler's minimum if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// When and how Machines are replaced.
    #[serde(skip_serializing_if = "is_zero")]
    pub rollout: Rollout,
    /// Selects the Machines.
    pub selector: LabelSelector,
    /// Template of the Machines.
    pub template: MachineTemplate,
    /// How Machines are named.
    #[serde(skip_serializing_if = "is_zero")]
    pub machine_naming: MachineNaming,
    /// How unhealthy Machines are replaced.
    #[serde(skip_serializing_if = "is_zero")]
    pub remediation: MaxInFlight,
    /// Order of deletion of Machines.
    #[serde(skip_serializing_if = "is_zero")]
    pub deletion: Deletion,
    /// If true, the rollout is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// When and how Machines are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("minProperties" = 1))]
pub struct Rollout {
    /// Machines made before this time are replaced once it has passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Time>,
    /// How Machines are replaced.
    #[serde(skip_serializing_if = "is_zero")]
    pub strategy: RolloutStrategy,
}

/// How Machines are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1, "required" = ["type"]))]
pub struct RolloutStrategy {
    /// `RollingUpdate` (also if empty) or `OnDelete`.
    #[serde(rename = "type", skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::strategy_type")]
    pub type_: String,
    /// Bounds of a rolling update.
    #[serde(skip_serializing_if = "is_zero")]
    pub rolling_update: RollingUpdate,
}

/// Bounds of a rolling update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct RollingUpdate {
    /// How many Machines may be unavailable; 0 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// How many Machines may exist beyond replicas; 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
}

/// How Machines are named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("minProperties" = 1))]
pub struct MachineNaming {
    /// Template of the name.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(length(min = 1, max = 256))]
    pub template: String,
}

/// How unhealthy Machines are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MaxInFlight {
    /// How many at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<IntOrString>,
}

/// Order of deletion of Machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("minProperties" = 1))]
pub struct Deletion {
    /// `Random` (also if empty), `Newest` or `Oldest`.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::deletion_order")]
    pub order: String,
}

/// Status of a MachineDeployment, as far as mcm writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineDeploymentStatus {
    /// Selector as a text, for the scale subresource.
    #[serde(skip_serializing_if = "is_zero")]
    pub selector: String,
    /// Machines that exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Machines that are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Machines that are available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// Machines with the current template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to_date_replicas: Option<i32>,
    /// Summary for people.
    #[serde(skip_serializing_if = "is_zero")]
    pub phase: String,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 32, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Generation of the object whose spec this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
