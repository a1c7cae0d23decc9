use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LastOperation, MachineSpec, TemplateMeta};
use crate::wire::{is_zero, null_as_default};

/// Template of the Machines of a MachineSet or MachineDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineTemplate {
    /// Labels, annotations and finalizers of each Machine. The labels must contain those of the selector.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub metadata: TemplateMeta,
    /// Specification of each Machine.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub spec: MachineSpec,
}

/// A Machine whose last operation failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineSummary {
    /// Name of the Machine.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub name: String,
    /// ID of its VM at the cloud provider; empty if there is none yet.
    #[serde(rename = "providerID", default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub provider_id: String,
    /// The failed operation.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub last_operation: LastOperation,
    /// Name of the owner of the Machine.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub owner_ref: String,
}
