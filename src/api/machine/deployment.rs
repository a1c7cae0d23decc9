use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{LabelSelector, Time},
    util::intstr::IntOrString,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MOST_REPLICAS, MachineSummary, MachineTemplate, schema};
use crate::wire::{is_zero, null_as_default, selector};

/// Spec of a MachineDeployment.
#[expect(clippy::duplicated_attributes, reason = "each column says its type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machine.sapcloud.io",
    version = "v1alpha1",
    kind = "MachineDeployment",
    plural = "machinedeployments",
    singular = "machinedeployment",
    shortname = "mcd",
    category = "mcm",
    namespaced,
    status = "MachineDeploymentStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "MachineDeployment keeps a number of Machines and replaces them gradually when their template changes.",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas"),
    printcolumn(
        name = "Ready",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "Number of machines in phase Running."
    ),
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".spec.replicas",
        description = "Desired number of machines."
    ),
    printcolumn(
        name = "Up-to-date",
        type_ = "integer",
        json_path = ".status.updatedReplicas",
        description = "Number of machines with the current template."
    ),
    printcolumn(
        name = "Available",
        type_ = "integer",
        json_path = ".status.availableReplicas",
        description = "Number of available machines."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the deployment was created."
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::deployment_rules()))]
pub struct MachineDeploymentSpec {
    /// Desired number of Machines; 0 if absent.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(range(min = i32::MIN, max = MOST_REPLICAS))]
    pub replicas: i32,
    /// Selects the Machines of the deployment. Must match the labels of the template.
    #[serde(default, deserialize_with = "selector", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::selector_of_deployment")]
    pub selector: Option<LabelSelector>,
    /// Template of the Machines. A change of its labels, annotations or class name replaces all Machines.
    pub template: MachineTemplate,
    /// How Machines are replaced.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub strategy: Strategy,
    /// Stored but not used.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// How many old, empty MachineSets to keep for a rollback; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: Option<i32>,
    /// If true, the rollout is paused; scaling continues.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub paused: bool,
    /// Requests a rollback; cleared when done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_to: Option<RollbackConfig>,
    /// Seconds without progress after which the condition Progressing becomes False; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i32>,
    /// How many failed Machines of a set may be preserved automatically.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub auto_preserve_failed_machine_max: i32,
}

/// A request to roll back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RollbackConfig {
    /// The revision; 0 for the previous one.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub revision: i64,
}

/// How Machines are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::strategy_rules()))]
pub struct Strategy {
    /// `RollingUpdate`, `Recreate` or `InPlaceUpdate`.
    #[serde(rename = "type", default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::strategy_type")]
    pub type_: String,
    /// Bounds of a rolling update; both are required when the type is RollingUpdate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
    /// Bounds of an in-place update; required when the type is InPlaceUpdate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update: Option<InPlaceUpdate>,
}

/// A recognised strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrategyType {
    /// Old Machines are deleted while new ones are created, within the bounds.
    RollingUpdate,
    /// All old Machines are deleted before the first new one is created.
    Recreate,
    /// Machines are kept and their Nodes are updated in place.
    InPlaceUpdate,
}

impl Strategy {
    /// The type, if it is one.
    pub fn kind(&self) -> Option<StrategyType> {
        match self.type_.as_str() {
            "RollingUpdate" => Some(StrategyType::RollingUpdate),
            "Recreate" => Some(StrategyType::Recreate),
            "InPlaceUpdate" => Some(StrategyType::InPlaceUpdate),
            _ => None,
        }
    }
}

/// Bounds of a rolling update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// How many Machines may be unavailable: a number or a percentage of replicas, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_unavailable: Option<IntOrString>,
    /// How many Machines may exist beyond replicas: a number or a percentage of replicas, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_surge: Option<IntOrString>,
}

/// Bounds of an in-place update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceUpdate {
    /// How many Machines may be unavailable: a number or a percentage of replicas, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_unavailable: Option<IntOrString>,
    /// How many Machines may exist beyond replicas: a number or a percentage of replicas, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_surge: Option<IntOrString>,
    /// Selects the Nodes to update: `Auto` (this controller) or `Manual` (a user).
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub orchestration_type: String,
}

/// Status of a MachineDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentStatus {
    /// Generation of the spec that was last observed.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// Machines that exist, including terminating ones.
    #[serde(default, deserialize_with = "null_as_default")]
    pub replicas: i32,
    /// Machines with the current template.
    #[serde(default, deserialize_with = "null_as_default")]
    pub updated_replicas: i32,
    /// Machines in phase Running.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ready_replicas: i32,
    /// Machines in phase Running or Available.
    #[serde(default, deserialize_with = "null_as_default")]
    pub available_replicas: i32,
    /// Machines that are missing or not available.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub unavailable_replicas: i32,
    /// Failed Machines that are preserved.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub preserved_failed_replicas: i32,
    /// How often the name of a new MachineSet was already taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Conditions of the deployment.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<MachineDeploymentCondition>,
    /// Machines whose last operation failed.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub failed_machines: Vec<MachineSummary>,
}

/// A condition of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When the condition was last updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Reason, in CamelCase.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub reason: String,
    /// Message for people.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub message: String,
}
