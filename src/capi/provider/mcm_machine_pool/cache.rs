//! The caches of MCMMachinePools, and of MachinePools.

use std::sync::Arc;

use crate::{
    capi::{
        provider::observe::cluster_name,
        types::{MCMMachinePool, MachinePool},
    },
    controllers::object::prune,
    runtime::{
        cache::{Cache, Index, Key},
        cell::Kept,
    },
};

/// Index: the Secret with bootstrap data.
pub(super) const BY_BOOTSTRAP: &Index<MachinePool, Key> = &Index::new("bootstrap", |pool| {
    let name = pool.spec.template.spec.bootstrap.data_secret_name.as_ref();
    name.map(|name| Key::beside(&pool.metadata, name)).into_iter().collect()
});

impl Kept for MachinePool {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[BY_BOOTSTRAP], |pool| {
            prune(pool);
            pool.status = None;
            pool.spec.provider_id_list.clear();
        })
    }
}

/// Index: the Cluster in the label.
pub(in super::super) const BY_CLUSTER: &Index<MCMMachinePool, Key> = &Index::new("cluster", |pool| {
    cluster_name(&pool.metadata).map(|name| Key::beside(&pool.metadata, name)).into_iter().collect()
});

impl Kept for MCMMachinePool {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[BY_CLUSTER], prune)
    }
}
