use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    machine::MachineTemplate,
    machine_deployment::{Deletion, MachineNaming},
    schema,
};
use mcm_api::wire::is_zero;

/// Spec of a MachineSet.
#[expect(clippy::duplicated_attributes, reason = "each column says its type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineSet",
    plural = "machinesets",
    singular = "machineset",
    shortname = "ms",
    category = "cluster-api",
    namespaced,
    status = "MachineSetStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "MachineSet keeps a number of equal Machines.",
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
pub struct MachineSetSpec {
    /// Name of the Cluster.
    #[schemars(schema_with = "schema::cluster_name")]
    pub cluster_name: String,
    /// Desired number of Machines; 1 or the autoscaler's minimum if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Selects the Machines.
    pub selector: LabelSelector,
    /// Template of the Machines.
    pub template: MachineTemplate,
    /// How Machines are named.
    #[serde(skip_serializing_if = "is_zero")]
    pub machine_naming: MachineNaming,
    /// Order of deletion of Machines.
    #[serde(skip_serializing_if = "is_zero")]
    pub deletion: Deletion,
}

/// Status of a MachineSet, as far as mcm writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineSetStatus {
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
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 32, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Generation of the object whose spec this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
