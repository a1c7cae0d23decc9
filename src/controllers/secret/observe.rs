use super::{Snapshot, apply::ClassSecrets};
use crate::object::unreadable_names;
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

impl SnapshotReader for ClassSecrets {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = ();

    fn namespaces(&self, key: &Key) -> Vec<String> {
        vec![key.namespace.clone()]
    }

    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        let secret = self.secrets.cache.get(key)?;
        let classes = &self.classes.cache;
        Some(Snapshot {
            secret: Box::new(secret.metadata.clone()),
            classes: classes
                .all()
                .into_iter()
                .filter(|class| class.metadata.namespace == secret.metadata.namespace)
                .collect(),
            unreadable_classes: unreadable_names(classes, &key.namespace),
        })
    }
}
