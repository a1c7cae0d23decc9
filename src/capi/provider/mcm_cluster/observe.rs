use std::collections::BTreeSet;

use super::{Snapshot, apply::MCMClusters};
use crate::object::{
    observe::{owner, owner_of, view},
    view::ObjectView,
};
use mcm_runtime::{
    cache::{CacheableKind, Key, ObjectCache},
    reconcile::SnapshotReader,
};

impl SnapshotReader for MCMClusters {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = ();

    /// `None` if the object does not exist.
    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        let object = self.objects.cache.get(key)?;
        let beside = |name: &str| Key::new(&key.namespace, name);
        let secret = object.spec.credentials_secret_ref.as_ref();
        let classes: BTreeSet<&String> =
            object.spec.failure_domains.iter().flat_map(|domain| domain.machine_class_overrides.values()).collect();
        Some(Snapshot {
            cluster: owner_of(&object.metadata, "Cluster")
                .map(|reference| owner(&self.clusters.cache, &object.metadata, reference)),
            credentials: secret.map(|reference| existence(&self.secrets.cache, &beside(&reference.name))),
            classes: classes
                .into_iter()
                .map(|name| (name.clone(), existence(&self.classes.cache, &beside(name))))
                .collect(),
            watch_filter: self.watch_filter.clone(),
            now: self.clock.now(),
            object,
        })
    }
}

fn existence<K: CacheableKind>(cache: &ObjectCache<K>, key: &Key) -> ObjectView<()> {
    match view(cache, key) {
        ObjectView::Present(_) => ObjectView::Present(().into()),
        ObjectView::Missing => ObjectView::Missing,
        ObjectView::Unknown => ObjectView::Unknown,
    }
}
