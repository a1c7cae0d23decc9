//! The operations that drivers call, in this process or over HTTP.

use async_trait::async_trait;

use super::messages::{CreateVm, Failure, ListedVms, Selector, TagRequest, VmView};

/// A simulated cloud as its drivers see it.
#[async_trait]
pub trait CloudApi: Send + Sync + std::fmt::Debug {
    /// Creates a VM, or returns the VM of an earlier call with the same token.
    async fn create(&self, request: &CreateVm) -> Result<VmView, Failure>;

    /// Initializes a VM.
    async fn initialize(&self, id: &str) -> Result<VmView, Failure>;

    /// Makes a VM one of a cluster and an owner; of none if they are empty.
    async fn tag(&self, id: &str, tags: &TagRequest) -> Result<VmView, Failure>;

    /// Deletes the VMs of a selector, if any, and returns when they are deleted.
    async fn delete(&self, selector: &Selector) -> Result<(), Failure>;

    /// Finds the only VM of a selector.
    async fn status(&self, selector: &Selector) -> Result<VmView, Failure>;

    /// All VMs of a cluster.
    async fn list(&self, cluster: &str) -> Result<ListedVms, Failure>;

    /// Makes a VM a member of a load balancer, or ends its membership.
    async fn set_member(&self, balancer: &str, id: &str, is_member: bool) -> Result<(), Failure>;
}
