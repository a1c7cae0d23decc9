//! Cache helpers that every kind uses.

use kube::Resource;

use crate::runtime::cache::{Cache, Cached};

/// Names of the objects of a namespace that cannot be decoded.
pub(crate) fn unreadable_names<K: Cached>(cache: &Cache<K>, namespace: &str) -> Vec<String> {
    let of_namespace = |meta: &kube::core::ObjectMeta| meta.namespace.as_deref().unwrap_or_default() == namespace;
    let unreadable = cache.unreadable().into_iter().filter(|object| of_namespace(&object.meta));
    unreadable.filter_map(|object| object.meta.name).collect()
}

/// Drops `managedFields`, which no plan reads.
pub(crate) fn prune<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}
