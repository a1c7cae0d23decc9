//! The calls to the API server of the target cluster.

use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api, Client, Error, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::Value;

use super::node;
use crate::record::{DepartedVm, NodeLink, VmRecord};

/// The Nodes and Leases of a cluster.
#[derive(Clone)]
pub(super) struct NodeClient {
    nodes: Api<Node>,
    leases: Api<Lease>,
}

/// The result of a registration.
pub(super) enum RegistrationOutcome {
    /// The Node of the VM exists, with this UID.
    Done(String),
    /// The Node of another VM has the name.
    Occupied,
}

impl NodeClient {
    pub(super) fn new(client: Client) -> Self {
        Self { nodes: Api::all(client.clone()), leases: Api::namespaced(client, node::LEASE_NAMESPACE) }
    }

    /// Creates the Node of a VM, or finds it.
    pub(super) async fn register(&self, vm: &VmRecord, now: Timestamp) -> Result<RegistrationOutcome, Error> {
        match self.nodes.create(&PostParams::default(), &node::node(vm, now)).await {
            Ok(node) => Ok(RegistrationOutcome::Done(node.uid().unwrap_or_default())),
            Err(Error::Api(status)) if status.is_already_exists() => {
                let node = self.nodes.get(&vm.machine_name).await?;
                let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_ref());
                Ok(if provider_id == Some(&vm.provider_id()) {
                    RegistrationOutcome::Done(node.uid().unwrap_or_default())
                } else {
                    RegistrationOutcome::Occupied
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the state of the VM to its Node; false if the Node does not exist.
    pub(super) async fn update(&self, vm: &VmRecord, now: Timestamp) -> Result<bool, Error> {
        let registered_at = match &vm.node {
            NodeLink::Registered { at, .. } => *at,
            NodeLink::None | NodeLink::Asked | NodeLink::Lost { .. } => now,
        };
        self.patch_status(&vm.machine_name, &node::status(vm, registered_at, now)).await
    }

    /// Marks a Node as dead; false if the Node does not exist.
    pub(super) async fn mark_dead(&self, name: &str, now: Timestamp) -> Result<bool, Error> {
        self.patch_status(name, &node::dead(now)).await
    }

    /// Renews the Lease of a Node, which is made at first.
    pub(super) async fn renew(&self, vm: &VmRecord, now: Timestamp) -> Result<(), Error> {
        let (name, patch) = (&vm.machine_name, Patch::Merge(node::renewal(now)));
        match self.leases.patch(name, &PatchParams::default(), &patch).await {
            Err(Error::Api(status)) if status.is_not_found() => {
                let lease = node::lease(name, vm.node.uid().unwrap_or_default(), now);
                self.leases.create(&PostParams::default(), &lease).await.map(drop)
            }
            outcome => outcome.map(drop),
        }
    }

    /// Deletes the Node of a deleted VM, and its Lease; false if it was already deleted or belongs to another VM.
    pub(super) async fn remove(&self, departed: &DepartedVm, with_lease: bool) -> Result<bool, Error> {
        let uid = match &departed.uid {
            Some(uid) => Some(uid.clone()),
            None => self.uid_of(departed).await?,
        };
        let Some(uid) = uid else { return Ok(false) };
        let only_this = Preconditions { uid: Some(uid), resource_version: None };
        let removed =
            gone(self.nodes.delete(&departed.node_name, &DeleteParams::default().preconditions(only_this)).await)?;
        if removed && with_lease {
            gone(self.leases.delete(&departed.node_name, &DeleteParams::default()).await)?;
        }
        Ok(removed)
    }

    async fn uid_of(&self, departed: &DepartedVm) -> Result<Option<String>, Error> {
        let node = self.nodes.get_opt(&departed.node_name).await?;
        let ours = |node: &Node| {
            node.spec.as_ref().is_some_and(|spec| spec.provider_id.as_ref() == Some(&departed.provider_id))
        };
        Ok(node.filter(ours).and_then(|node| node.uid()))
    }

    async fn patch_status(&self, name: &str, patch: &Value) -> Result<bool, Error> {
        match self.nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(_) => Ok(true),
            Err(Error::Api(status)) if status.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// True if this call deleted something. A missing or replaced object needs no deletion.
fn gone<T>(outcome: Result<T, Error>) -> Result<bool, Error> {
    match outcome {
        Ok(_) => Ok(true),
        Err(Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
        Err(error) => Err(error),
    }
}
