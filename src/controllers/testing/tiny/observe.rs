use super::{Snapshot, apply::ConfigMaps};
use crate::runtime::cache::Key;

pub(super) fn observe(key: &Key, maps: &ConfigMaps) -> Option<Snapshot> {
    Some(Snapshot { map: maps.objects.cache.get(key)? })
}
