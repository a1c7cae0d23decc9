//! The infrastructure provider for Cluster API, under its core controllers.
//!
//! The VM of an MCMMachine is that of a native Machine of the same name, which the MCMMachine controls. The native
//! Machine has no target cluster: core drains, deletes Nodes and replaces unhealthy machines.
//!
//! The VMs of an MCMMachinePool are those of a native MachineDeployment, which the MCMMachinePool controls. Its target is
//! the workload cluster: the native controllers roll, drain and replace.
//!
//! The pause of a Cluster is read from the Cluster each time, so that nothing is left behind when it moves.

pub(crate) mod class;
mod mcm_cluster;
mod mcm_machine;
mod mcm_machine_pool;
mod mcm_machine_template;
mod native_managers;
mod natives;
mod observe;
mod register;
mod resume;
mod settings;
mod workload;

pub use register::{KINDS, ROLE, with_caches};
pub use settings::Settings;
