use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{Condition, LabelSelector},
    util::intstr::IntOrString,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::schema;
use mcm_api::wire::is_zero;

/// Spec of a MachineHealthCheck.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineHealthCheck",
    plural = "machinehealthchecks",
    singular = "machinehealthcheck",
    shortname = "mhc",
    shortname = "mhcs",
    category = "cluster-api",
    namespaced,
    status = "MachineHealthCheckStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "MachineHealthCheck has the owners of unhealthy Machines replace them.",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.clusterName",
        description = "Cluster to which it belongs."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the object was created."
    )
)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["clusterName", "selector"]))]
pub struct MachineHealthCheckSpec {
    /// Name of the Cluster.
    #[schemars(schema_with = "schema::cluster_name")]
    pub cluster_name: String,
    /// Selects the Machines.
    pub selector: LabelSelector,
    /// Conditions under which a Machine is unhealthy.
    #[serde(skip_serializing_if = "is_zero")]
    pub checks: Checks,
    /// Whether and how an unhealthy Machine is replaced.
    #[serde(skip_serializing_if = "is_zero")]
    pub remediation: Remediation,
}

/// Conditions under which a Machine is unhealthy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct Checks {
    /// For how long a Machine may have no Node; 600 if absent, no limit if 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_startup_timeout_seconds: Option<i32>,
    /// Conditions of the Node.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(extend("minItems" = 1, "maxItems" = 100, "x-kubernetes-list-type" = "atomic"))]
    pub unhealthy_node_conditions: Vec<UnhealthyCondition>,
    /// Conditions of the Machine.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::machine_conditions")]
    pub unhealthy_machine_conditions: Vec<UnhealthyCondition>,
    /// CEL expressions over Machine and Node, which the oldest supported Cluster API core does not have.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(skip)]
    pub unhealthy_expressions: Vec<Value>,
}

/// A condition that makes a Machine unhealthy if it lasts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["status", "timeoutSeconds", "type"]))]
pub struct UnhealthyCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    #[schemars(length(min = 1))]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(length(min = 1))]
    pub status: String,
    /// After how many seconds.
    #[schemars(range(min = 0))]
    pub timeout_seconds: i32,
}

/// The replacement of an unhealthy Machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct Remediation {
    /// When to replace at all.
    #[serde(skip_serializing_if = "is_zero")]
    pub trigger_if: TriggerIf,
    /// Template of an object whose controller replaces the Machine.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::template_ref")]
    pub template_ref: Map<String, Value>,
}

/// When to replace at all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct TriggerIf {
    /// At most so many Machines are unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unhealthy_less_than_or_equal_to: Option<IntOrString>,
    /// The number of unhealthy Machines lies in this range, such as `[3-5]`.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^\[[0-9]+-[0-9]+\]$"))]
    pub unhealthy_in_range: String,
}

/// Status of a MachineHealthCheck. mcm neither reads nor writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MachineHealthCheckStatus {
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 32, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
