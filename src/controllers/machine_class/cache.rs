//! The cache of classes.

use std::sync::Arc;

use super::secret_refs;
use crate::{
    api::machine::MachineClass,
    controllers::{object::prune, secret::MetadataOfSecret},
    runtime::{
        cache::{Cache, Cached, Index, Key},
        cell::Kept,
    },
};

/// Index: the Secrets that a class refers to.
const BY_SECRET: &Index<MachineClass, Key> = &Index::new("secret", |class| {
    secret_refs(class).map(|secret| Key::beside(&class.metadata, &secret.name)).collect()
});

impl Kept for MachineClass {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[BY_SECRET], prune)
    }
}

/// The classes that name a Secret.
pub(crate) fn naming(classes: &Cache<MachineClass>, secret: &Key) -> impl Iterator<Item = Arc<MachineClass>> + use<> {
    classes.by(BY_SECRET, secret).into_iter()
}

/// Whether an object certainly does not exist.
pub(crate) fn is_missing<K: Cached>(cache: &Cache<K>, key: &Key) -> bool {
    cache.is_synced() && !cache.is_unreadable(key) && cache.get(key).is_none()
}

/// Whether a class, or a Secret that it names, certainly does not exist, so no driver can be called for it.
pub(crate) fn is_unusable(classes: &Cache<MachineClass>, secrets: &Cache<MetadataOfSecret>, class: &Key) -> bool {
    let Some(found) = classes.get(class) else { return is_missing(classes, class) };
    secret_refs(&found).any(|reference| {
        let is_elsewhere = !reference.namespace.is_empty() && reference.namespace != class.namespace;
        is_elsewhere || is_missing(secrets, &Key::new(&class.namespace, &reference.name))
    })
}
