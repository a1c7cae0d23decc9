use super::{Snapshot, apply::MCMMachineTemplates};
use crate::{
    object::{observe::view, view::ObjectView},
    provider::observe::cluster_name,
};
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

impl SnapshotReader for MCMMachineTemplates {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = ();

    /// `None` if the object does not exist.
    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        let object = self.objects.cache.get(key)?;
        let beside = |name: &str| Key::new(&key.namespace, name);
        let cluster = cluster_name(&object.metadata).map(|name| view(&self.clusters.cache, &beside(name)));
        let class = &object.spec.template.spec.machine_class_ref.name;
        Some(Snapshot {
            cluster: cluster.unwrap_or(ObjectView::Missing),
            class: view(&self.classes.cache, &beside(class)),
            watch_filter: self.watch_filter.clone(),
            object,
        })
    }
}
