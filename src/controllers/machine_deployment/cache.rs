//! The cache of MachineDeployments.

use super::lost_replicas::prune_unless_needed;
use mcm_api::machine::MachineDeployment;
use mcm_runtime::{
    cache::{CacheIndex, ObjectCache},
    kind_cache::KindCache,
};

/// Index: the namespace.
pub(super) const BY_NAMESPACE: &CacheIndex<MachineDeployment, String> =
    &CacheIndex::new("namespace", |deployment| vec![deployment.metadata.namespace.clone().unwrap_or_default()]);

/// How MachineDeployments are cached.
pub const CACHE: KindCache<MachineDeployment> =
    KindCache::new(|_| ObjectCache::new(&[BY_NAMESPACE], prune_unless_needed));
