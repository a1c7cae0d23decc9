use super::{Snapshot, apply::ClassSecrets};
use crate::{controllers::object::unreadable_names, runtime::cache::Key};

pub(super) fn observe(key: &Key, caches: &ClassSecrets) -> Option<Snapshot> {
    let secret = caches.secrets.cache.get(key)?;
    let classes = &caches.classes.cache;
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
