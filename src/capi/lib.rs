//! The Cluster API side: its kinds, the infrastructure provider, the stand-in for core, and what both share.

#![allow(missing_docs, reason = "the product alone uses this crate: a name such as namespace needs no line")]
// `clippy.toml` allows numbers and the clocks of the process. What is left are the times that objects contain: adding to them
// panics at the end of time, so it has to be `checked_add`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::disallowed_methods))]

pub mod crd;
pub mod extension;
mod object;
pub mod provider;
mod register;
pub mod stand_in;
#[cfg(test)]
mod testing;

pub use register::kind_caches;
