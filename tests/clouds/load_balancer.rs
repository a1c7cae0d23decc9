//! Load balancers of the simulations, whose members are the VMs of a control plane.

use std::collections::BTreeSet;

use async_trait::async_trait;
use serde_json::Value;

use crate::simulation::Simulation;

/// A change that the cloud carried out, with the last part of the ID of the VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Registered(String),
    Deregistered(String),
    /// The VM was deleted, or its deletion began.
    Ended(String),
}

/// A call that changes the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Register,
    Deregister,
}

/// A cloud with a load balancer that a user created for a control plane.
#[async_trait]
pub trait Balanced: Simulation {
    /// `controlPlaneLoadBalancer` of an MCMCluster.
    async fn balancer(&self) -> Value;

    /// The last parts of the IDs of its members.
    async fn members(&self) -> BTreeSet<String>;

    /// All changes so far, in their order.
    fn changes(&self) -> Vec<Change>;

    /// The next such call gets no answer, and is carried out or not.
    fn silence(&self, call: Call, is_carried_out: bool);

    /// How many calls got no answer.
    fn unanswered(&self) -> usize;

    /// The last parts of the IDs of all VMs that exist.
    async fn living(&self) -> BTreeSet<String> {
        self.vms().await.iter().map(|vm| last(&vm.provider_id).to_owned()).collect()
    }
}

/// The last part of the ID of a VM.
pub fn last(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap()
}
