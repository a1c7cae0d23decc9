//! Machines that a look-up of a moment ago found without a VM: the creation that follows needs no other look-up.

use std::{collections::HashMap, hash::Hash, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::wanted::MachineIdentity;

/// The longest age of a look-up that counts.
const FRESH: Duration = Duration::from_secs(5);

/// Look-ups of Machines, by the place `K` where their VMs are looked for, and by their UID. Each serves one creation, so that a
/// creation after a request always makes a look-up.
pub struct AbsenceCache<K> {
    looks: Mutex<HashMap<(K, String), AbsenceRecord>>,
}

#[derive(Clone, Copy)]
struct AbsenceRecord {
    began: Instant,
    found_none: bool,
}

/// A look-up that began.
pub struct AbsenceLookup<'a, K: Clone + Eq + Hash> {
    absences: &'a AbsenceCache<K>,
    key: (K, String),
    began: Instant,
}

impl<K: Clone + Eq + Hash> AbsenceCache<K> {
    /// Without look-ups.
    pub fn new() -> Self {
        Self { looks: Mutex::default() }
    }

    /// Notes the begin of a look-up.
    pub fn look(&self, place: K, wanted: MachineIdentity<'_>) -> AbsenceLookup<'_, K> {
        let (key, began) = ((place, wanted.uid.to_owned()), Instant::now());
        let mut looks = self.looks.lock();
        looks.retain(|_, look| look.is_fresh());
        looks.insert(key.clone(), AbsenceRecord { began, found_none: false });
        AbsenceLookup { absences: self, key, began }
    }

    /// The last look-up of a Machine found no VM a moment ago, and no creation began since. Called when one begins.
    pub fn take(&self, place: K, wanted: MachineIdentity<'_>) -> bool {
        let look = self.looks.lock().remove(&(place, wanted.uid.to_owned()));
        !wanted.uid.is_empty() && look.is_some_and(|look| look.found_none && look.is_fresh())
    }
}

impl<K: Clone + Eq + Hash> Default for AbsenceCache<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl AbsenceRecord {
    fn is_fresh(&self) -> bool {
        self.began.elapsed() < FRESH
    }
}

impl<K: Clone + Eq + Hash> AbsenceLookup<'_, K> {
    /// It found no VM, and no earlier request may still create one.
    pub fn found_none(self) {
        if let Some(look) = self.absences.looks.lock().get_mut(&self.key).filter(|look| look.began == self.began) {
            look.found_none = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const A: MachineIdentity<'static> = MachineIdentity { name: "a", uid: "u" };

    #[tokio::test(start_paused = true)]
    async fn an_absence_serves_one_creation_of_that_machine_in_that_place() {
        let absences = AbsenceCache::new();
        absences.look("here", A).found_none();
        assert!(!absences.take("there", A));
        assert!(!absences.take("here", MachineIdentity { uid: "v", ..A }));
        assert!(absences.take("here", A));
        assert!(!absences.take("here", A), "it was used");
        absences.look("here", MachineIdentity { uid: "", ..A }).found_none();
        assert!(!absences.take("here", MachineIdentity { uid: "", ..A }), "an orphan has no creations");
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_last_look_up_counts_and_only_for_a_moment() {
        let absences = AbsenceCache::new();
        absences.look("here", A).found_none();
        let last = absences.look("here", A);
        assert!(!absences.take("here", A), "the last has no answer yet");
        last.found_none();
        assert!(!absences.take("here", A), "a creation began meanwhile");
        let slow = absences.look("here", A);
        advance(FRESH).await;
        slow.found_none();
        assert!(!absences.take("here", A), "it began too long ago");
        absences.look("here", A).found_none();
        advance(FRESH / 2).await;
        assert!(absences.take("here", A));
    }

    #[tokio::test(start_paused = true)]
    async fn old_look_ups_are_forgotten() {
        let absences = AbsenceCache::new();
        for number in 0..10 {
            let uid = number.to_string();
            absences.look("here", MachineIdentity { name: "a", uid: &uid }).found_none();
            advance(FRESH / 2).await;
        }
        assert!(absences.looks.lock().len() <= 2);
    }
}
