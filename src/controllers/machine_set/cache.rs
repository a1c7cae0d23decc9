//! The cache of MachineSets with its index.

use crate::object::{owner, prune};
use mcm_api::machine::MachineSet;
use mcm_runtime::{
    cache::{Cache, Index},
    kind_cache::KindCache,
};

/// Index: UID of the controller; empty for sets without one.
pub const BY_CONTROLLER: &Index<MachineSet, String> = &Index::new("controller", |set| vec![owner::controller_uid(set)]);

/// How MachineSets are cached.
pub const CACHE: KindCache<MachineSet> = KindCache::new(|_| Cache::new(&[BY_CONTROLLER], prune));
