//! Code that `build.rs` generates from `proto/`.

use std::fmt;

pub(super) use v1::*;

#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::wildcard_imports,
    reason = "generated code"
)]
mod v1 {
    tonic::include_proto!("mcm.driver.v1");
}

/// The version of the protocol in `proto/`.
pub(super) const VERSION: u32 = 1;

/// Largest message that is sent: a page of a list, or two objects and a Secret of 1 to 1.5 MiB each.
pub(super) const LARGEST_REQUEST: usize = 8 << 20;
/// Largest message that is accepted from a driver.
pub(super) const LARGEST_RESPONSE: usize = 4 << 20;

/// Without credentials and user data.
impl fmt::Debug for MachineRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineRequest").field("provider", &self.provider).finish_non_exhaustive()
    }
}

/// Without credentials and user data.
impl fmt::Debug for ListRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListRequest").field("provider", &self.provider).finish_non_exhaustive()
    }
}
