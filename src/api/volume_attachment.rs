//! A storage.k8s.io/v1 VolumeAttachment reduced to the fields that plans read, to save memory.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};

use super::wire::{is_zero, null_as_default};

/// A volume that is attached to a Node, or will be.
#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[resource(inherit = k8s_openapi::api::storage::v1::VolumeAttachment)]
pub struct VolumeAttachment {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// Volume and Node.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: VolumeAttachmentSpec,
    /// The volume is attached.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: VolumeAttachmentStatus,
}

impl VolumeAttachment {
    /// The PersistentVolume, or the name of the VolumeAttachment if its volume is described inline.
    pub fn volume(&self) -> &str {
        match self.spec.source.persistent_volume_name.as_str() {
            "" => self.metadata.name.as_deref().unwrap_or_default(),
            name => name,
        }
    }
}

/// Volume and Node of a VolumeAttachment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttachmentSpec {
    /// Name of the Node.
    #[serde(default, deserialize_with = "null_as_default")]
    pub node_name: String,
    /// The volume.
    #[serde(default, deserialize_with = "null_as_default")]
    pub source: VolumeAttachmentSource,
}

/// Volume of a VolumeAttachment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttachmentSource {
    /// Name of the PersistentVolume; empty if the volume is described inline.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub persistent_volume_name: String,
}

/// Status of a VolumeAttachment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeAttachmentStatus {
    /// It is attached.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub attached: bool,
}
