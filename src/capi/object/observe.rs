//! Other objects, as the caches have them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::view::ObjectView;
use mcm_conversion::types::CORE_GROUP;
use mcm_runtime::cache::{CacheableKind, Key, ObjectCache};

/// An object of a cache.
pub(crate) fn view<K: CacheableKind>(cache: &ObjectCache<K>, key: &Key) -> ObjectView<K> {
    match cache.get(key) {
        Some(object) => ObjectView::Present(object),
        None if !cache.is_synced() || cache.unreadable().iter().any(|one| Key::from_meta(&one.meta) == *key) => {
            ObjectView::Unknown
        }
        None => ObjectView::Missing,
    }
}

/// The owner of a kind of core.
pub(crate) fn owner_of<'a>(meta: &'a ObjectMeta, kind: &str) -> Option<&'a OwnerReference> {
    let group = |owner: &OwnerReference| owner.api_version.split('/').next() == Some(CORE_GROUP);
    meta.owner_references.iter().flatten().find(|owner| owner.kind == kind && group(owner))
}

/// The object that an owner reference names, by name and UID.
pub(crate) fn owner<K: CacheableKind>(
    cache: &ObjectCache<K>,
    meta: &ObjectMeta,
    reference: &OwnerReference,
) -> ObjectView<K> {
    match view(cache, &Key::beside(meta, &reference.name)) {
        ObjectView::Present(object) if object.meta().uid.as_deref() != Some(&reference.uid) => ObjectView::Missing,
        seen => seen,
    }
}

/// An object is in a namespace.
pub(crate) fn is_in(meta: &ObjectMeta, namespace: &str) -> bool {
    meta.namespace.as_deref() == Some(namespace)
}
