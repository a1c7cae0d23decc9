//! The controllers, one folder per kind. Each one observes, plans (pure) and applies; `mcm_runtime` contains the
//! loop.

#![allow(missing_docs, reason = "the product alone uses this crate: a name such as namespace needs no line")]
// `clippy.toml` allows numbers and the clocks of the process. What is left are the times that objects contain: adding to them
// panics at the end of time, so it has to be `checked_add`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::disallowed_methods))]

pub mod api_servers;
pub mod machine;
pub mod machine_class;
pub mod machine_deployment;
pub mod machine_set;
pub mod node;
pub mod object;
pub mod orphans;
pub mod overshoot;
mod register;
pub mod secret;
mod settings;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use register::{KINDS, kind_caches};
pub use settings::{Kind, MACHINES, SETS, Settings};
