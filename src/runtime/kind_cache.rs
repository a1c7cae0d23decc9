//! How the objects of each kind are cached.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    sync::Arc,
};

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::Serialize;

use crate::{
    cache::{CacheableKind, ObjectCache},
    role::ControllerRole,
};

/// A kind of the control cluster that cells can cache.
pub trait CachedKind: CacheableKind + Serialize + Resource<Scope = NamespaceResourceScope> {}

impl<K: CacheableKind + Serialize + Resource<Scope = NamespaceResourceScope>> CachedKind for K {}

/// How the objects of a kind are cached: with which indexes, and which of their fields.
pub struct KindCache<K: CachedKind> {
    create: fn(&[ControllerRole]) -> Arc<ObjectCache<K>>,
    is_of_cluster: bool,
    is_read_by_new_leaders: bool,
}

impl<K: CachedKind> Clone for KindCache<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: CachedKind> Copy for KindCache<K> {}

impl<K: CachedKind> fmt::Debug for KindCache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindCache").field("kind", &K::kind(&())).finish_non_exhaustive()
    }
}

impl<K: CachedKind> KindCache<K> {
    /// Objects in the scope of the cell. `create` makes an empty cache in a process with these roles, which may read less of an
    /// object.
    pub const fn new(create: fn(&[ControllerRole]) -> Arc<ObjectCache<K>>) -> Self {
        Self { create, is_of_cluster: false, is_read_by_new_leaders: true }
    }

    /// The kind has no namespaces: its objects are watched whatever the scope of the cell.
    #[must_use]
    pub const fn of_cluster(self) -> Self {
        Self { is_of_cluster: true, ..self }
    }

    /// A new leader does not read the objects live. For kinds on which nothing depends but writes with a resource version.
    #[must_use]
    pub const fn without_live_reads(self) -> Self {
        Self { is_read_by_new_leaders: false, ..self }
    }

    /// An empty cache.
    pub fn empty(self) -> Arc<ObjectCache<K>> {
        self.empty_for(&[])
    }

    /// An empty cache in a process with these roles.
    pub fn empty_for(self, roles: &[ControllerRole]) -> Arc<ObjectCache<K>> {
        (self.create)(roles)
    }

    pub(crate) const fn is_of_cluster(self) -> bool {
        self.is_of_cluster
    }

    pub(crate) const fn is_read_by_new_leaders(self) -> bool {
        self.is_read_by_new_leaders
    }
}

/// How the objects of all kinds are cached.
#[derive(Default)]
pub struct KindCaches(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl KindCaches {
    /// Adds a kind.
    #[must_use]
    pub fn with<K: CachedKind>(mut self, cache: KindCache<K>) -> Self {
        self.0.insert(TypeId::of::<K>(), Box::new(cache));
        self
    }

    /// How the objects of a kind are cached.
    ///
    /// # Panics
    /// The kind was not added. A cache without its indexes would answer that no object has a term, so the cell does not start.
    pub fn get<K: CachedKind>(&self) -> KindCache<K> {
        let known = self.0.get(&TypeId::of::<K>()).and_then(|known| known.downcast_ref()).copied();
        known.unwrap_or_else(|| unreachable!("the cache of {} was not added", K::kind(&())))
    }
}

impl fmt::Debug for KindCaches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindCaches").field("kinds", &self.0.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    use super::*;

    #[test]
    #[should_panic(expected = "the cache of Secret was not added")]
    fn a_kind_that_was_not_added_has_no_cache_and_not_one_without_indexes() {
        let kinds = KindCaches::default().with::<ConfigMap>(KindCache::new(|_| ObjectCache::new(&[], |_| ())));
        assert!(kinds.get::<ConfigMap>().empty().all().is_empty());
        kinds.get::<Secret>();
    }
}
