//! The stand-in for core of Cluster API, in a cluster without core.
//!
//! Users write MachineDeployments of Cluster API. Each becomes a native MachineDeployment, which the native controllers
//! keep, and its native sets and Machines are shown as MachineSets and Machines of Cluster API.
//!
//! Rules that hold in every plan:
//! - nothing is written to a kind of Cluster API unless the namespace asks for it and nothing shows that core is there; what
//!   cannot be read may be core;
//! - no native object is owned by one of Cluster API, and none is deleted because one of Cluster API is missing;
//! - one side has the authority over a deployment. The MCMMigration of its name says which.

mod cluster;
mod machine;
mod machine_deployment;
mod machine_set;
mod mirror;
mod observe;
mod reasons;
mod register;
mod settings;
mod signals;
mod standing;

pub(crate) use register::{KINDS, ROLE};
pub(crate) use settings::Settings;
