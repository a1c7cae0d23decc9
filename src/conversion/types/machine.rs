use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::NodeAddress,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use mcm_api::wire::is_zero;

/// Spec of a Machine.
#[expect(clippy::duplicated_attributes, reason = "each column says its type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Machine",
    plural = "machines",
    singular = "machine",
    shortname = "ma",
    category = "cluster-api",
    namespaced,
    status = "MachineStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Machine is one VM and the Node it becomes.",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.clusterName",
        description = "Cluster to which it belongs."
    ),
    printcolumn(
        name = "Node Name",
        type_ = "string",
        json_path = ".status.nodeRef.name",
        description = "Node that the VM became."
    ),
    printcolumn(
        name = "Provider ID",
        type_ = "string",
        json_path = ".spec.providerID",
        priority = 10,
        description = "ID of the VM, as its Node has it."
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether VM and Node are healthy."
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "Summary of the status."),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the object was created."
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".spec.version",
        description = "Version of Kubernetes."
    )
)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["bootstrap", "clusterName", "infrastructureRef"]))]
pub struct MachineSpec {
    /// Name of the Cluster.
    #[schemars(schema_with = "schema::cluster_name")]
    pub cluster_name: String,
    /// Source of the bootstrap data of the VM.
    #[serde(skip_serializing_if = "is_zero")]
    pub bootstrap: Bootstrap,
    /// The object of the infrastructure provider, or its template.
    pub infrastructure_ref: ObjectRef,
    /// Version of Kubernetes, with a leading `v`; not stated if empty.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(length(min = 1, max = 256))]
    pub version: String,
    /// ID of the VM, as the Node has it.
    #[serde(rename = "providerID", skip_serializing_if = "is_zero")]
    #[schemars(length(min = 1, max = 512))]
    pub provider_id: String,
    /// Zone of the VM; any if empty.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(length(min = 1, max = 256))]
    pub failure_domain: String,
    /// Seconds for which a Machine must be ready before it counts as available; 0 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: Option<i32>,
    /// Further conditions that a ready Machine must have.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(extend("minItems" = 1, "maxItems" = 32, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["conditionType"]))]
    pub readiness_gates: Vec<ReadinessGate>,
    /// Limits of a deletion.
    #[serde(skip_serializing_if = "is_zero")]
    pub deletion: MachineDeletion,
    /// Taints of the Node.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(extend("minItems" = 1, "maxItems" = 64, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"]))]
    pub taints: Vec<MachineTaint>,
}

/// Source of the bootstrap data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Bootstrap {
    /// The object of a bootstrap provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub config_ref: ObjectRef,
    /// Secret with the data under the key `value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub data_secret_name: Option<String>,
}

/// A reference to an object of any version in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["apiGroup", "kind", "name"]))]
pub struct ObjectRef {
    /// API group.
    #[schemars(schema_with = "schema::subdomain")]
    pub api_group: String,
    /// Kind.
    #[schemars(schema_with = "schema::kind")]
    pub kind: String,
    /// Name.
    #[schemars(schema_with = "schema::subdomain")]
    pub name: String,
}

/// A condition that a ready Machine must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["conditionType"]))]
pub struct ReadinessGate {
    /// Type of the condition.
    #[schemars(schema_with = "schema::condition_type")]
    pub condition_type: String,
    /// `Positive` or `Negative`.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::polarity")]
    pub polarity: String,
}

/// Limits of a deletion, in seconds; 0 is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeletion {
    /// For how long a drain may last; no limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_drain_timeout_seconds: Option<i32>,
    /// For how long to wait until volumes are detached; no limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_volume_detach_timeout_seconds: Option<i32>,
    /// For how long to try to delete the Node; 10 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_deletion_timeout_seconds: Option<i32>,
}

/// A taint of the Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["effect", "key", "propagation"]))]
pub struct MachineTaint {
    /// Key.
    #[schemars(schema_with = "schema::taint_key")]
    pub key: String,
    /// Value.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::taint_value")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[schemars(schema_with = "schema::taint_effect")]
    pub effect: String,
    /// `Always` or `OnInitialization`.
    #[schemars(schema_with = "schema::taint_propagation")]
    pub propagation: String,
}

/// Template of the Machines of a set or deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["spec"]))]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// One-time results of the initialization.
    #[serde(skip_serializing_if = "is_zero")]
    pub initialization: Initialization,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 32, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Generation of the object whose spec this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The Node of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct NodeRef {
    /// Name of the Node.
    pub name: String,
}

/// One-time results of the initialization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Initialization {
    /// The VM was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// The bootstrap data was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_data_secret_created: Option<bool>,
}
