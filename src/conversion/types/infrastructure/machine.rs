use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::NodeAddress,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Condition},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{super::machine::MachineMeta, schema, status::Provisioning};
use mcm_api::{
    load_balancer::LoadBalancer,
    machine::{ClassContent, schema as native},
    wire::is_zero,
};

/// Spec of an MCMMachine.
#[expect(clippy::duplicated_attributes, reason = "each column says its type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MCMMachine",
    plural = "mcmmachines",
    singular = "mcmmachine",
    category = "cluster-api",
    namespaced,
    status = "MCMMachineStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "MCMMachine is the VM of a Machine.",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",
        description = "Cluster to which it belongs."
    ),
    printcolumn(
        name = "Machine",
        type_ = "string",
        json_path = ".metadata.ownerReferences[?(@.kind==\"Machine\")].name",
        description = "CAPI Machine of this VM."
    ),
    printcolumn(
        name = "ProviderID",
        type_ = "string",
        json_path = ".spec.providerID",
        description = "ID of the VM, as its Node has it."
    ),
    printcolumn(
        name = "Provisioned",
        type_ = "boolean",
        json_path = ".status.initialization.provisioned",
        description = "Whether the VM exists."
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether the VM exists and all conditions hold."
    ),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        priority = 1,
        description = "Phase of the MCM Machine."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the object was created."
    )
)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::one_class()))]
pub struct MCMMachineSpec {
    /// ID of the VM, as the Node has it.
    #[serde(rename = "providerID", skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::id")]
    pub provider_id: String,
    /// The MachineClass that describes the VM.
    #[serde(skip_serializing_if = "is_zero")]
    pub machine_class_ref: ClassRef,
    /// The description of the VM itself, instead of a reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_class: Option<ClassContent>,
    /// Changes of `machineClass.providerSpec` by zone, so that one description has VMs in more than one zone. A change is
    /// merged: objects by their keys, of which `null` removes one, and lists by the positions of their elements. Any other
    /// value replaces the one of `machineClass`. The zone in `machineClass.nodeTemplate` becomes that of the Machine.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::class_zones")]
    pub zones: ClassZones,
    /// For how long the VM may take to be created, in seconds; without a limit if absent. Then it is reported as failed;
    /// only a MachineHealthCheck or a user replaces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timeout_seconds: Option<i32>,
    /// Labels, annotations and taints of the Node beyond those of Cluster API. Only the conversion reads it: with Cluster API
    /// core, set labels and taints of Nodes in the Machine.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_template: NodeMeta,
}

/// Changes of the `providerSpec` of a description, by zone.
pub type ClassZones = BTreeMap<String, Value>;

/// A reference to a MachineClass in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct ClassRef {
    /// Name of the class.
    #[schemars(schema_with = "schema::class_name")]
    pub name: String,
}

/// Labels, annotations and taints of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeMeta {
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Taints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<NodeTaint>,
}

/// A taint that is kept on the Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeTaint {
    /// Key.
    pub key: String,
    /// Value.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// Status of an MCMMachine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MCMMachineStatus {
    /// One-time results of the initialization.
    #[serde(skip_serializing_if = "is_zero")]
    pub initialization: Provisioning,
    /// Addresses of the VM.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<NodeAddress>,
    /// Zone of the VM.
    #[serde(skip_serializing_if = "is_zero")]
    pub failure_domain: String,
    /// The cloud may take the VM back at any time.
    #[serde(skip_serializing_if = "is_zero")]
    pub interruptible: bool,
    /// The MCM Machine that owns the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_ref: Option<ClassRef>,
    /// Phase of the MCM Machine.
    #[serde(skip_serializing_if = "is_zero")]
    pub phase: String,
    /// Load balancers in which the VM is or may be registered. The VM is not deleted before it was deregistered from them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::load_balancers")]
    pub load_balancers: Vec<LoadBalancer>,
    /// Conditions; `Ready` summarizes the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 32, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Spec of an MCMMachineTemplate.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MCMMachineTemplate",
    plural = "mcmmachinetemplates",
    singular = "mcmmachinetemplate",
    category = "cluster-api",
    namespaced,
    status = "MCMMachineTemplateStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "MCMMachineTemplate is the template of the MCMMachines of a set or deployment."
)]
#[serde(default)]
#[schemars(extend("required" = ["template"]))]
pub struct MCMMachineTemplateSpec {
    /// The template.
    pub template: TemplateResource,
}

/// The template of an MCMMachine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["spec"]))]
pub struct TemplateResource {
    /// Labels and annotations of each MCMMachine.
    #[serde(skip_serializing_if = "is_zero")]
    pub metadata: MachineMeta,
    /// Spec of each MCMMachine.
    pub spec: MCMMachineSpec,
}

/// Status of an MCMMachineTemplate, from which an autoscaler can scale from zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MCMMachineTemplateStatus {
    /// Resources of a Node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "native::quantities")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Properties of the Nodes: architecture and operating system.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_info: NodeInfo,
}

/// Properties of the Nodes: architecture and operating system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeInfo {
    /// `amd64`, `arm64`, `s390x` or `ppc64le`.
    #[serde(skip_serializing_if = "is_zero")]
    pub architecture: String,
    /// Operating system, such as `linux`.
    #[serde(skip_serializing_if = "is_zero")]
    pub operating_system: String,
}
