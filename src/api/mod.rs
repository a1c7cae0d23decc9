//! Types of stored objects, and names that other programs read. No client, no clock.

pub(crate) mod backoff;
pub mod crd;
pub mod duration;
pub(crate) mod hash;
pub mod labels;
pub mod machine;
pub mod node;
pub mod patch;
pub mod reasons;
pub(crate) mod selector;
pub mod syntax;
pub mod vm_owner;
pub mod volume_attachment;
pub(crate) mod wire;

pub use duration::GoDuration;
