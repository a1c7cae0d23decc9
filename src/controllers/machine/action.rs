use std::{collections::BTreeSet, fmt, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

use super::{memory::NodeWrite, views::NodeLookup};
use mcm_api::{
    machine::{Machine, MachineStatus},
    node::Node,
    patch,
};
use mcm_rules::{
    drain::{ClaimRef, PodRef},
    plan::SubjectRef,
    safety::meltdown::{self, PermitKey},
};

/// One I/O operation that a plan for a Machine can contain.
///
/// | Outcome | Reaction of the executor |
/// |---|---|
/// | an object was written | the response is in the cache before the next plan |
/// | a call returned | calls the `Snapshot` method named as "Result" of the action |
/// | a write to the Machine fails | the reconcile ends; the next one starts soon after a conflict, else backed off |
/// | a write to the Node fails | conflict: as above. Not found: `Snapshot::node_gone`. Else `Snapshot::node_failed` |
///
/// Steps of one plan do not depend on each other's results; consecutive pod calls run concurrently. If a step ends the
/// reconcile, the steps after it are dropped.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Read and merge the Secrets of the class. Result: `Snapshot::secret_read`.
    ReadSecret,
    /// `Driver::status`. Result: `Snapshot::vm_status`.
    GetVmStatus,
    /// `Driver::create`, with the placeholders of the user data substituted. Result: `Snapshot::vm_created`.
    CreateVm,
    /// `Driver::initialize`, with the placeholders of the user data substituted. Result: `Snapshot::vm_initialized`.
    InitializeVm,
    /// `Driver::delete`. Result: `Snapshot::vm_deleted`.
    DeleteVm,
    /// JSON merge patch of metadata and spec; the executor adds `metadata.resourceVersion` and `metadata.uid` as preconditions.
    /// Result: `Snapshot::machine_written` or `machine_refused`. Steps after a refused one are dropped.
    PatchMachine(Value),
    /// Replace the status, through `/status`, with the resource version as precondition. Result: `Snapshot::status_written`.
    WriteStatus(Box<MachineStatus>),
    /// JSON merge patch of a Node; the executor adds `metadata.resourceVersion` and `metadata.uid` as preconditions,
    /// because a merge patch replaces whole lists.
    PatchNode {
        /// The Node, as the plan saw it.
        node: Arc<Node>,
        /// The patch.
        patch: Value,
        /// Purpose of the write.
        purpose: NodeWrite,
    },
    /// Strategic merge patch of a Node's metadata and spec; the executor adds `metadata.uid` as precondition. It names
    /// single fields and list entries, so it needs no resource version.
    StrategicPatchNode {
        /// The Node, as the plan saw it.
        node: Arc<Node>,
        /// The patch.
        patch: Value,
        /// Purpose of the write.
        purpose: NodeWrite,
    },
    /// Strategic merge patch of a Node's `/status`. It names single conditions and resources, so it needs no resource
    /// version.
    PatchNodeStatus {
        /// The Node, as the plan saw it.
        node: Arc<Node>,
        /// The patch.
        patch: Value,
        /// Purpose of the write.
        purpose: NodeWrite,
    },
    /// Read a Node live by its name, or list Nodes by their label. Result: `Snapshot::node_was_read`.
    GetNode(NodeLookup),
    /// Delete a Node with its UID as precondition. After a 409 it is read. Result: `Snapshot::node_written` or
    /// `node_gone`.
    DeleteNode(Arc<Node>),
    /// Use the existing bootstrap token in the target cluster, or create one. Its secret part is random and known only
    /// to the executor. Result: `Snapshot::token_ensured`.
    EnsureBootstrapToken(BootstrapToken),
    /// Delete a bootstrap token. Result: `Snapshot::token_deleted`. A failure is only logged, because the token expires.
    DeleteBootstrapToken {
        /// ID of the token.
        id: String,
    },
    /// List the pods of a Node, live, and look up where the followed volumes are attached. Result:
    /// `Snapshot::pods_listed`.
    ListPods {
        /// Name of the Node.
        node: String,
    },
    /// Read PersistentVolumeClaims and their volumes live, and get the ID of each volume from the driver. Result:
    /// `Snapshot::volumes_read`.
    ReadVolumes(BTreeSet<ClaimRef>),
    /// Delete the VolumeAttachments of a Node, each with its UID as precondition. Result: `Snapshot::volumes_detached` or
    /// `node_failed`.
    DetachVolumes {
        /// Name of the Node.
        node: String,
    },
    /// Evict a pod (policy/v1) with its UID as precondition. After a refusal (429) the disruption budgets of the
    /// namespace are listed for `Refusal::of`. Result: `Snapshot::pod_called`.
    EvictPod(PodRef),
    /// Delete a pod with its UID as precondition and grace period 0. Result: `Snapshot::pod_called`.
    DeletePod(PodRef),
    /// Read the replacement permit of all keys without taking it: the calls before its use are made only if it is free.
    /// Result: `Snapshot::learned.permit`.
    LookAtPermit(Vec<PermitKey>),
    /// Take the replacement permit of all keys if they are free, then count the Machines of each. It is released when the
    /// reconcile ends and its writes are in the cache. Result: `Snapshot::learned.permit`.
    TakePermit(Vec<PermitKey>),
    /// Replace a Machine without a permit: a new VM has the name of its Node, so its VM is deleted.
    WaivePermit(Arc<Machine>),
}

