//! All flags, parsed into plain structs and validated here, so that no other module validates them.
//!
//! The syntax is pflag's: two dashes, `_` equals `-`, the last occurrence wins, a boolean takes its value after `=`.

mod check;
mod driver;
mod extension;
mod generic;
mod machine;
mod options;
mod presence;
mod provider;
mod rollout;
#[cfg(test)]
mod tests;
pub mod value;

pub use check::{FlagConflict, FlagConflicts};
#[cfg(feature = "remote")]
pub use driver::RemoteOptions;
#[cfg(feature = "remote")]
pub(in crate::cli) use driver::place_for;
pub use driver::{DriverOptions, SecretOptions};
pub use extension::CapiExtensionOptions;
pub use generic::{CompatibilityFlags, GenericOptions, LeaderElectionOptions, LogFormat, LogOptions};
pub use machine::{MachineOptions, NodeConditions};
pub use options::{ControllerManagerOptions, GoFlags, MachineControllerOptions, ReadFlags, RunOptions};
pub use presence::PresenceOptions;
pub use provider::CapiManagerOptions;
pub use rollout::RolloutOptions;

pub use mcm_runtime::kubeconfig::{ControlKubeconfig, TargetKubeconfig};
