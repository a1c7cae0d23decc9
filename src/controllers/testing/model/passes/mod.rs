//! What the shells do, one action at a time: see `reconcile.rs` of each controller.

pub(super) mod class;
pub(super) mod deployment;
pub(super) mod machine;
pub(super) mod node;
pub(super) mod set;
