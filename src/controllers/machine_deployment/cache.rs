//! The cache of MachineDeployments.

use std::sync::Arc;

use super::lost_replicas::prune_unless_needed;
use crate::{
    api::machine::MachineDeployment,
    runtime::{
        cache::{Cache, Index},
        cell::Kept,
    },
};

/// Index: the namespace.
pub(super) const BY_NAMESPACE: &Index<MachineDeployment, String> =
    &Index::new("namespace", |deployment| vec![deployment.metadata.namespace.clone().unwrap_or_default()]);

impl Kept for MachineDeployment {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[BY_NAMESPACE], prune_unless_needed)
    }
}
