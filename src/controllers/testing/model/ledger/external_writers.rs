//! Invariants that hold although other clients change the objects of a set.

use tokio::time::Instant;

use super::{super::faults::Faults, Ledger, MachineFacts, NEWS, SetFacts};

impl Ledger {
    /// A user gives a set so many replicas more or less, until its deployment takes them back.
    pub(in super::super) fn scaled_by_hand(&mut self, change: usize) {
        self.last_write = Instant::now();
        self.span.by_hand += change;
        self.span.least = self.span.least.saturating_sub(change);
        self.span.fewest = self.span.fewest.saturating_sub(change);
        // It may be an old set.
        self.span.only_recreate = false;
    }

    /// A set chose a Machine. Those with a lower priority go first.
    pub(super) fn check_priority(&self, machine: &MachineFacts, set: &SetFacts, faults: &Faults) {
        if machine.kept_until.is_some() || machine.priority_since.elapsed() <= NEWS {
            return;
        }
        let own = || self.machines.values().filter(|it| it.set == machine.set && !it.is_terminating());
        let goes_first = |it: &&MachineFacts| {
            it.priority < machine.priority
                && it.priority_since.elapsed() > NEWS
                && it.kept_until.is_none()
                && it.may_be_chosen
        };
        let (own, before) = (own().count() + self.recently_taken_from(&machine.set), own().filter(goes_first).count());
        let replicas = set.least_replicas(NEWS);
        faults.must(own > replicas + before, || {
            format!("{} goes: {own} machines, {replicas} replicas, {before} of lower priority", machine.name)
        });
    }
}
