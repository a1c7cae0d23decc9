//! The cache of MachineSets with its index.

use crate::object::{owner, prune};
use mcm_api::machine::MachineSet;
use mcm_runtime::{
    cache::{CacheIndex, ObjectCache},
    kind_cache::KindCache,
};

/// Index: UID of the controller; empty for sets without one.
pub const BY_CONTROLLER: &CacheIndex<MachineSet, String> =
    &CacheIndex::new("controller", |set| vec![owner::controller_uid(set)]);

/// How MachineSets are cached.
pub const CACHE: KindCache<MachineSet> = KindCache::new(|_| ObjectCache::new(&[BY_CONTROLLER], prune));
