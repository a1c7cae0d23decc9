//! The cache of MachineSets.

use std::sync::Arc;

use crate::{
    capi::types::MachineSet,
    controllers::object::prune,
    runtime::{cache::Cache, cell::Kept},
};

impl Kept for MachineSet {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[], prune)
    }
}
