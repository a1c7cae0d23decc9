//! The members of a fleet as this process saw their Leases: who is silent, and who is expelled.
//!
//! No time in a Lease is read. A member is silent since this process last saw its Lease change, by the monotonic clock of this
//! process. A time in which this process could not have seen a change does not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use super::{EXPELLED_AFTER, FleetName, VALID_FOR};

/// The longest time between two lists without which a silence is certain.
const LONGEST_GAP: Duration = Duration::from_secs(5);

/// Most members that are remembered after their end.
const MOST_ENDED: usize = 1000;

/// The Lease of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// The name of the Lease.
    pub lease: String,
    /// The member; empty if it ended or was expelled.
    pub holder: String,
    /// The resource version of the Lease.
    pub version: String,
    /// Namespaces that the member is ready to take over.
    pub asks_for: BTreeSet<String>,
}

/// The members as last seen.
#[derive(Debug)]
pub struct ObservedMembers {
    fleet: FleetName,
    /// By the name of the Lease.
    members: BTreeMap<String, ObservedMember>,
    /// Members that were seen, and later were no more in their Leases.
    ended: BTreeSet<String>,
    /// Holders of claims that are not in their Leases, and since when this was asked.
    missing: BTreeMap<String, Instant>,
    /// When the last list was sent and received.
    looked: Option<(Instant, Instant)>,
}

#[derive(Debug)]
struct ObservedMember {
    record: MemberRecord,
    /// When it was first seen in this version.
    since: Instant,
}

impl ObservedMembers {
    /// Nothing is known of a fleet yet.
    pub fn new(fleet: FleetName) -> Self {
        let (members, ended, missing) = Default::default();
        Self { fleet, members, ended, missing, looked: None }
    }

    /// Stores all Leases of members, from a list that was sent and received at these times.
    pub fn listed(&mut self, records: Vec<MemberRecord>, (sent, received): (Instant, Instant)) {
        let has_gap = self.looked.is_none_or(|(_, before)| sent.saturating_duration_since(before) > LONGEST_GAP);
        let mut before = std::mem::take(&mut self.members);
        for record in records {
            let known = before.remove(&record.lease);
            if let Some(known) = known.as_ref().filter(|known| known.record.holder != record.holder) {
                self.ended.insert(known.record.holder.clone());
            }
            let same = known.filter(|known| known.record.version == record.version && !has_gap);
            let since = same.map_or(received, |known| known.since);
            self.members.insert(record.lease.clone(), ObservedMember { record, since });
        }
        if self.ended.len() > MOST_ENDED {
            self.ended.clear();
        }
        let (fleet, members) = (&self.fleet, &self.members);
        let is_in_lease = |holder: &str| {
            fleet
                .lease_of(holder)
                .and_then(|lease| members.get(lease))
                .is_some_and(|member| member.record.holder == holder)
        };
        self.missing.retain(|holder, _| !has_gap && !is_in_lease(holder));
        self.looked = Some((sent, received));
    }

    /// Stores that this process has expelled a member.
    pub fn expelled(&mut self, holder: &str, record: MemberRecord, now: Instant) {
        self.ended.insert(holder.to_owned());
        self.members.insert(record.lease.clone(), ObservedMember { record, since: now });
    }

    /// The members that may be expelled. `open_since` is the time since when this process has been able to renew its own Lease: what
    /// keeps all members from writing expels none of them.
    pub fn silent(&self, open_since: Instant) -> Vec<&MemberRecord> {
        self.silent_for(EXPELLED_AFTER, open_since).collect()
    }

    /// The Leases of the members that are not silent for longer than a member may act.
    pub fn live(&self, open_since: Instant) -> BTreeSet<String> {
        let late: BTreeSet<&str> = self.silent_for(VALID_FOR, open_since).map(|record| record.lease.as_str()).collect();
        let holders = self.members.values().filter(|member| !member.record.holder.is_empty());
        holders.map(|member| member.record.lease.clone()).filter(|lease| !late.contains(lease.as_str())).collect()
    }

    fn silent_for(&self, silence: Duration, open_since: Instant) -> impl Iterator<Item = &MemberRecord> {
        let looked = self.looked.map(|(sent, _)| sent);
        let is_silent = move |member: &&ObservedMember| {
            let since = member.since.max(open_since);
            looked.is_some_and(|looked| looked.saturating_duration_since(since) >= silence)
        };
        let holders = self.members.values().filter(|member| !member.record.holder.is_empty());
        holders.filter(is_silent).map(|member| &member.record)
    }

    /// A holder is a member of this fleet that has ended for good: another holder, or none, is in its Lease. A member that was never
    /// seen may have joined after the last list, so only a list that was sent after the question says so. A Lease that was deleted
    /// counts once its holder must have noticed.
    pub fn is_expelled(&mut self, holder: &str, now: Instant) -> bool {
        let Some(lease) = self.fleet.lease_of(holder) else { return false };
        if self.ended.contains(holder) {
            return true;
        }
        let member = self.members.get(lease);
        if member.is_some_and(|member| member.record.holder == holder) {
            return false;
        }
        let patience = if member.is_some() { Duration::ZERO } else { EXPELLED_AFTER };
        let since = *self.missing.entry(holder.to_owned()).or_insert(now);
        self.looked.is_some_and(|(sent, _)| sent > since && sent.saturating_duration_since(since) >= patience)
    }

    /// A holder is or was a member of this fleet.
    pub fn is_member(&self, holder: &str) -> bool {
        self.fleet.lease_of(holder).is_some()
    }

