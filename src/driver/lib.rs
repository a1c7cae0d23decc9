//! The driver interface of mcm: what a driver of a cloud implements, and a kit to build one.
//!
//! - [`Driver`] has the six methods of the Machine Controller Manager's drivers, with its error [`Code`]s.
//! - [`spec`] reads the `providerSpec` of a class and reports all problems, each with its path.
//! - [`cloud`] is the kit for real clouds: REST with retries, back-off, limits of size and time, look-ups that are joined, rules
//!   against two VMs for one Machine.
//! - [`conformance`] is the suite that every driver must pass.
//! - `testing`, with the feature of that name, has what tests of drivers share.
//!
//! A driver is called by the catalogue of mcm, in its process or over gRPC, with limits and metrics around it ([`Guards`]).

// `clippy.toml` allows numbers and the clocks of the process. What is left are the times that objects contain: adding to them
// panics at the end of time, so it has to be `checked_add`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::disallowed_methods))]

mod account;
pub mod capacity;
pub mod cloud;
mod cluster_tag;
pub mod code;
pub mod conformance;
pub mod environment;
pub mod error;
pub mod guard;
pub mod inspection;
pub mod interface;
pub mod operation;
pub mod secret_policy;
pub mod spec;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tls;
pub mod vm;

pub use account::CloudAccount;
pub use capacity::{GpuCapacity, VmCapacity};
pub use code::Code;
pub use environment::{DriverEnvironment, OpenError};
pub use error::DriverError;
pub use guard::{DriverGuards, DriverObserver};
pub use interface::{Driver, DriverCapabilities, MachineRequest, ProblemsHook, SecretData, no_members};
pub use operation::DriverOperation;
pub use secret_policy::SecretPolicy;
pub use vm::{ListedVm, Vm, VmsByProviderId};
