use super::{Snapshot, apply::ConfigMaps};
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

impl SnapshotReader for ConfigMaps {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = ();

    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        Some(Snapshot { map: self.objects.cache.get(key)? })
    }
}
