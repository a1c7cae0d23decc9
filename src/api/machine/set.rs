use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClassSpec, LastOperation, MachineSummary, MachineTemplate, schema};
use crate::api::wire::{is_zero, null_as_default, selector};

/// A number of equal Machines.
#[expect(clippy::duplicated_attributes, reason = "each column says its type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machine.sapcloud.io",
    version = "v1alpha1",
    kind = "MachineSet",
    plural = "machinesets",
    singular = "machineset",
    shortname = "mcs",
    namespaced,
    status = "MachineSetStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "MachineSet keeps a number of equal Machines.",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas"),
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".spec.replicas",
        description = "Number of machines wanted."
    ),
    printcolumn(
        name = "Current",
        type_ = "integer",
        json_path = ".status.replicas",
        description = "Number of machines that exist."
    ),
    printcolumn(
        name = "Ready",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "Number of machines that run."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the set was created."
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::set_rules()))]
pub struct MachineSetSpec {
    /// How many Machines; 0 if absent.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub replicas: i32,
    /// Which Machines belong to the set. Must match the labels of the template.
    #[serde(default, deserialize_with = "selector", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::selector")]
    pub selector: Option<LabelSelector>,
    /// Stored and not used; the class is named in the template.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub machine_class: ClassSpec,
    /// The Machines to make.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub template: MachineTemplate,
    /// Stored and not used.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// How many failed Machines may be preserved automatically.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub auto_preserve_failed_machine_max: i32,
}

/// What is known of a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineSetStatus {
    /// Machines that exist, terminating ones included.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub replicas: i32,
    /// Machines that carry all labels of the template.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub fully_labeled_replicas: i32,
    /// Machines in phase Running.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Machines in phase Running or Available.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// Failed Machines that are preserved.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub preserved_failed_replicas: i32,
    /// Failed Machines that were preserved automatically.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub auto_preserve_failed_machine_count: i32,
    /// Generation of the spec that this status answers.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// Conditions of the set.
    #[serde(
        rename = "machineSetCondition",
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<MachineSetCondition>,
    /// When the set last acted.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub last_operation: LastOperation,
    /// Machines whose last operation failed.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub failed_machines: Vec<MachineSummary>,
}

/// A condition of a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineSetCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
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
