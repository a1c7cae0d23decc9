//! The cache of MCMMachineTemplates.

use std::sync::Arc;

use crate::{
    capi::types::MCMMachineTemplate,
    controllers::object::prune,
    runtime::{
        cache::{Cache, Index, Key},
        cell::Kept,
    },
};

/// Index: the class.
pub(super) const BY_CLASS: &Index<MCMMachineTemplate, Key> = &Index::new("class", |template| {
    vec![Key::beside(&template.metadata, &template.spec.template.spec.machine_class_ref.name)]
});

impl Kept for MCMMachineTemplate {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[BY_CLASS], prune)
    }
}
