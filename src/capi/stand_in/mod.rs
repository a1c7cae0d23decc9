//! The stand-in for core of Cluster API, in a cluster without core.
//!
//! Users write MachineDeployments of Cluster API. Each becomes a native MachineDeployment, which the native controllers
//! keep, and its native sets and Machines are shown as MachineSets and Machines of Cluster API.
//!
//! Rules that hold in every plan:
//! - nothing is written to a kind of Cluster API unless the namespace requests it and core is not installed; a failed
//!   read counts as core;
//! - no native object is owned by one of Cluster API, and none is deleted because one of Cluster API is missing;
//! - one side has the authority over a deployment, as recorded in the MCMMigration of its name.

mod cluster;
mod machine;
mod machine_deployment;
mod machine_set;
mod mirror;
mod observe;
mod register;
mod settings;
mod signals;
mod standing;

pub use register::{KINDS, ROLE, with_caches};
pub use settings::Settings;
