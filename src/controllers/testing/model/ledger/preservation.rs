//! Preservation: a Machine is preserved on request until its time is over, and no longer.

use jiff::{SignedDuration, Timestamp};

use super::{super::faults::Faults, Ledger, MachineFacts, NEWS, SetFacts};
use mcm_api::machine::PreserveMode;
use mcm_runtime::clock::TimeSource;

/// How far the clocks of two processes are apart at most, and more.
const CLOCKS: SignedDuration = SignedDuration::from_secs(62);

impl MachineFacts {
    /// The requested preservation, as far as the Machine shows it. The request of its Node has priority.
    const fn asked(&self) -> Option<PreserveMode> {
        match self.copied_request {
            Some(mode) => Some(mode),
            None => self.own_request,
        }
    }

    fn is_asked_for(&self) -> bool {
        let is_failed = self.phase == "Failed";
        match self.asked() {
            Some(PreserveMode::Now) => true,
            Some(PreserveMode::WhenFailed | PreserveMode::Auto) => is_failed,
            Some(PreserveMode::Never) | None => false,
        }
    }

    /// It is to be preserved, every process has seen that, and no clock differs.
    pub(super) fn is_certainly_kept(&self, now: Timestamp) -> bool {
        let is_request_known = self.is_asked_for() && self.requested_since.elapsed() > NEWS;
        let is_known = self.kept_since.is_some_and(|since| since.elapsed() > NEWS);
        match self.kept_until {
            Some(until) => until > now + CLOCKS && (is_known || is_request_known),
            None => is_request_known,
        }
    }
}

impl Ledger {
    /// A set chose a Machine. Preserved ones are deleted last.
    pub(super) fn check_choice_of_kept(&self, machine: &MachineFacts, set: &SetFacts, faults: &Faults) {
        let is_kept = machine.kept_until.is_some_and(|until| until > faults.clock.now() + CLOCKS);
        if !is_kept || machine.kept_since.is_none_or(|since| since.elapsed() <= NEWS) {
            return;
        }
        let own = || self.machines.values().filter(|it| it.set == machine.set && !it.is_terminating());
        let others = own().filter(|it| it.kept_until.is_none() && it.may_be_chosen && it.created_at.elapsed() > NEWS);
        let (own, others, replicas) = (own().count(), others.count(), set.least_replicas(NEWS));
        faults.must(own > replicas + others, || {
            format!("{} is preserved and goes: {own} machines, {replicas} replicas, {others} not kept", machine.name)
        });
    }

    /// A process changed a Machine.
    pub(super) fn check_preservation(&self, old: &MachineFacts, new: &MachineFacts, faults: &Faults) {
        let (name, now) = (&new.name, faults.clock.now());
        match (old.kept_until, new.kept_until) {
            (Some(before), Some(after)) => {
                faults.must(before == after, || format!("{name} is kept until {after} instead of {before}"));
            }
            (None, Some(until)) => {
                let longest = SignedDuration::from_mins(self.span.longest_preservation) + CLOCKS;
                let is_due = new.is_asked_for() && until <= now + longest;
                faults.must(is_due, || format!("{name} is kept until {until}, asked for is {:?}", new.asked()));
            }
            (Some(until), None) => {
                let is_over = until <= now + CLOCKS || new.is_terminating();
                faults.must(is_over || !new.is_asked_for(), || {
                    format!("{name} is kept no longer, and it should be until {until}: {:?}", new.asked())
                });
            }
            (None, None) => {}
        }
        if new.own_request == Some(PreserveMode::Auto) && old.own_request != new.own_request {
            let is_auto = |it: &&MachineFacts| {
                let is_other = it.set == new.set && it.uid != new.uid && !it.is_terminating();
                is_other && it.own_request == Some(PreserveMode::Auto)
            };
            let others = self.machines.values().filter(is_auto).count();
            let most = self.span.most_preserved;
            faults.must(others < most && new.phase == "Failed", || {
                format!("{name} ({}) is preserved automatically beside {others}, and {most} may be", new.phase)
            });
        }
    }
}
