//! What lies between plans and the API server: caches that read their own writes, wake-up queues, leases, clients, events,
//! metrics, endpoints. No decision about machines is made here.

pub mod cache;
pub mod cell;
pub mod client;
pub mod clock;
pub mod events;
pub mod guard;
pub mod http;
pub mod kubeconfig;
pub mod leader;
pub mod limiter;
pub mod metrics;
pub mod objects;
pub mod queue;
pub mod reconcile;
mod reload;
pub mod secrets;
pub mod shutdown;
pub mod target;
pub mod trust;
mod unreadable;
pub mod worker;
