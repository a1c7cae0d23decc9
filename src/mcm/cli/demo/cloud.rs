//! The cloud in which the demo plays.

use std::collections::BTreeSet;

use anyhow::Result;
use async_trait::async_trait;

/// A cloud: its pool, and actions in it without mcm.
#[async_trait]
pub trait DemoCloud: Send + Sync + 'static {
    /// Replicas of the pool at the beginning, as in [`Cloud::objects`].
    fn replicas(&self) -> usize;

    /// Flags of `mcm run` for this cloud.
    fn flags(&self) -> Vec<String>;

    /// In the namespace `demo`: the Secret and the MachineClasses `small` and `large`, and the MachineDeployment `pool` of
    /// class `small`. YAML, the Namespace first.
    fn objects(&self) -> String;

    /// A command that shows the VMs.
    fn hint(&self) -> String;

    /// Creates VMs by hand: one with the tags of the pool that no machine has, and one of another cluster. False if the demo
    /// does without.
    async fn create_by_hand(&self) -> Result<bool> {
        Ok(false)
    }

    /// Ends the VM with a provider ID behind mcm's back.
    async fn kill(&self, provider_id: &str) -> Result<()>;

    /// All VMs.
    async fn vms(&self) -> Result<DemoVms>;
}

/// The VMs of a cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DemoVms {
    /// VMs that were ever created.
    pub created: u64,
    /// VMs with the tags of the pool that exist.
    pub alive: u64,
    /// Names of those among them that were created by hand.
    pub by_hand: BTreeSet<String>,
    /// VMs of another cluster that exist.
    pub foreign: u64,
}
