use super::{Snapshot, apply::ResumeReconciler};
use crate::{object::observe::view, provider::observe::cluster_name};
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

impl SnapshotReader for ResumeReconciler {
    type Key = &'static str;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = ();

    fn observe(&self, _: &&'static str, (): &(), (): &()) -> Option<Snapshot> {
        let pools = self.pools.cache.all();
        let named = pools.iter().filter_map(|pool| Some(Key::beside(&pool.metadata, cluster_name(&pool.metadata)?)));
        let clusters = named.filter_map(|key| view(&self.clusters.cache, &key).known().cloned());
        let running = clusters.filter(|cluster| cluster.spec.paused != Some(true));
        let uids = running.filter_map(|cluster| cluster.metadata.uid.clone());
        Some(Snapshot { unread: uids.filter(|uid| !self.resumed.contains(uid)).collect() })
    }
}
