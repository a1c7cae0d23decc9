//! The caches of MCMMachines, and of the objects around them.

use std::sync::Arc;

use crate::{
    capi::{
        provider::observe::cluster_name,
        types::{Cluster, MCMMachine, Machine},
    },
    controllers::object::prune,
    runtime::{
        cache::{Cache, Index, Key},
        cell::Kept,
    },
};

/// Index: the Cluster in the label.
pub(in super::super) const BY_CLUSTER: &Index<MCMMachine, Key> = &Index::new("cluster", |object| {
    cluster_name(&object.metadata).map(|name| Key::beside(&object.metadata, name)).into_iter().collect()
});

/// Index: the Secret with bootstrap data.
pub(super) const BY_BOOTSTRAP: &Index<Machine, Key> = &Index::new("bootstrap", |machine| {
    let name = machine.spec.bootstrap.data_secret_name.as_ref();
    name.map(|name| Key::beside(&machine.metadata, name)).into_iter().collect()
});

impl Kept for MCMMachine {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[BY_CLUSTER], prune)
    }
}

impl Kept for Machine {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[BY_BOOTSTRAP], prune)
    }
}

impl Kept for Cluster {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[], |cluster| {
            prune(cluster);
            cluster.spec.other.clear();
            if let Some(status) = &mut cluster.status {
                status.other.clear();
            }
        })
    }
}
