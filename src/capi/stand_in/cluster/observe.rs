use super::{Snapshot, apply::Clusters};
use crate::runtime::cache::Key;

impl Clusters {
    /// Reads the caches into a snapshot; `None` if the object does not exist.
    pub(super) fn snapshot(&self, key: &Key) -> Option<Snapshot> {
        Some(Snapshot {
            object: self.objects.cache.get(key)?,
            standing: self.ground.standing(&key.namespace),
            watch_filter: self.watch_filter.clone(),
            now: self.clock.now(),
        })
    }
}
