//! The drivers of a process: the catalogue, which wraps each with metrics, limits and deadlines, and drivers in other processes.
//! The interface and the drivers of clouds are crates beside this one: `src/driver`, `src/drivers/<cloud>`.

#![allow(missing_docs, reason = "the product alone uses this crate: a name such as namespace needs no line")]
// `clippy.toml` allows numbers and the clocks of the process. What is left are the times that objects contain: adding to them
// panics at the end of time, so it has to be `checked_add`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::disallowed_methods))]

mod catalogue;
#[cfg(feature = "remote")]
pub mod remote;
pub mod tester;

#[cfg(feature = "simulated")]
pub use catalogue::BuiltIn;
pub use catalogue::{DriverCatalogue, ExtraDrivers, NotValidated, ON_REQUEST, clouds_of_build};
