use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    machine::MachineTemplate,
    machine_deployment::{Deletion, MachineNaming},
};
use crate::api::wire::is_zero;

/// Spec of a MachineSet.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineSet",
    plural = "machinesets",
    namespaced,
    schema = "disabled",
    status = "Map<String, Value>",
    derive = "Default",
    derive = "PartialEq",
    doc = "MachineSet keeps a number of equal Machines."
)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineSetSpec {
    /// Name of the Cluster.
    pub cluster_name: String,
    /// Desired number of Machines; 1 or the autoscaler's minimum if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Selects the Machines.
    pub selector: LabelSelector,
    /// Template of the Machines.
    pub template: MachineTemplate,
    /// How Machines are named.
    #[serde(skip_serializing_if = "is_zero")]
    pub machine_naming: MachineNaming,
    /// Which Machine is deleted first.
    #[serde(skip_serializing_if = "is_zero")]
    pub deletion: Deletion,
}
