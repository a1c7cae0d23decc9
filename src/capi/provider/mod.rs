//! The infrastructure provider for Cluster API, under its core controllers.
//!
//! The VM of an MCMMachine is that of a native Machine of the same name, which the MCMMachine controls. The native
//! Machine has no target cluster: core drains, deletes Nodes and replaces unhealthy machines. Whether its Cluster is
//! paused is derived from the Cluster each time, so that nothing is left behind when a cluster moves.

mod conditions;
mod hold;
mod mcm_cluster;
mod mcm_machine;
mod mcm_machine_template;
mod observe;
mod reasons;
mod register;
mod settings;
mod view;

pub(crate) use register::{KINDS, ROLE};
pub(crate) use settings::Settings;
