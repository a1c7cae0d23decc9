//! The caches of MCMMachinePools, and of MachinePools.

use crate::provider::observe::cluster_name;
use mcm_controllers::object::prune;
use mcm_conversion::types::{MCMMachinePool, MachinePool};
use mcm_runtime::{
    cache::{CacheIndex, Key, ObjectCache},
    kind_cache::KindCache,
};

/// Index: the Secret with bootstrap data.
pub(super) const BY_BOOTSTRAP: &CacheIndex<MachinePool, Key> = &CacheIndex::new("bootstrap", |pool| {
    let name = pool.spec.template.spec.bootstrap.data_secret_name.as_ref();
    name.map(|name| Key::beside(&pool.metadata, name)).into_iter().collect()
});

/// How MachinePools are cached.
pub const POOLS: KindCache<MachinePool> = KindCache::new(|_| {
    ObjectCache::new(&[BY_BOOTSTRAP], |pool| {
        prune(pool);
        pool.status = None;
        pool.spec.provider_id_list.clear();
    })
});

/// Index: the Cluster in the label.
pub(in super::super) const BY_CLUSTER: &CacheIndex<MCMMachinePool, Key> = &CacheIndex::new("cluster", |pool| {
    cluster_name(&pool.metadata).map(|name| Key::beside(&pool.metadata, name)).into_iter().collect()
});

/// How MCMMachinePools are cached.
pub const CACHE: KindCache<MCMMachinePool> = KindCache::new(|_| ObjectCache::new(&[BY_CLUSTER], prune));
