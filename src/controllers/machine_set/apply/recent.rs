//! Machines that this process created and replaced lately, by its monotonic clock.

use std::{collections::HashMap, time::Duration};

use jiff::SignedDuration;
use kube::ResourceExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::machine_set::brake::{AGES, YoungFailures};
use mcm_api::machine::{Machine, MachinePhase};

/// Replacements are no longer in a row after this time without one.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);
/// Fewer Machines are not searched for old ones.
const LEAST_LIMIT: usize = 64;

/// When this process created Machines, by UID, for as long as they are young.
#[derive(Debug, Default)]
pub(crate) struct RecentCreations {
    created: Mutex<CreationTimes>,
}

#[derive(Debug, Default)]
struct CreationTimes {
    by_uid: HashMap<String, Instant>,
    /// The number of Machines at which older ones are dropped.
    limit: usize,
}

impl RecentCreations {
    /// A Machine was created now.
    pub fn add(&self, machine: &Machine) {
        let mut created = self.created.lock();
        if created.by_uid.len() >= created.limit {
            created.by_uid.retain(|_, at| at.elapsed() < AGES.longest());
            created.limit = LEAST_LIMIT.max(created.by_uid.len().saturating_mul(2));
        }
        created.by_uid.insert(machine.uid().unwrap_or_default(), Instant::now());
    }

    /// The failed ones of these Machines, with the replacements that their set remembers.
    pub fn failures<'a>(
        &self,
        machines: impl IntoIterator<Item = &'a Machine>,
        replacements: ReplacementCount,
    ) -> YoungFailures {
        let failed = machines.into_iter().filter(|machine| machine.phase() == MachinePhase::Failed);
        let created = self.created.lock();
        let ages = failed.filter_map(|machine| {
            let uid = machine.uid()?;
            let age = created.by_uid.get(&uid)?.elapsed();
            (age < AGES.longest()).then(|| (uid, SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX)))
        });
        YoungFailures { ages: ages.collect(), replacements: replacements.in_a_row() }
    }
}

/// The replacements of young Machines of one set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplacementCount {
    count: u32,
    last: Option<Instant>,
}

impl ReplacementCount {
    /// Young Machines are replaced now.
    pub fn add(&mut self) {
        *self = Self { count: self.in_a_row().saturating_add(1), last: Some(Instant::now()) };
    }

    fn in_a_row(self) -> u32 {
        let is_recent = self.last.is_some_and(|last| last.elapsed() < FORGOTTEN_AFTER);
        if is_recent { self.count } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;
    use tokio::time::advance;

    use super::*;

    fn failed(uid: &str) -> Machine {
        serde_json::from_value(json!({
            "metadata": { "name": "m", "uid": uid }, "spec": {}, "status": { "currentStatus": { "phase": "Failed" } },
        }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn machines_that_fail_again_and_again_are_replaced_ever_more_rarely() {
        let (recent, mut replacements) = (RecentCreations::default(), ReplacementCount::default());
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let machine = failed("u");
            recent.add(&machine);
            let young = recent.failures([&machine], replacements);
            let now = Timestamp::UNIX_EPOCH;
            let pause = young.replaced_at(&machine, now).unwrap().duration_since(now);
            pauses.push(pause.as_secs());
            advance(pause.unsigned_abs()).await;
            assert_eq!(recent.failures([&machine], replacements).replaced_at(&machine, now), None);
            replacements.add();
        }
        assert_eq!(pauses, [20, 20, 40, 80, 160, 300, 300]);
        advance(FORGOTTEN_AFTER).await;
        assert_eq!(recent.failures([], replacements).replaced_at_age().as_secs(), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn machines_of_others_and_old_ones_are_not_held_back() {
        let (recent, now) = (RecentCreations::default(), Timestamp::UNIX_EPOCH);
        let (own, other) = (failed("own"), failed("other"));
        recent.add(&own);
        let young = recent.failures([&own, &other], ReplacementCount::default());
        assert!(young.replaced_at(&own, now).is_some() && young.replaced_at(&other, now).is_none());
        advance(AGES.longest()).await;
        assert_eq!(recent.failures([&own], ReplacementCount::default()), YoungFailures::default());
        for uid in 0..1_000 {
            recent.add(&failed(&uid.to_string()));
            advance(Duration::from_secs(1)).await;
        }
        assert!(recent.created.lock().by_uid.len() <= 2 * 300, "old ones are dropped");
    }
}
