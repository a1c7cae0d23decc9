use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::NodeAddress,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::wire::is_zero;

/// Spec of a Machine.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Machine",
    plural = "machines",
    namespaced,
    schema = "disabled",
    status = "MachineStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Machine is one VM and the Node it becomes."
)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineSpec {
    /// Name of the Cluster.
    pub cluster_name: String,
    /// Where the data that the VM boots with comes from.
    #[serde(skip_serializing_if = "is_zero")]
    pub bootstrap: Bootstrap,
    /// The object of the infrastructure provider, or its template.
    pub infrastructure_ref: ObjectRef,
    /// Version of Kubernetes, with a leading `v`; not stated if empty.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: String,
    /// ID of the VM, as the Node has it.
    #[serde(rename = "providerID", skip_serializing_if = "is_zero")]
    pub provider_id: String,
    /// Zone of the VM; any if empty.
    #[serde(skip_serializing_if = "is_zero")]
    pub failure_domain: String,
    /// Seconds for which a Machine must be ready before it counts as available; 0 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<i32>,
    /// Further conditions that a ready Machine must have.
    #[serde(skip_serializing_if = "is_zero")]
    pub readiness_gates: Vec<ReadinessGate>,
    /// Limits of a deletion.
    #[serde(skip_serializing_if = "is_zero")]
    pub deletion: MachineDeletion,
    /// Taints of the Node.
    #[serde(skip_serializing_if = "is_zero")]
    pub taints: Vec<MachineTaint>,
}

/// Where the bootstrap data comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Bootstrap {
    /// The object of a bootstrap provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub config_ref: ObjectRef,
    /// Secret with the data under the key `value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
}

/// A reference to an object of any version in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectRef {
    /// API group.
    pub api_group: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// A condition that a ready Machine must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReadinessGate {
    /// Type of the condition.
    pub condition_type: String,
    /// `Positive` or `Negative`.
    #[serde(skip_serializing_if = "is_zero")]
    pub polarity: String,
}

/// Limits of a deletion, in seconds; 0 is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineDeletion {
    /// For how long a drain may last; no limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_drain_timeout_seconds: Option<i32>,
    /// For how long to wait until volumes are detached; no limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_volume_detach_timeout_seconds: Option<i32>,
    /// For how long to try to delete the Node; 10 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_deletion_timeout_seconds: Option<i32>,
}

/// A taint of the Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineTaint {
    /// Key.
    pub key: String,
    /// Value.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// `Always` or `OnInitialization`.
    pub propagation: String,
}

/// Template of the Machines of a set or deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineTemplate {
    /// Labels and annotations of each Machine.
    #[serde(skip_serializing_if = "is_zero")]
    pub metadata: MachineMeta,
    /// Spec of each Machine.
    pub spec: MachineSpec,
}

/// Labels and annotations in a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MachineMeta {
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Status of a Machine, as far as mcm writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineStatus {
    /// The Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<NodeRef>,
    /// Addresses of the VM.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<NodeAddress>,
    /// Summary for people.
    #[serde(skip_serializing_if = "is_zero")]
    pub phase: String,
    /// When the phase began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// What happened once and stays.
    #[serde(skip_serializing_if = "is_zero")]
    pub initialization: Initialization,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The Node of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeRef {
    /// Name of the Node.
    pub name: String,
}

/// What happened once and stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Initialization {
    /// The VM was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// The bootstrap data was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_data_secret_created: Option<bool>,
}
