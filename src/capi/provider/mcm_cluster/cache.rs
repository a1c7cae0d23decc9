//! The cache of MCMClusters.

use std::sync::Arc;

use crate::{
    capi::types::MCMCluster,
    controllers::object::prune,
    runtime::{cache::Cache, cell::Kept},
};

impl Kept for MCMCluster {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[], prune)
    }
}
