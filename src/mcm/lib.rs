//! A machine controller for Kubernetes.

// `clippy.toml` allows numbers and the clocks of the process. What is left are the times that objects contain: adding to them
// panics at the end of time, so it has to be `checked_add`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::disallowed_methods))]

pub mod cli;
mod process;

pub use mcm_api as api;
use mcm_simulated_cloud as simulated_cloud;

#[doc(hidden)]
pub mod driver_tester {
    pub use mcm_driver_host::tester::{DriverTester, FailedCall};
}
