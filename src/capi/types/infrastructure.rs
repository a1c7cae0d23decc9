//! The kinds of mcm's own infrastructure provider, as far as the conversion needs them.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::machine::MachineMeta;
use crate::api::{
    machine::{ClassNodeTemplate, SecretRef},
    wire::is_zero,
};

/// Spec of an MCMMachine.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MCMMachine",
    plural = "mcmmachines",
    namespaced,
    schema = "disabled",
    status = "Map<String, Value>",
    derive = "Default",
    derive = "PartialEq",
    doc = "MCMMachine is the VM of a Machine."
)]
#[serde(default, rename_all = "camelCase")]
pub struct MCMMachineSpec {
    /// ID of the VM, as the Node has it.
    #[serde(rename = "providerID", skip_serializing_if = "is_zero")]
    pub provider_id: String,
    /// The MachineClass that describes the VM.
    #[serde(skip_serializing_if = "is_zero")]
    pub machine_class_ref: ClassRef,
    /// The description of the VM itself, instead of a reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_class: Option<InlineClass>,
    /// For how long the VM may take to be created, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timeout_seconds: Option<i32>,
    /// What the Node gets in addition to what Cluster API gives it.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_template: NodeMeta,
}

/// A reference to a MachineClass in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassRef {
    /// Name of the class.
    pub name: String,
}

/// The content of a MachineClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InlineClass {
    /// Name of the driver.
    #[serde(skip_serializing_if = "is_zero")]
    pub provider: String,
    /// Configuration of the VM for the driver.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub provider_spec: Value,
    /// Properties of the Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_template: Option<ClassNodeTemplate>,
    /// Secret with the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretRef>,
}

/// Labels, annotations and taints of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// Spec of an MCMMachineTemplate.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MCMMachineTemplate",
    plural = "mcmmachinetemplates",
    namespaced,
    schema = "disabled",
    status = "Map<String, Value>",
    derive = "Default",
    derive = "PartialEq",
    doc = "MCMMachineTemplate is the template of the MCMMachines of a set or deployment."
)]
#[serde(default)]
pub struct MCMMachineTemplateSpec {
    /// The template.
    pub template: TemplateResource,
}

/// The template of an MCMMachine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateResource {
    /// Labels and annotations of each MCMMachine.
    #[serde(skip_serializing_if = "is_zero")]
    pub metadata: MachineMeta,
    /// Spec of each MCMMachine.
    pub spec: MCMMachineSpec,
}
