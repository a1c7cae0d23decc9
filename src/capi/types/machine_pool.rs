use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    infrastructure::{ClassRef, InlineClass},
    machine::MachineTemplate,
};
use crate::api::{machine::Strategy, wire::is_zero};

/// Spec of a MachinePool.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachinePool",
    plural = "machinepools",
    namespaced,
    schema = "disabled",
    status = "Map<String, Value>",
    derive = "Default",
    derive = "PartialEq",
    doc = "MachinePool is a number of Machines that its infrastructure provider keeps."
)]
#[serde(default, rename_all = "camelCase")]
pub struct MachinePoolSpec {
    /// Name of the Cluster.
    pub cluster_name: String,
    /// Desired number of Machines; 1 or the autoscaler's minimum if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Template of the Machines.
    pub template: MachineTemplate,
    /// IDs of the VMs, copied from the infrastructure object.
    #[serde(rename = "providerIDList", skip_serializing_if = "Vec::is_empty")]
    pub provider_id_list: Vec<String>,
    /// Zones over which the Machines are spread.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failure_domains: Vec<String>,
}

/// Spec of an MCMMachinePool.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MCMMachinePool",
    plural = "mcmmachinepools",
    namespaced,
    schema = "disabled",
    status = "Map<String, Value>",
    derive = "Default",
    derive = "PartialEq",
    doc = "MCMMachinePool is the VMs of a MachinePool."
)]
#[serde(default, rename_all = "camelCase")]
pub struct MCMMachinePoolSpec {
    /// IDs of the VMs, as the Nodes have them.
    #[serde(rename = "providerIDList", skip_serializing_if = "Vec::is_empty")]
    pub provider_id_list: Vec<String>,
    /// ID of the pool itself.
    #[serde(rename = "providerID", skip_serializing_if = "is_zero")]
    pub provider_id: String,
    /// The MachineClass that describes the VMs.
    #[serde(skip_serializing_if = "is_zero")]
    pub machine_class_ref: ClassRef,
    /// The description of the VMs itself, instead of a reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_class: Option<InlineClass>,
    /// How the VMs are replaced; a rolling update if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// An existing native MachineDeployment that the pool shows.
    #[serde(skip_serializing_if = "is_zero")]
    pub machine_deployment_ref: ClassRef,
    /// `Enabled` if each VM is a Machine of Cluster API, too.
    #[serde(skip_serializing_if = "is_zero")]
    pub machine_pool_machines: String,
}
