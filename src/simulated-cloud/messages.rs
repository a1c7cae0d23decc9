//! Messages between the simulated cloud and its drivers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeAddress;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use mcm_api::GoDuration;
use mcm_driver::code::Code;

/// The prefix of every provider ID; zone and ID follow.
pub const PROVIDER_ID_PREFIX: &str = "simulated:///";

/// A VM to be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateVm {
    /// Name of the Machine, and of the Node.
    pub machine_name: String,
    /// Namespace of the Machine.
    pub namespace: String,
    /// Tag that keeps VMs of different owners apart; the namespace if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Marker of the owner, for its orphan collector; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Makes the call repeatable: the UID of the Machine. Without it every call makes another VM.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// Length of the user data, which itself is not sent.
    #[serde(default)]
    pub user_data_bytes: usize,
    /// Description of the VM.
    #[serde(default)]
    pub provider_spec: Value,
}

/// Selects the VMs of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmSelector {
    /// Only VMs of this cluster; of all clusters if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The VMs of this Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// This single VM, of any Machine.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
}

/// A VM as the API shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmView {
    /// Its ID, never used twice.
    pub id: String,
    /// Provider ID, which is also `spec.providerID` of its Node.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Name of its Machine.
    pub machine_name: String,
    /// Namespace of its Machine.
    pub namespace: String,
    /// The cluster it belongs to.
    pub cluster: String,
    /// Marker of its owner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Token of the call that made it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// Name of its Node.
    pub node_name: String,
    /// The state of the VM.
    pub state: VmState,
    /// False while it waits to be initialized.
    pub initialized: bool,
    /// Its addresses.
    pub addresses: Vec<NodeAddress>,
    /// Its region.
    pub region: String,
    /// Its zone.
    pub zone: String,
    /// Its type.
    pub instance_type: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Length of its user data.
    pub user_data_bytes: usize,
    /// Volumes attached to it.
    pub volumes: Vec<String>,
    /// Node conditions that were set by a control request.
    pub conditions: Vec<ConditionRequest>,
    /// When its creation began.
    pub created_at: Timestamp,
    /// Its Node was registered.
    pub joined: bool,
}

/// The state of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VmState {
    /// The create call still runs.
    Creating,
    /// Registering a Node, or waiting to be initialized.
    Booting,
    /// Up.
    Running,
    /// Killed, but not deleted.
    Stopped,
    /// A delete call runs.
    Deleting,
}

/// Several VMs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VmList {
    /// By ID.
    pub items: Vec<VmView>,
}

/// A VM of a list as its drivers read it: only its identity and its owner.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmListItem {
    /// Provider ID.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Name of its Machine.
    pub machine_name: String,
    /// Marker of its owner.
    #[serde(default)]
    pub owner: String,
}

/// A [`VmList`] as its drivers read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ListedVms {
    /// By ID.
    pub items: Vec<VmListItem>,
}

/// The way in which a VM is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KillMode {
    /// It stops, and stays visible.
    #[default]
    Stop,
    /// The VM is deleted; its Node remains.
    Vanish,
    /// The VM and its Node are deleted.
    Unregister,
}

/// Body of a kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KillRequest {
    /// How.
    #[serde(default)]
    pub mode: KillMode,
}

/// The cluster and the owner that a VM belongs to from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TagRequest {
    /// Its tag; empty for a VM of no cluster.
    pub cluster: String,
    /// Marker of its owner; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
}

/// A Node condition that a control request sets or removes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConditionRequest {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`; none takes the condition back.
    pub status: Option<String>,
    /// Reason.
    #[serde(default)]
    pub reason: String,
    /// Text.
    #[serde(default)]
    pub message: String,
}

/// Volumes to attach and detach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumesRequest {
    /// To attach.
    #[serde(default)]
    pub attach: Vec<String>,
    /// To detach.
    #[serde(default)]
    pub detach: Vec<String>,
}

/// A deleted VM whose Node still exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DepartedView {
    /// ID of the VM.
    pub id: String,
    /// Provider ID of the VM.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Name of the Node.
    pub node_name: String,
    /// When the VM went.
    pub at: Timestamp,
}

/// A load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancerView {
    /// Its name.
    pub name: String,
    /// IDs of the VMs that are registered, also of deleted ones.
    pub members: Vec<String>,
}

/// The whole state of the cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StateView {
    /// VMs of all clusters, by ID.
    pub vms: Vec<VmView>,
    /// Deleted VMs whose Nodes still exist, by ID.
    pub departed: Vec<DepartedView>,
}

/// A call that failed, and the body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
#[serde(rename_all = "camelCase")]
pub struct CloudCallError {
    /// The kind of failure.
    #[serde(serialize_with = "write_code", deserialize_with = "read_code")]
    pub code: Code,
    /// The attempted operation and the reason of its failure.
    pub message: String,
    /// State for the caller to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_known_state: Option<String>,
    /// With [`Code::Uninitialized`]: the VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<Box<VmView>>,
    /// The cloud still works on it: the same call continues after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_again_in: Option<GoDuration>,
}

impl CloudCallError {
    /// A failure that carries only its code and text.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), last_known_state: None, vm: None, call_again_in: None }
    }
}

/// Writes the name of a code.
pub(super) fn write_code<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(code.as_str())
}

/// Reads the name of a code; a name from elsewhere is [`Code::Unknown`].
fn read_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
    Ok(String::deserialize(deserializer)?.parse().unwrap_or(Code::Unknown))
}
