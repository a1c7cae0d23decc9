//! The cache of MCMMachineTemplates.

use mcm_controllers::object::prune;
use mcm_conversion::types::MCMMachineTemplate;
use mcm_runtime::{
    cache::{CacheIndex, Key, ObjectCache},
    kind_cache::KindCache,
};

/// Index: the class.
pub(super) const BY_CLASS: &CacheIndex<MCMMachineTemplate, Key> = &CacheIndex::new("class", |template| {
    vec![Key::beside(&template.metadata, &template.spec.template.spec.machine_class_ref.name)]
});

/// How MCMMachineTemplates are cached.
pub const CACHE: KindCache<MCMMachineTemplate> = KindCache::new(|_| ObjectCache::new(&[BY_CLASS], prune));
