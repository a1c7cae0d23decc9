//! The cache of MachineDeployments.

use std::sync::Arc;

use super::lost_replicas::prune_unless_needed;
use crate::{
    api::machine::MachineDeployment,
    runtime::{cache::Cache, cell::Kept},
};

impl Kept for MachineDeployment {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[], prune_unless_needed)
    }
}
