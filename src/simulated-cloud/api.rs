//! The operations that drivers call, in this process or over HTTP.

use async_trait::async_trait;

use super::messages::{CloudCallError, CreateVm, ListedVms, TagRequest, VmSelector, VmView};

/// A simulated cloud as its drivers see it.
#[async_trait]
pub trait CloudApi: Send + Sync + std::fmt::Debug {
    /// Creates a VM, or returns the VM of an earlier call with the same token.
    async fn create(&self, request: &CreateVm) -> Result<VmView, CloudCallError>;

    /// Initializes a VM.
    async fn initialize(&self, id: &str) -> Result<VmView, CloudCallError>;

    /// Makes a VM one of a cluster and an owner; of none if they are empty.
    async fn tag(&self, id: &str, tags: &TagRequest) -> Result<VmView, CloudCallError>;

    /// Deletes the VMs of a selector, if any, and returns when they are deleted.
    async fn delete(&self, selector: &VmSelector) -> Result<(), CloudCallError>;

    /// Finds the only VM of a selector.
    async fn status(&self, selector: &VmSelector) -> Result<VmView, CloudCallError>;

    /// All VMs of a cluster.
    async fn list(&self, cluster: &str) -> Result<ListedVms, CloudCallError>;

    /// Makes a VM a member of a load balancer, or ends its membership.
    async fn set_member(&self, balancer: &str, id: &str, is_member: bool) -> Result<(), CloudCallError>;
}
