use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{LabelSelector, Time},
    util::intstr::IntOrString,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MachineSummary, MachineTemplate, schema};
use crate::api::wire::{is_zero, null_as_default, selector};

/// Machines that are replaced gradually when their template changes.
#[expect(clippy::duplicated_attributes, reason = "each column says its type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machine.sapcloud.io",
    version = "v1alpha1",
    kind = "MachineDeployment",
    plural = "machinedeployments",
    singular = "machinedeployment",
    shortname = "mcd",
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
        description = "Number of machines that run."
    ),
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".spec.replicas",
        description = "Number of machines wanted."
    ),
    printcolumn(
        name = "Up-to-date",
        type_ = "integer",
        json_path = ".status.updatedReplicas",
        description = "Number of machines made from the current template."
    ),
    printcolumn(
        name = "Available",
        type_ = "integer",
        json_path = ".status.availableReplicas",
        description = "Number of machines that serve."
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
    /// How many Machines; 0 if absent.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub replicas: i32,
    /// Which Machines belong to the deployment. Must match the labels of the template.
    #[serde(default, deserialize_with = "selector", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::selector")]
    pub selector: Option<LabelSelector>,
    /// The Machines to make. A change of its labels, annotations or class name replaces all Machines.
    pub template: MachineTemplate,
    /// How Machines are replaced.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub strategy: Strategy,
    /// Stored and not used.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// How many old, empty sets to keep for a rollback; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: Option<i32>,
    /// If true, nothing is rolled out; scaling goes on.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub paused: bool,
    /// Asks for a rollback; cleared when done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_to: Option<RollbackConfig>,
    /// Seconds without progress after which the rollout is reported as stuck; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i32>,
    /// How many failed Machines of a set may be preserved automatically.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub auto_preserve_failed_machine_max: i32,
}

/// Which revision to return to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RollbackConfig {
    /// The revision; 0 for the one before.
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
    /// Old Machines go while new ones come, within bounds.
    RollingUpdate,
    /// All old Machines go before the first new one comes.
    Recreate,
    /// Machines are kept, their Nodes are updated.
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
    /// How many Machines may be missing: a number or a percentage of replicas, rounded down.
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
    /// How many Machines may be missing: a number or a percentage of replicas, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_unavailable: Option<IntOrString>,
    /// How many Machines may exist beyond replicas: a number or a percentage of replicas, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_surge: Option<IntOrString>,
    /// Who selects the Nodes to update: `Auto` (this controller) or `Manual` (a user).
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub orchestration_type: String,
}

/// What is known of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentStatus {
    /// Generation of the spec that this status answers.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// Machines that exist, terminating ones included.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub replicas: i32,
    /// Machines of the current template.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub updated_replicas: i32,
    /// Machines in phase Running.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Machines in phase Running or Available.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// Machines that are still missing.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub unavailable_replicas: i32,
    /// Failed Machines that are preserved.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub preserved_failed_replicas: i32,
    /// How often the name of a new set was taken.
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
    /// When the condition was last confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Why, in one word.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub reason: String,
    /// Why, in words.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub message: String,
}
