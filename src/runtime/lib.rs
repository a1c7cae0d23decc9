//! Everything between plans and the API server: caches that contain our own writes, queues, the reconcile loop, leader
//! election, clients, events, metrics, endpoints. It makes no decisions about machines.

#![allow(missing_docs, reason = "the product alone uses this crate: a name such as namespace needs no line")]
// `clippy.toml` allows numbers and the clocks of the process. What is left are the times that objects contain: adding to them
// panics at the end of time, so it has to be `checked_add`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::disallowed_methods))]

pub mod acceptor;
pub mod access;
pub mod activity;
pub mod body;
pub mod budget;
pub mod cache;
pub mod cell;
pub mod cells;
pub mod client;
pub mod clock;
pub mod connections;
pub mod dated;
pub mod descriptors;
pub mod dumps;
pub mod engaged;
pub mod enqueue;
pub mod events;
pub mod explain;
pub(crate) mod fair;
pub mod fence;
pub mod files;
pub mod freeze;
pub mod guard;
pub mod handlers;
pub mod hold_check;
pub mod http;
pub mod kind_cache;
pub mod kubeconfig;
pub mod lead;
pub mod leader;
pub mod limiter;
pub mod members;
pub mod metrics;
pub mod objects;
pub(crate) mod on_demand;
pub mod owners;
pub mod panics;
pub mod paths;
pub mod pem;
pub mod poll;
mod preview;
pub mod queue;
pub mod reconcile;
pub mod refusal;
pub mod reload;
pub mod role;
pub mod scope;
pub mod secrets;
pub mod separate;
pub mod server_clock;
pub mod shutdown;
pub mod target;
mod transport;
pub mod trust;
mod unreadable;
pub mod watched;
pub mod worker;
