//! A core/v1 Node reduced to the fields that plans read, to save memory.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeCondition, Taint},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::Resource;
use serde::{Deserialize, Serialize};

use super::wire::{is_zero, null_as_default};

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
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Volumes that are attached to the Node.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub volumes_attached: Vec<AttachedVolume>,
}

/// A volume that is attached to a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedVolume {
    /// Its name, which contains the ID of the volume at its provider.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
}
