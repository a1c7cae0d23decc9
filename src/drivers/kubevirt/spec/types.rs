//! The fields of a `providerSpec`.

use std::collections::BTreeMap;

use serde_json::Value;

/// Kinds of sources of KubeVirt's Volume that classes can use.
pub(super) const SOURCES: [&str; 3] = ["persistentVolumeClaim", "configMap", "secret"];

/// A `providerSpec`. Fields that are wrong have their default.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spec {
    pub region: String,
    pub zone: String,
    /// KubeVirt's ResourceRequirements.
    pub resources: Value,
    pub devices: Devices,
    /// CDI's DataVolumeSpec.
    pub root_volume: Value,
    pub additional_volumes: Vec<AdditionalVolume>,
    pub ssh_keys: Vec<String>,
    pub networks: Vec<Network>,
    /// KubeVirt's CPU.
    pub cpu: Option<Value>,
    /// KubeVirt's Memory.
    pub memory: Option<Value>,
    pub dns_policy: Option<&'static str>,
    /// Kubernetes' PodDNSConfig.
    pub dns_config: Option<Value>,
    /// Labels of the VM, also those that only mcm sets.
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Devices {
    /// KubeVirt's Disk.
    pub disks: Vec<Value>,
    /// KubeVirt's Rng.
    pub rng: Option<Value>,
    pub block_multi_queue: bool,
    pub network_interface_multiqueue: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdditionalVolume {
    /// Only a disk of [`Devices`] refers to it.
    pub name: String,
    pub source: Source,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// CDI's DataVolumeSpec.
    DataVolume(Value),
    /// A kind of source of KubeVirt's Volume, and its value.
    Existing(&'static str, Value),
    /// None or several, which is a problem.
    Unusable(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// NetworkAttachmentDefinition: `name` or `namespace/name`.
    pub name: String,
    pub is_default: bool,
}
