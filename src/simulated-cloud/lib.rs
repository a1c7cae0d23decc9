//! The simulated cloud: VMs that are records, Nodes that are real, faults on demand. See `docs/simulated-cloud.md`.

// `clippy.toml` allows numbers and the clocks of the process. What is left are the times that objects contain: adding to them
// panics at the end of time, so it has to be `checked_add`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::disallowed_methods))]

mod api;
mod client;
mod clock;
mod cloud;
mod control;
pub mod driver;
mod faults;
mod inventory;
mod journal;
mod kubelet;
mod messages;
mod record;
mod serve;
mod server;
mod spec;
mod stats;

pub use api::CloudApi;
pub use client::{InvalidAddress, SimulatedCloudClient};
pub use cloud::CloudSimulator;
pub use control::{LatencyDuration, NodeSettings, SimulationSettings};
pub use kubelet::keep_nodes;
pub use messages::{
    CloudCallError, CreateVm, KillMode, KillRequest, ListedVms, LoadBalancerView, PROVIDER_ID_PREFIX, TagRequest,
    VmListItem, VmSelector, VmState, VmView, VolumesRequest,
};
pub use serve::{DEFAULT_ADDRESS, ServeError, ServeOptions, serve};
pub use server::router;
pub use spec::ProviderSpec;

#[cfg(test)]
mod tests;
