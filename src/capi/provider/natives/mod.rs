//! The hold check of native objects, and the cluster of the Nodes of their Machines.

mod observe;
#[cfg(test)]
mod tests;

pub(super) use observe::NativeHoldCaches;
