//! The cache of MachineDeployments.

use super::lost_replicas::prune_unless_needed;
use mcm_api::machine::MachineDeployment;
use mcm_runtime::{
    cache::{Cache, Index},
    kind_cache::KindCache,
};

/// Index: the namespace.
pub(super) const BY_NAMESPACE: &Index<MachineDeployment, String> =
    &Index::new("namespace", |deployment| vec![deployment.metadata.namespace.clone().unwrap_or_default()]);

/// How MachineDeployments are cached.
pub const CACHE: KindCache<MachineDeployment> = KindCache::new(|_| Cache::new(&[BY_NAMESPACE], prune_unless_needed));
