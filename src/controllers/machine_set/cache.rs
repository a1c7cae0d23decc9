//! The cache of MachineSets with its index.

use std::sync::Arc;

use crate::{
    api::machine::MachineSet,
    controllers::object::{owner, prune},
    runtime::{
        cache::{Cache, Index},
        cell::Kept,
    },
};

/// Index: UID of the controller; empty for sets without one.
pub(crate) const BY_CONTROLLER: &Index<MachineSet, String> =
    &Index::new("controller", |set| vec![owner::controller_uid(set)]);

impl Kept for MachineSet {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[BY_CONTROLLER], prune)
    }
}
