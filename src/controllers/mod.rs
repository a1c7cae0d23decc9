//! One folder per kind. Each reconcile observes into a snapshot, plans (pure), applies, and reports.

pub mod context;
pub mod controller;
pub mod finalizer;
pub mod machine;
pub mod machine_class;
pub mod machine_deployment;
pub mod machine_set;
pub mod manager;
pub mod node;
pub mod owner;
pub mod plan;
pub mod selector;
pub mod wiring;

#[cfg(test)]
pub(crate) mod testing;
