//! The cache of MCMClusters.

use mcm_controllers::object::prune;
use mcm_conversion::types::MCMCluster;
use mcm_runtime::{cache::ObjectCache, kind_cache::KindCache};

/// How MCMClusters are cached.
pub const CACHE: KindCache<MCMCluster> = KindCache::new(|_| ObjectCache::new(&[], prune));
