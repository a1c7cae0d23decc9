//! A machine controller for Kubernetes.

// `clippy.toml` allows numbers and the clocks of the process. What is left are the times that objects contain: adding to them
// panics at the end of time, so it has to be `checked_add`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod capi;
pub mod cli;
mod controllers;
mod drain;
mod driver;
mod plan;
mod process;
mod runtime;
mod safety;
#[cfg_attr(not(feature = "simulated"), allow(dead_code, unused_imports, reason = "only its driver uses all of it"))]
mod simulated_cloud;

pub use mcm_api as api;

#[doc(hidden)]
pub mod driver_tester {
    pub use crate::driver::tester::{Failed, Tester};
}
