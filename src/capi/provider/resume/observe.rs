use super::{Snapshot, apply::Resume};
use crate::{
    capi::{object::observe::view, provider::observe::cluster_name},
    runtime::cache::Key,
};

impl Resume {
    /// Reads the caches into a snapshot.
    pub(super) fn snapshot(&self) -> Snapshot {
        let pools = self.pools.cache.all();
        let named = pools.iter().filter_map(|pool| Some(Key::beside(&pool.metadata, cluster_name(&pool.metadata)?)));
        let clusters = named.filter_map(|key| view(&self.clusters.cache, &key).known().cloned());
        let running = clusters.filter(|cluster| cluster.spec.paused != Some(true));
        let uids = running.filter_map(|cluster| cluster.metadata.uid.clone());
        Snapshot { unread: uids.filter(|uid| !self.resumed.contains(uid)).collect() }
    }
}
