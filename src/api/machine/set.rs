use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClassSpec, LastOperation, MOST_REPLICAS, MachineSummary, MachineTemplate, schema};
use crate::wire::{is_zero, null_as_default, selector};

/// Spec of a MachineSet.
#[expect(clippy::duplicated_attributes, reason = "each column says its type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machine.sapcloud.io",
    version = "v1alpha1",
    kind = "MachineSet",
    plural = "machinesets",
    singular = "machineset",
    shortname = "mcs",
    category = "mcm",
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
        description = "Desired number of machines."
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
        description = "Number of machines in phase Running."
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
    /// Desired number of Machines; 0 if absent.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(range(min = i32::MIN, max = MOST_REPLICAS))]
    pub replicas: i32,
    /// Selects the Machines of the set. Must match the labels of the template.
    #[serde(default, deserialize_with = "selector", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::selector_of_set")]
    pub selector: Option<LabelSelector>,
    /// Stored but not used; the template names the class.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub machine_class: ClassSpec,
    /// Template of the Machines.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub template: MachineTemplate,
    /// Stored but not used.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// How many failed Machines may be preserved automatically.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub auto_preserve_failed_machine_max: i32,
}

/// Status of a MachineSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineSetStatus {
    /// Machines that exist, including terminating ones.
    #[serde(default, deserialize_with = "null_as_default")]
    pub replicas: i32,
    /// Machines that carry all labels of the template.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub fully_labeled_replicas: i32,
    /// Machines in phase Running.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ready_replicas: i32,
    /// Machines in phase Running or Available.
    #[serde(default, deserialize_with = "null_as_default")]
    pub available_replicas: i32,
    /// Failed Machines that are preserved.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub preserved_failed_replicas: i32,
    /// Failed Machines that were preserved automatically.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub auto_preserve_failed_machine_count: i32,
    /// Generation of the spec that was last observed.
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
    /// When the status was last changed.
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
    /// Reason, in CamelCase.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub reason: String,
    /// Message for people.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub message: String,
}
