use super::{Snapshot, apply::StandInSetReconciler};
use crate::object::{observe::view, view::ObjectView};
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

impl SnapshotReader for StandInSetReconciler {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    /// A live read showed that the native set does not exist.
    type Session = bool;

    /// `None` if the set is on neither side.
    fn observe(&self, key: &Key, (): &(), is_gone: &bool) -> Option<Snapshot> {
        let mirror = view(&self.mirrors.cache, key);
        let native = view(&self.natives.cache, key);
        if matches!((&mirror, &native), (ObjectView::Missing, ObjectView::Missing)) {
            return None;
        }
        let above = native.known().map(|native| self.deployments.above(native));
        let native = if matches!(above, Some(None)) { ObjectView::Unknown } else { native };
        Some(Snapshot {
            standing: self.ground.standing(&key.namespace),
            mirror,
            native,
            above: above.flatten().unwrap_or_default(),
            is_gone: *is_gone,
            now: self.clock.now(),
        })
    }
}
