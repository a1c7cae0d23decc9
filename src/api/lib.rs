//! The objects of mcm: types of `machine.sapcloud.io/v1alpha1`, and names in objects that other programs read. No client, no clock.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod backoff;
pub mod crd;
pub mod decode;
pub mod duration;
pub mod hash;
pub mod kinds;
pub mod labels;
pub mod load_balancer;
pub mod machine;
pub mod node;
pub mod patch;
pub mod quantity;
pub mod reasons;
pub mod selector;
pub mod sharing;
pub mod syntax;
pub mod vm_owner;
pub mod volume_attachment;
pub mod wire;

pub use duration::GoDuration;
