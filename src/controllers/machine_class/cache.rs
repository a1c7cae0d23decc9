//! The cache of classes.

use std::sync::Arc;

use super::secret_refs;
use crate::{object::prune, secret::MetadataOfSecret};
use mcm_api::machine::MachineClass;
use mcm_runtime::{
    cache::{CacheIndex, CacheableKind, Key, ObjectCache},
    kind_cache::KindCache,
};

/// Index: the Secrets that a class refers to.
const BY_SECRET: &CacheIndex<MachineClass, Key> = &CacheIndex::new("secret", |class| {
    secret_refs(class).map(|secret| Key::beside(&class.metadata, &secret.name)).collect()
});

/// How MachineClasss are cached.
pub const CACHE: KindCache<MachineClass> = KindCache::new(|_| ObjectCache::new(&[BY_SECRET], prune));

/// The classes that name a Secret.
pub fn naming(classes: &ObjectCache<MachineClass>, secret: &Key) -> impl Iterator<Item = Arc<MachineClass>> + use<> {
    classes.by(BY_SECRET, secret).into_iter()
}

/// An object certainly does not exist.
pub fn is_missing<K: CacheableKind>(cache: &ObjectCache<K>, key: &Key) -> bool {
    cache.is_synced() && !cache.is_unreadable(key) && cache.get(key).is_none()
}

/// A class, or a Secret that it names, certainly does not exist, so no driver can be called for it.
pub fn is_unusable(classes: &ObjectCache<MachineClass>, secrets: &ObjectCache<MetadataOfSecret>, class: &Key) -> bool {
    let Some(found) = classes.get(class) else { return is_missing(classes, class) };
    secret_refs(&found).any(|reference| {
        let is_elsewhere = !reference.namespace.is_empty() && reference.namespace != class.namespace;
        is_elsewhere || is_missing(secrets, &Key::new(&class.namespace, &reference.name))
    })
}
