//! The update extension: answers the hooks with which Cluster API core updates machines in place (Runtime SDK). It claims changes
//! of an MCMMachine for which its VM stays, and reports when the provider has applied them. It writes nothing.

mod hooks;
mod observe;
mod plan;
#[cfg(test)]
mod tests;

pub use hooks::{ExtensionHook, failure};
pub use observe::HookResponder;
