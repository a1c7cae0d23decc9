//! The common part of the simulations of clouds.

use async_trait::async_trait;
use serde_json::Value;

/// The name of mcm's flag for endpoints, whose URLs are in Secrets.
pub const ENDPOINTS: &str = "--allowed-cloud-endpoints=http://127.0.0.1";

/// A VM, as its cloud shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vm {
    pub provider_id: String,
    /// Name of the machine that it was created for.
    pub machine: String,
    /// Name that its Node has.
    pub node: String,
    pub is_running: bool,
    /// The cluster in its tags.
    pub cluster: String,
    /// Whether mcm created it: it has the UID of its machine.
    pub has_uid: bool,
    /// The marker of its owner; empty if it has none.
    pub owner: String,
}

/// A simulation of a cloud, as seen by clients other than mcm.
#[async_trait]
pub trait Simulation: Send + Sync + 'static {
    /// `MachineClass.provider`.
    fn provider(&self) -> &'static str;

    /// A `providerSpec` for a cluster.
    fn spec(&self, cluster: &str) -> Value;

    /// Credentials, user data and the URL.
    fn secret(&self) -> Value;

    /// All VMs that exist.
    async fn vms(&self) -> Vec<Vm>;

    /// How many VMs were ever created.
    async fn created(&self) -> u64;

    /// Creates a VM by hand with the tags of a cluster and without an owner, as older versions did.
    async fn create(&self, name: &str, cluster: &str) {
        self.create_for(name, cluster, "").await;
    }

    /// Creates a VM by hand with the tags of a cluster and the marker of an owner; without one if it is empty.
    async fn create_for(&self, name: &str, cluster: &str, owner: &str);

    /// Ends a VM behind mcm's back.
    async fn end(&self, provider_id: &str);
}
