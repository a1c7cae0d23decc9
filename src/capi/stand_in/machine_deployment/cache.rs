//! The caches of MachineDeployments, MachineHealthChecks and MCMMigrations.

use mcm_controllers::object::prune;
use mcm_conversion::types::{MCMMigration, MachineDeployment, MachineHealthCheck};
use mcm_runtime::{cache::ObjectCache, kind_cache::KindCache};

/// How MachineDeployments are cached.
pub const CACHE: KindCache<MachineDeployment> = KindCache::new(|_| ObjectCache::new(&[], prune));

/// How MachineHealthChecks are cached.
pub const HEALTH_CHECKS: KindCache<MachineHealthCheck> = KindCache::new(|_| ObjectCache::new(&[], prune));

/// How MCMMigrations are cached.
pub const MIGRATIONS: KindCache<MCMMigration> = KindCache::new(|_| ObjectCache::new(&[], prune));
