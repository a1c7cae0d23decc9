//! What shows that core is there, besides its definitions: its entry in the inventory of clusterctl, and the Lease of its
//! manager. Both are read at the start, whenever a definition of core changes, and from time to time.

mod apply;
#[cfg(test)]
mod tests;

pub(super) use apply::{Core, KIND};
