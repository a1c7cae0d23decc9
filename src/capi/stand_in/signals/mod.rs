//! Signs of core besides its CRDs: its entry in the inventory of clusterctl, and the Lease of its manager. Both are
//! read at the start, whenever a CRD of core changes, and periodically.

mod apply;
#[cfg(test)]
mod tests;

pub(super) use apply::{CoreCheckState, KIND};
