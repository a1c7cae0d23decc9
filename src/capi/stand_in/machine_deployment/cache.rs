//! The caches of MachineDeployments, MachineHealthChecks and MCMMigrations.

use std::sync::Arc;

use crate::{
    capi::types::{MCMMigration, MachineDeployment, MachineHealthCheck},
    controllers::object::prune,
    runtime::{cache::Cache, cell::Kept},
};

impl Kept for MachineDeployment {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[], prune)
    }
}

impl Kept for MachineHealthCheck {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[], prune)
    }
}

impl Kept for MCMMigration {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[], prune)
    }
}
