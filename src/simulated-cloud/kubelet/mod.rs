//! The kubelets of all VMs, the cloud controller and the node monitor.

mod keeper;
mod node;
mod plan;
mod target;

pub use keeper::keep_nodes;

#[cfg(test)]
mod tests;
