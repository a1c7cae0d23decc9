//! The writes in flight of a set. Its deployment needs them to count Machines whose creation or deletion the cache does
//! not show yet.

use std::collections::BTreeSet;

/// Writes of one set whose results are not in the cache yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InFlight {
    /// Names of Machines whose create is in flight or unresolved.
    pub creates: BTreeSet<String>,
    /// Names of Machines whose delete is in flight or unresolved.
    pub deletes: BTreeSet<String>,
}

impl InFlight {
    /// No write is in flight.
    pub fn is_empty(&self) -> bool {
        self.creates.is_empty() && self.deletes.is_empty()
    }

    /// The result of a write is in the cache, or the write was not made.
    pub(super) fn remove(&mut self, machine: &str) {
        self.creates.remove(machine);
        self.deletes.remove(machine);
    }
}
