//! The simulated cloud: VMs that are records, Nodes that are real, faults on demand. See `docs/simulated-cloud.md`.

mod api;
mod client;
mod clock;
mod cloud;
mod control;
#[cfg(feature = "simulated")]
pub(crate) mod driver;
mod faults;
mod inventory;
mod journal;
mod kubelet;
mod messages;
mod options;
mod record;
mod server;
mod spec;
mod stats;

pub(crate) use api::CloudApi;
pub(crate) use client::{Client, InvalidAddress};
pub(crate) use cloud::Cloud;
pub(crate) use control::Control;
pub(crate) use kubelet::keep_nodes;
pub(crate) use messages::{
    CreateVm, Failure, ListedVm, ListedVms, PROVIDER_ID_PREFIX, Selector, TagRequest, VmState, VmView,
};
#[cfg(test)]
pub(crate) use messages::{KillMode, KillRequest, VolumesRequest};
pub(crate) use options::CloudArgs;
#[cfg(test)]
pub(crate) use server::router;
pub(crate) use spec::ProviderSpec;

#[cfg(test)]
mod tests;
