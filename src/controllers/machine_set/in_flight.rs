//! What a set is writing right now. Its deployment counts Machines, and until a write's result is in the cache nothing
//! else shows that a Machine takes room, or that it is about to go.

use std::collections::BTreeSet;

/// Writes of one set whose results are not in the cache yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InFlight {
    /// Names of Machines that are being created, or whose creation may have succeeded unnoticed.
    pub creates: BTreeSet<String>,
    /// Names of Machines that are being deleted, or whose deletion may have succeeded unnoticed.
    pub deletes: BTreeSet<String>,
}

impl InFlight {
    /// Nothing is being written.
    pub fn is_empty(&self) -> bool {
        self.creates.is_empty() && self.deletes.is_empty()
    }

    /// The result of a write is in the cache, or the write is not done.
    pub(super) fn remove(&mut self, machine: &str) {
        self.creates.remove(machine);
        self.deletes.remove(machine);
    }
}