/// A desired bootstrap token: Secret `bootstrap-token-<id>` in `kube-system`, type `bootstrap.kubernetes.io/token`,
/// with `usage-bootstrap-authentication` and `usage-bootstrap-signing` set to `true`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapToken {
    /// Public part, `[a-z0-9]{6}`.
    pub id: String,
    /// When it expires.
    pub expiration: Timestamp,
    /// `auth-extra-groups`, written even if empty.
    pub auth_extra_groups: String,
    /// `description`.
    pub description: String,
}

/// For logs, printed plans and transcripts. Patches are shown by their fields, without values.
impl Action {
    /// The object that it changes or reads, if that is another one than the object of the plan.
    pub(super) fn subject(&self) -> Option<SubjectRef> {
        match self {
            Self::PatchNode { node, .. }
            | Self::StrategicPatchNode { node, .. }
            | Self::PatchNodeStatus { node, .. }
            | Self::DeleteNode(node) => Some(SubjectRef::from_object(&**node)),
            Self::GetNode(NodeLookup::Name(node)) | Self::ListPods { node } | Self::DetachVolumes { node } => {
                Some(SubjectRef::named::<Node>(node))
            }
            Self::EvictPod(pod) | Self::DeletePod(pod) => Some(pod.subject()),
            Self::WaivePermit(machine) => Some(SubjectRef::from_object(&**machine)),
            Self::ReadSecret
            | Self::GetVmStatus
            | Self::CreateVm
            | Self::InitializeVm
            | Self::DeleteVm
            | Self::PatchMachine(_)
            | Self::WriteStatus(_)
            | Self::GetNode(NodeLookup::OfMachine(_))
            | Self::EnsureBootstrapToken(_)
            | Self::DeleteBootstrapToken { .. }
            | Self::ReadVolumes(_)
            | Self::LookAtPermit(_)
            | Self::TakePermit(_) => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        match self {
            Self::ReadSecret => f.write_str("read the Secrets of the class"),
            Self::GetVmStatus => f.write_str("get VM status"),
            Self::CreateVm => f.write_str("create VM"),
            Self::InitializeVm => f.write_str("initialize VM"),
            Self::DeleteVm => f.write_str("delete VM"),
            Self::PatchMachine(patch) => write!(f, "patch machine: {}", patch::fields(patch)),
            Self::WriteStatus(status) => {
                let (phase, operation) = (status.current_status.phase.as_str(), &status.last_operation);
                write!(f, "write status [{phase}] {:?}", operation.description)
            }
            Self::PatchNode { node, purpose, .. }
            | Self::StrategicPatchNode { node, purpose, .. }
            | Self::PatchNodeStatus { node, purpose, .. } => write!(f, "patch node {} ({purpose})", name(node)),
            Self::GetNode(NodeLookup::Name(node)) => write!(f, "read node {node}"),
            Self::GetNode(NodeLookup::OfMachine(machine)) => write!(f, "list nodes of machine {machine}"),
            Self::DeleteNode(node) => write!(f, "delete node {}", name(node)),
            Self::EnsureBootstrapToken(_) => f.write_str("ensure the bootstrap token"),
            Self::DeleteBootstrapToken { .. } => f.write_str("delete the bootstrap token"),
            Self::ListPods { node } => write!(f, "list pods of node {node}"),
            Self::ReadVolumes(claims) => {
                let names: Vec<String> = claims.iter().map(ToString::to_string).collect();
                write!(f, "read volumes of claims {}", names.join(", "))
            }
            Self::DetachVolumes { node } => write!(f, "delete volume attachments of node {node}"),
            Self::EvictPod(pod) => write!(f, "evict pod {pod}"),
            Self::DeletePod(pod) => write!(f, "delete pod {pod}"),
            Self::LookAtPermit(keys) => write!(f, "check the replacement permit of {}", meltdown::names(keys)),
            Self::TakePermit(keys) => write!(f, "take the replacement permit of {}", meltdown::names(keys)),
            Self::WaivePermit(machine) => {
                write!(f, "waive the replacement permit of {}", machine.metadata.name.as_deref().unwrap_or_default())
            }
        }
    }
}
