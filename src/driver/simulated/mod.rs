//! The simulated cloud: VMs that are records, Nodes that are real, faults on demand. See `docs/simulated-cloud.md`.

mod client;
mod clock;
mod cloud;
mod control;
mod driver;
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

pub use client::InvalidAddress;
pub use cloud::Cloud;
pub use control::{
    Control, Fault, InvalidControl, Latencies, Latency, NodeSettings, Operation, Pattern, Quota, Shape, Throttle,
};
pub use driver::{NAME, SimulatedDriver};
pub use journal::JournalError;
pub use kubelet::keep_nodes;
pub use messages::{
    ConditionRequest, CreateVm, DepartedView, Failure, KillMode, KillRequest, PROVIDER_ID_PREFIX, Selector, StateView,
    VmList, VmState, VmView, VolumesRequest,
};
pub use options::{CloudArgs, DEFAULT_ADDRESS, ServeError, ServeOptions, serve};
pub use server::router;
pub use spec::{InvalidSpec, ProviderSpec, Volumes};
pub use stats::{Calls, Stats};

#[cfg(test)]
mod tests;
