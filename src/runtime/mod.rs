//! Everything between plans and the API server: caches that contain our own writes, queues, the reconcile loop, leader
//! election, clients, events, metrics, endpoints. It makes no decisions about machines.

pub mod body;
pub(crate) mod budget;
pub mod cache;
pub mod cell;
pub mod client;
pub mod clock;
pub(crate) mod descriptors;
pub mod events;
pub(crate) mod fair;
pub(crate) mod files;
pub mod guard;
pub(crate) mod handlers;
pub(crate) mod hold_check;
pub mod http;
pub mod kubeconfig;
pub(crate) mod lead;
pub mod leader;
pub mod limiter;
pub mod metrics;
pub mod objects;
pub(crate) mod on_demand;
pub mod owners;
pub(crate) mod panics;
pub(crate) mod pem;
pub(crate) mod poll;
pub mod queue;
pub mod reconcile;
pub(crate) mod reload;
pub mod secrets;
pub mod server_clock;
pub mod shutdown;
pub mod target;
pub(crate) mod tls;
pub mod trust;
mod unreadable;
pub mod worker;
