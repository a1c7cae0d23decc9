//! The cache of MachineSets.

use mcm_controllers::object::prune;
use mcm_conversion::types::MachineSet;
use mcm_runtime::{cache::ObjectCache, kind_cache::KindCache};

/// How MachineSets are cached.
pub const CACHE: KindCache<MachineSet> = KindCache::new(|_| ObjectCache::new(&[], prune));
