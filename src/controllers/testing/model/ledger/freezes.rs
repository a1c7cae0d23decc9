//! A frozen set creates no Machines, and while the target cannot be reached, no Machine is replaced.

use std::time::Duration;

use tokio::time::Instant;

use super::{super::faults::Faults, Ledger, MachineFacts, NEWS};

/// After this time every process has noticed the silence: a probe that fails, after one that was in flight.
const NOTICED: Duration = Duration::from_mins(3);

impl Ledger {
    /// A user creates Machines, which may exist beside all others, with any template.
    pub(in super::super) fn made_by_hand(&mut self, count: usize) {
        self.last_write = Instant::now();
        self.span.by_hand += count;
        self.span.only_recreate = false;
    }

    pub(in super::super) const fn target_is_away(&self) -> bool {
        self.target_away_since.is_some()
    }

    pub(in super::super) fn target_answers(&mut self, answers: bool) {
        self.target_away_since = (!answers).then(Instant::now);
    }

    /// A set created a Machine.
    pub(super) fn check_freeze(&self, new: &MachineFacts, faults: &Faults) {
        let frozen = self.sets.get(&new.set).and_then(|set| set.frozen_since).map(|since| since.elapsed());
        faults.must(frozen.is_none_or(|time| time <= NEWS), || {
            format!("{} is created, and its set is frozen for {frozen:?}", new.name)
        });
    }

    /// A process marked a Machine as unhealthy.
    pub(super) fn check_sight(&self, machine: &MachineFacts, faults: &Faults) {
        let away = self.target_away_since.map(|since| since.elapsed());
        // One that has no Node fails because of the cloud.
        let away = away.filter(|_| !machine.node.is_empty());
        faults.must(away.is_none_or(|time| time <= NOTICED), || {
            format!("{} becomes {}, and nobody has seen its node for {away:?}", machine.name, machine.phase)
        });
    }
}
