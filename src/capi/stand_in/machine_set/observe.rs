use super::{Snapshot, apply::MachineSets};
use crate::{
    capi::object::{observe::view, view::View},
    runtime::cache::Key,
};

impl MachineSets {
    /// Reads the caches into a snapshot; `None` if the set is on neither side.
    pub(super) fn snapshot(&self, key: &Key, is_gone: bool) -> Option<Snapshot> {
        let mirror = view(&self.mirrors.cache, key);
        let native = view(&self.natives.cache, key);
        if matches!((&mirror, &native), (View::Missing, View::Missing)) {
            return None;
        }
        let above = native.known().map(|native| self.deployments.above(native));
        let native = if matches!(above, Some(None)) { View::Unknown } else { native };
        Some(Snapshot {
            standing: self.ground.standing(&key.namespace),
            mirror,
            native,
            above: above.flatten().unwrap_or_default(),
            is_gone,
            now: self.clock.now(),
        })
    }
}
