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
    /// It was created by mcm: it has the UID of its machine.
    pub has_uid: bool,
    /// The marker of its owner; empty without an owner.
    pub owner: String,
}

/// Changes of the samples of `templates` by the demo, so that they fit a simulation.
pub struct Demo {
    /// Fields of `providerSpec`. `null` removes one.
    pub spec: Value,
    /// The field of `providerSpec` that the rolling update changes, with a period between objects.
    pub field: &'static str,
    /// Its value before and after.
    pub values: [&'static str; 2],
}

/// A simulation of a cloud, as seen by clients other than mcm.
#[async_trait]
pub trait Simulation: Send + Sync + 'static {
    /// `MachineClass.provider`.
    fn provider(&self) -> &'static str;

    /// One sentence for the demo: what stands in for the cloud, and where it is.
    fn about(&self) -> String;

    /// The pool of the demo.
    fn demo(&self, cluster: &str) -> Demo;

    /// A command that shows its VMs.
    fn hint(&self) -> String {
        "kubectl get mc -n demo -o custom-columns=NAME:.metadata.name,VM:.spec.providerID".to_owned()
    }

    /// Requests that do not fit the description of the cloud's API.
    fn violations(&self) -> Vec<String> {
        Vec::new()
    }

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
