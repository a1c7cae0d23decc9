use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::NodeAddress,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Condition},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    super::machine::MachineMeta,
    machine::{ClassRef, ClassZones, NodeInfo},
    schema,
    status::Provisioning,
};
use mcm_api::{
    machine::{ClassContent, Strategy, schema as native},
    wire::is_zero,
};

/// Spec of an MCMMachinePool.
#[expect(clippy::duplicated_attributes, reason = "each column says its type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MCMMachinePool",
    plural = "mcmmachinepools",
    singular = "mcmmachinepool",
    category = "cluster-api",
    namespaced,
    status = "MCMMachinePoolStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "MCMMachinePool is the VMs of a MachinePool.",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",
        description = "Cluster to which it belongs."
    ),
    printcolumn(
        name = "MachinePool",
        type_ = "string",
        json_path = ".metadata.ownerReferences[?(@.kind==\"MachinePool\")].name",
        description = "CAPI MachinePool of these VMs."
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas", description = "Number of VMs."),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether all VMs are available and have the current template."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the object was created."
    )
)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::one_source()))]
pub struct MCMMachinePoolSpec {
    /// IDs of the VMs, as the Nodes have them.
    #[serde(rename = "providerIDList", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ids")]
    pub provider_id_list: Vec<String>,
    /// ID of the pool itself.
    #[serde(rename = "providerID", skip_serializing_if = "is_zero")]
    pub provider_id: String,
    /// The MachineClass that describes the VMs.
    #[serde(skip_serializing_if = "is_zero")]
    pub machine_class_ref: ClassRef,
    /// The description of the VMs itself, instead of a reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_class: Option<ClassContent>,
    /// Changes of `machineClass.providerSpec` by zone, as in an MCMMachine.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::class_zones")]
    pub zones: ClassZones,
    /// How the VMs are replaced; a rolling update if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// An existing MCM MachineDeployment that the pool mirrors and never changes.
    #[serde(skip_serializing_if = "is_zero")]
    pub machine_deployment_ref: ClassRef,
    /// `Enabled` if each VM is also a CAPI Machine: Cluster API core drains it, and health checks and the autoscaler see it.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::pool_machines")]
    pub machine_pool_machines: String,
}

/// Status of an MCMMachinePool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MCMMachinePoolStatus {
    /// The pool is usable. Core reads this instead of `initialization` for pools.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready: bool,
    /// One-time results of the initialization.
    #[serde(skip_serializing_if = "is_zero")]
    pub initialization: Provisioning,
    /// Number of VMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Kind of the objects for which Cluster API core creates Machines: `MCMMachine`, if each VM is a Machine.
    #[serde(skip_serializing_if = "is_zero")]
    pub infrastructure_machine_kind: String,
    /// The VMs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<PoolInstance>,
    /// Resources of a Node, for an autoscaler that begins with none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "native::quantities")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Properties of the Nodes: architecture and operating system.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_info: NodeInfo,
    /// Conditions; `Ready` summarizes the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 32, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A VM of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PoolInstance {
    /// Name of the MCM Machine.
    pub instance_name: String,
    /// Whether the VM runs and its Node is ready.
    pub ready: bool,
    /// ID of the VM, as its Node has it.
    #[serde(rename = "providerID", skip_serializing_if = "is_zero")]
    pub provider_id: String,
    /// Addresses of the VM. A pool of more than 1000 VMs shows none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<NodeAddress>,
    /// Version of Kubernetes in the MachinePool when the VM was created.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: String,
}

/// Spec of an MCMMachinePoolTemplate.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MCMMachinePoolTemplate",
    plural = "mcmmachinepooltemplates",
    singular = "mcmmachinepooltemplate",
    category = "cluster-api",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    doc = "MCMMachinePoolTemplate is the template of the MCMMachinePools of a ClusterClass."
)]
#[serde(default)]
#[schemars(extend("required" = ["template"]))]
pub struct MCMMachinePoolTemplateSpec {
    /// The template.
    pub template: PoolResource,
}

/// The template of an MCMMachinePool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["spec"]))]
pub struct PoolResource {
    /// Labels and annotations of each MCMMachinePool.
    #[serde(skip_serializing_if = "is_zero")]
    pub metadata: MachineMeta,
    /// Spec of each MCMMachinePool.
    pub spec: MCMMachinePoolSpec,
}
