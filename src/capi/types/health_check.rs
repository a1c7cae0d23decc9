use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api::wire::is_zero;

/// Spec of a MachineHealthCheck.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineHealthCheck",
    plural = "machinehealthchecks",
    namespaced,
    schema = "disabled",
    status = "Map<String, Value>",
    derive = "Default",
    derive = "PartialEq",
    doc = "MachineHealthCheck has the owners of unhealthy Machines replace them."
)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineHealthCheckSpec {
    /// Name of the Cluster.
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Checks {
    /// For how long a Machine may have no Node; 600 if absent, no limit if 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_startup_timeout_seconds: Option<i32>,
    /// Conditions of the Node.
    #[serde(skip_serializing_if = "is_zero")]
    pub unhealthy_node_conditions: Vec<UnhealthyCondition>,
    /// Conditions of the Machine.
    #[serde(skip_serializing_if = "is_zero")]
    pub unhealthy_machine_conditions: Vec<UnhealthyCondition>,
    /// CEL expressions over Machine and Node.
    #[serde(skip_serializing_if = "is_zero")]
    pub unhealthy_expressions: Vec<Value>,
}

/// A condition that makes a Machine unhealthy if it lasts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UnhealthyCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// After how many seconds.
    pub timeout_seconds: i32,
}

/// Whether and how an unhealthy Machine is replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Remediation {
    /// When to replace at all.
    #[serde(skip_serializing_if = "is_zero")]
    pub trigger_if: TriggerIf,
    /// Template of an object whose controller replaces the Machine.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub template_ref: Map<String, Value>,
}

/// When to replace at all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TriggerIf {
    /// At most so many Machines are unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unhealthy_less_than_or_equal_to: Option<IntOrString>,
    /// The number of unhealthy Machines lies in this range, such as `[3-5]`.
    #[serde(skip_serializing_if = "is_zero")]
    pub unhealthy_in_range: String,
}
