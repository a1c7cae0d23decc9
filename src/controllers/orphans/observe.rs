use jiff::Timestamp;

use super::{
    Memory, Snapshot,
    apply::{Orphans, Session},
    claim_of,
    plan::period_of,
};
use crate::{
    api::machine::MachineClass,
    controllers::machine,
    driver::Account,
    runtime::{cache::Key, reconcile::Observe, target::TargetOf},
    safety::trust::TargetTrust,
};

impl Observe for Orphans {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = Memory;
    type Session = Session;

    /// `None` if the class does not exist.
    fn observe(&self, key: &Key, memory: &Memory, session: &Session) -> Option<Snapshot> {
        let class = self.classes.cache.get(key)?;
        let now = self.clock.now();
        Some(Snapshot {
            policy: self.policy,
            can_list: self.drivers.get(&class).is_ok_and(|driver| driver.capabilities().list),
            claims: self.machines.cache.all().iter().map(|machine| claim_of(machine)).collect(),
            machines: machine::naming_class(&self.machines.cache, key).collect(),
            recently_deleted: self.recently_deleted(&class, now),
            uncertain: self.uncertain(now),
            memory: memory.clone(),
            learned: session.learned.clone(),
            class,
            now,
        })
    }
}

impl Orphans {
    fn recently_deleted(&self, class: &MachineClass, now: Timestamp) -> usize {
        let since = now.checked_sub(period_of(&self.policy)).unwrap_or(Timestamp::MIN);
        let deletions = self.deletions.lock();
        deletions.get(&Account::of(class)).map_or(0, |times| times.iter().filter(|at| **at > since).count())
    }

    /// Why a Machine that the cache lacks may exist, or why its VM must not be judged now.
    fn uncertain(&self, now: Timestamp) -> Option<String> {
        let cache = &self.machines.cache;
        if let Some(problem) = cache.trust().problem() {
            return Some(format!("machines: {problem}"));
        }
        if let Some(odd) = cache.unreadable().first() {
            let name = odd.meta.name.as_deref().unwrap_or_default();
            return Some(format!("machine {name} cannot be decoded, so its VM is unknown"));
        }
        self.targets.all().into_iter().find_map(|target| {
            let id = target.id.clone();
            match machine::trust_of(&TargetOf::Known(target), &self.servers, now) {
                TargetTrust::Untrusted { since, reason } => {
                    Some(format!("cluster {id} is not trusted since {since:.0}: {reason}"))
                }
                TargetTrust::Trusted { .. } => None,
            }
        })
    }
}
