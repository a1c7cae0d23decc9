use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::memory::NodeWrite;
use crate::{
    api::{machine::MachineStatus, node::Node},
    drain::PodRef,
};

/// What can be done for a Machine.
///
/// | Outcome | What the shell does |
/// |---|---|
/// | an object was written | the answer replaces the object in the snapshot |
/// | a call was answered | the `Snapshot` method named at the action |
/// | a write to the Machine fails | the pass ends; observe again, soon if it was a conflict, else backed off |
/// | a write to the Node fails | conflict: as above. Not found: [`super::NodeView::Absent`]. Else `Snapshot::node_failed` |
///
/// Steps of one plan do not depend on each other's outcome; consecutive pod calls may run concurrently. If one fails in a
/// way that ends the pass, those after it are dropped.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Read and merge the Secrets of the class. Answer: `Snapshot::secret_read`.
    ReadSecret,
    /// `Driver::status`. Answer: `Snapshot::vm_asked`.
    AskVm,
    /// `Driver::create`, with the placeholders of the user data filled in. Answer: `Snapshot::vm_created`.
    CreateVm,
    /// `Driver::initialize`, with the placeholders of the user data filled in. Answer: `Snapshot::vm_initialized`.
    InitializeVm,
    /// `Driver::delete`. Answer: `Snapshot::vm_deleted`.
    DeleteVm,
    /// JSON merge patch of metadata and spec; the shell adds `metadata.resourceVersion` and `metadata.uid` as preconditions.
    PatchMachine(Value),
    /// Write the status as a whole, through `/status`, with the resource version as precondition. What is absent is removed.
    WriteStatus(Box<MachineStatus>),
    /// JSON merge patch of a Node; the shell adds `metadata.resourceVersion` and `metadata.uid` as preconditions, for
    /// lists are replaced as a whole.
    PatchNode {
        /// The Node, as the plan saw it.
        node: Arc<Node>,
        /// The patch.
        patch: Value,
        /// What for.
        purpose: NodeWrite,
    },
    /// Strategic merge patch of a Node's metadata and spec; the shell adds `metadata.uid` as precondition. Needs no resource
    /// version: it names single fields and entries of lists, so it does not matter who else writes the Node.
    AmendNode {
        /// The Node, as the plan saw it.
        node: Arc<Node>,
        /// The patch.
        patch: Value,
        /// What for.
        purpose: NodeWrite,
    },
    /// Strategic merge patch of a Node's `/status`. Needs no resource version: it names single conditions and resources.
    PatchNodeStatus {
        /// The Node, as the plan saw it.
        node: Arc<Node>,
        /// The patch.
        patch: Value,
        /// What for.
        purpose: NodeWrite,
    },
    /// Delete a Node, with its UID as precondition. Not found and another UID: [`super::NodeView::Absent`]. If finalizers
    /// of others hold it, the answered object replaces the one in the snapshot.
    DeleteNode(Arc<Node>),
    /// Have a bootstrap token in the target cluster: use the one that is there, or make one. Its secret part is random and
    /// known to the shell only. Answer: `Snapshot::token`.
    EnsureBootstrapToken(BootstrapToken),
    /// Delete a bootstrap token. Not found is success, any failure is logged only: it expires by itself.
    DeleteBootstrapToken {
        /// ID of the token.
        id: String,
    },
    /// List the pods of a Node, live. Answer: `Snapshot::pods_listed`.
    ListPods {
        /// Name of the Node.
        node: String,
    },
    /// Evict a pod (policy/v1) with its UID as precondition. Not found and another UID (409) mean gone. At a refusal (429)
    /// list the disruption budgets of the namespace for `Refusal::of`. Answer: `Snapshot::pod_called`.
    EvictPod(PodRef),
    /// Delete a pod with its UID as precondition and grace period 0. Answer: `Snapshot::pod_called`.
    DeletePod(PodRef),
    /// Take the permit of a key if it is free, then count the Machines of the key. It is given back when the pass ends
    /// and what was written can be seen by other passes. Answer: `Snapshot::permit`.
    TakePermit {
        /// The key: value of the label `name`.
        key: String,
    },
}

/// A bootstrap token to have: Secret `bootstrap-token-<id>` in `kube-system`, type `bootstrap.kubernetes.io/token`, with
/// `usage-bootstrap-authentication` and `usage-bootstrap-signing` set to `true`.
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
