use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::machine::MachineTemplate;

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
