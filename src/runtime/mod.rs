//! What lies between plans and the API server: caches that read their own writes, wake-up queues, leases, endpoints.

pub mod cache;
pub mod guard;
pub mod kubeconfig;
pub mod objects;
pub mod queue;
pub mod secrets;
