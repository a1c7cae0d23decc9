//! A core/v1 Node reduced to the fields that plans read, to save memory.

use std::borrow::Cow;

use k8s_openapi::{
    api::core::v1::{self, Taint},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{
    sharing::{SharedText, TextMap},
    wire::{is_zero, null_as_default},
};

/// A Node.
#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[resource(inherit = k8s_openapi::api::core::v1::Node)]
pub struct Node {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// Taints and cordon.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: NodeSpec,
    /// Conditions, capacity and volumes.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: NodeStatus,
}

/// Taints and cordon of a Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSpec {
    /// The Node is cordoned.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub unschedulable: bool,
    /// Taints.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// ID of the VM behind the Node.
    #[serde(rename = "providerID", default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub provider_id: String,
}

/// Conditions, capacity and volumes of a Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Conditions.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
    /// Resources of the Node.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "TextMap::is_empty")]
    pub capacity: TextMap,
    /// Volumes that are attached to the Node.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub volumes_attached: Vec<AttachedVolume>,
}

/// A condition of a Node. Nodes and Machines have a dozen with the same texts, which their caches share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCondition {
    /// When it was last confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
    /// When its status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Message for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<SharedText>,
    /// Reason for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<SharedText>,
    /// `True`, `False` or `Unknown`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: SharedText,
    /// Its type.
    #[serde(rename = "type", default, deserialize_with = "null_as_default")]
    pub type_: SharedText,
}

impl NodeCondition {
    /// All of its texts, so that equal ones can be shared.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut SharedText> {
        [&mut self.status, &mut self.type_].into_iter().chain(&mut self.message).chain(&mut self.reason)
    }
}

/// The schema of Kubernetes.
impl JsonSchema for NodeCondition {
    fn schema_name() -> Cow<'static, str> {
        v1::NodeCondition::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        v1::NodeCondition::json_schema(generator)
    }
}

/// A volume that is attached to a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedVolume {
    /// Its name, which contains the ID of the volume at its provider.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
}