    /// A member is ready to take a namespace over.
    pub fn asks_for(&self, lease: &str, namespace: &str) -> bool {
        self.members.get(lease).is_some_and(|member| member.record.asks_for.contains(namespace))
    }

    /// All that decisions about namespaces depend on.
    pub fn summary(&self, open_since: Instant) -> (BTreeSet<String>, Vec<(String, BTreeSet<String>)>) {
        let records = self.members.values().map(|member| &member.record);
        let parts = records.map(|record| (record.holder.clone(), record.asks_for.clone()));
        (self.live(open_since), parts.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: &str = "mcm-fleet-one-00000001";

    struct Watcher {
        members: ObservedMembers,
        start: Instant,
    }

    fn holder() -> String {
        fleet().identity("a", LEASE, 1)
    }

    fn fleet() -> FleetName {
        FleetName { namespace: "system".to_owned(), name: "one".to_owned() }
    }

    impl Watcher {
        fn new() -> Self {
            Self { members: ObservedMembers::new(fleet()), start: Instant::now() }
        }

        fn at(&self, second: f64) -> Instant {
            self.start + Duration::from_secs_f64(second)
        }

        /// A list that took 100 ms.
        fn look(&mut self, second: f64, version: u32, holder: &str) {
            let record = MemberRecord {
                lease: LEASE.to_owned(),
                holder: holder.to_owned(),
                version: version.to_string(),
                asks_for: BTreeSet::new(),
            };
            self.members.listed(vec![record], (self.at(second), self.at(second + 0.1)));
        }

        fn look_at_none(&mut self, second: f64) {
            self.members.listed(Vec::new(), (self.at(second), self.at(second + 0.1)));
        }

        fn is_silent(&self, open_since: f64) -> bool {
            !self.members.silent(self.at(open_since)).is_empty()
        }

        fn is_expelled(&mut self, second: f64) -> bool {
            let now = self.at(second);
            self.members.is_expelled(&holder(), now)
        }

        fn is_live(&self) -> bool {
            self.members.live(self.start).contains(LEASE)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_is_silent_from_the_answer_that_showed_its_last_renewal_to_the_question_that_shows_no_other() {
        let mut watcher = Watcher::new();
        for second in 0..=15 {
            watcher.look(f64::from(second), 1, &holder());
            assert!(!watcher.is_silent(0.0), "{second}: seen at 0.1");
            assert_eq!(watcher.is_live(), second <= 10, "{second}");
        }
        watcher.look(15.2, 1, &holder());
        assert!(watcher.is_silent(0.0));
        watcher.look(16.0, 2, &holder());
        assert!(!watcher.is_silent(0.0) && watcher.is_live(), "it renewed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_without_lists_or_without_an_own_renewal_does_not_count() {
        let mut watcher = Watcher::new();
        watcher.look(0.0, 1, &holder());
        watcher.look(100.0, 1, &holder());
        assert!(!watcher.is_silent(0.0) && watcher.is_live(), "the API server was away");
        for second in 101..=120 {
            watcher.look(f64::from(second), 1, &holder());
        }
        assert!(watcher.is_silent(0.0));
        assert!(!watcher.is_silent(110.0), "this process could not write either");
        assert!(watcher.is_silent(105.0));
    }

    #[tokio::test(start_paused = true)]
    async fn another_holder_or_none_in_its_lease_expels_a_member_for_good() {
        for other in ["", &fleet().identity("a", LEASE, 2)] {
            let mut watcher = Watcher::new();
            assert!(!watcher.is_expelled(0.0), "nothing is known");
            watcher.look(0.5, 1, &holder());
            assert!(!watcher.is_expelled(0.6));
            watcher.look(1.0, 2, other);
            assert!(watcher.is_expelled(1.1));
            let now = watcher.at(1.1);
            assert!(!watcher.members.is_expelled("go-host", now));
            watcher.look(100.0, 3, other);
            assert!(watcher.is_expelled(100.1));
        }
    }

    /// It may have joined, and acquired the claim, after the list was made.
    #[tokio::test(start_paused = true)]
    async fn an_old_list_without_a_member_that_was_never_seen_expels_none() {
        let mut watcher = Watcher::new();
        watcher.look(1.0, 1, "");
        assert!(!watcher.is_expelled(1.2));
        watcher.look(1.1, 1, "");
        assert!(!watcher.is_expelled(1.3), "the list was sent before the question");
        watcher.look(2.0, 2, &holder());
        assert!(!watcher.is_expelled(2.2), "it had joined");

        let mut watcher = Watcher::new();
        watcher.look(1.0, 1, "");
        assert!(!watcher.is_expelled(1.2));
        watcher.look(2.0, 1, "");
        assert!(watcher.is_expelled(2.2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_without_a_lease_is_expelled_once_it_must_have_noticed() {
        let mut watcher = Watcher::new();
        watcher.look_at_none(0.0);
        for second in 0..=14 {
            let second = f64::from(second);
            watcher.look_at_none(second);
            assert!(!watcher.is_expelled(second + 0.5), "{second}");
        }
        watcher.look_at_none(15.6);
        assert!(watcher.is_expelled(15.8), "it was first asked for at 0.5");
        watcher.look_at_none(30.0);
        assert!(!watcher.is_expelled(30.2), "it was not looked at for a while");
        watcher.look(31.0, 1, &holder());
        assert!(!watcher.is_expelled(31.2));
    }
}
