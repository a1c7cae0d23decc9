//! The caches of MCMMachines, and of the objects around them.

use crate::provider::observe::cluster_name;
use mcm_controllers::object::prune;
use mcm_conversion::types::{Cluster, MCMMachine, Machine};
use mcm_runtime::{
    cache::{CacheIndex, Key, ObjectCache},
    kind_cache::KindCache,
};

/// Index: the Cluster in the label.
pub(in super::super) const BY_CLUSTER: &CacheIndex<MCMMachine, Key> = &CacheIndex::new("cluster", |object| {
    cluster_name(&object.metadata).map(|name| Key::beside(&object.metadata, name)).into_iter().collect()
});

/// Index: the Secret with bootstrap data.
pub(super) const BY_BOOTSTRAP: &CacheIndex<Machine, Key> = &CacheIndex::new("bootstrap", |machine| {
    let name = machine.spec.bootstrap.data_secret_name.as_ref();
    name.map(|name| Key::beside(&machine.metadata, name)).into_iter().collect()
});

/// How MCMMachines are cached.
pub const CACHE: KindCache<MCMMachine> = KindCache::new(|_| ObjectCache::new(&[BY_CLUSTER], prune));

/// How Machines are cached.
pub const MACHINES: KindCache<Machine> = KindCache::new(|_| ObjectCache::new(&[BY_BOOTSTRAP], prune));

/// How Clusters are cached.
pub const CLUSTERS: KindCache<Cluster> = KindCache::new(|_| {
    ObjectCache::new(&[], |cluster| {
        prune(cluster);
        cluster.spec.other.clear();
        if let Some(status) = &mut cluster.status {
            status.other.clear();
        }
    })
});
