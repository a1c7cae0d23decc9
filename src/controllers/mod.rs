//! The controllers, one folder per kind. Each one observes, plans (pure) and applies; `crate::runtime` contains the
//! loop.

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

#[cfg(test)]
pub(crate) mod testing;

pub(crate) use register::KINDS;
pub(crate) use settings::{Kind, MACHINES, SETS, Settings};
