//! An API server in memory, to stand behind a real `kube::Client`, or on a port for kubectl.
//!
//! It has the rules that controllers rely on: lists in pages, watches with bookmarks and 410, resource versions and UIDs as
//! preconditions, finalizers, graceful deletion of pods, evictions with budgets, status and scale subresources, merge patches,
//! strategic merge patches and server-side apply, and responses that hold metadata only or tables. It records every request. A
//! [`NetworkModel`] decides what becomes of each. Time is that of the tokio runtime. [`serve`] adds what kubectl reads beside
//! objects: discovery and schemas.

#![allow(missing_docs, reason = "the product alone uses this crate: a name such as namespace needs no line")]
// `clippy.toml` allows numbers and the clocks of the process. What is left are the times that objects contain: adding to them
// panics at the end of time, so it has to be `checked_add`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::disallowed_methods))]

mod answer;
pub mod call;
pub mod clock;
mod columns;
mod definitions;
mod filter;
#[cfg(any(test, feature = "testing"))]
mod host;
pub mod kinds;
pub mod merge;
pub mod network;
mod object;
mod refusal;
pub mod serve;
mod server;
mod signal;
mod state;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod watch;

#[cfg(any(test, feature = "testing"))]
pub use self::store::AdmissionHook;
#[cfg(any(test, feature = "testing"))]
pub use self::{
    call::OUTSIDE,
    kinds::{ATTACHMENTS, CLAIMS, CONFIG_MAPS, LEASES, VOLUMES},
    merge::merge_strategically,
    network::{CallDelivery, WatchFault},
};
pub use self::{
    call::{ApiCall, ApiVerb},
    kinds::{
        BUDGETS, CLASSES, DEFINITIONS, DEPLOYMENTS, EVENTS, Kind, MACHINES, NAMESPACES, NODES, PODS, SECRETS, SETS,
        WORKLOADS,
    },
    network::{DeliveryOutcome, NetworkModel, PerfectNetwork},
    object::ServerObject,
    refusal::RequestRefusal,
    server::ApiServer,
    state::WriteRecord,
};
pub use mcm_api::patch::apply as merge;
