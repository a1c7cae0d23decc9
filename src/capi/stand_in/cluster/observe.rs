use super::{Snapshot, apply::StandInClusterReconciler};
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

impl SnapshotReader for StandInClusterReconciler {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = ();

    /// `None` if the object does not exist.
    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        Some(Snapshot {
            object: self.objects.cache.get(key)?,
            standing: self.ground.standing(&key.namespace),
            watch_filter: self.watch_filter.clone(),
            now: self.clock.now(),
        })
    }
}
