//! The writes in flight of a set. Its deployment needs them to count Machines whose creation or deletion the cache does
//! not show yet.

use std::collections::BTreeSet;

use mcm_api::machine::Machine;

/// Writes of one set whose results are not in the cache yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetWritesInFlight {
    /// Names of Machines whose create is in flight or unresolved.
    pub creates: BTreeSet<String>,
    /// Names of Machines whose delete is in flight or unresolved.
    pub deletes: BTreeSet<String>,
}

impl SetWritesInFlight {
    /// No write is in flight.
    pub fn is_empty(&self) -> bool {
        self.creates.is_empty() && self.deletes.is_empty()
    }

    /// A create of the Machine is in flight or unresolved.
    pub fn is_creating(&self, machine: &Machine) -> bool {
        machine.metadata.name.as_ref().is_some_and(|name| self.creates.contains(name))
    }

    /// A delete of the Machine is in flight or unresolved.
    pub fn is_deleting(&self, machine: &Machine) -> bool {
        machine.metadata.name.as_ref().is_some_and(|name| self.deletes.contains(name))
    }

    /// The result of a write is in the cache, or the write was not made.
    pub(super) fn remove(&mut self, machine: &str) {
        self.creates.remove(machine);
        self.deletes.remove(machine);
    }
}
