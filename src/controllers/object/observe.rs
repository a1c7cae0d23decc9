//! Cache helpers that every kind uses.

use std::{collections::BTreeMap, mem, sync::Arc};

use kube::Resource;

use super::authority;
use mcm_runtime::{
    cache::{CacheableKind, ObjectCache},
    cell::CellBuilder,
    hold_check::HoldCheck,
};

/// Decides which native objects a cell may touch. Unless the cell has a separate hold check, it is
/// [`authority::of_native`].
pub fn holds(builder: &mut CellBuilder<'_>) -> Arc<HoldCheck> {
    let holds = builder.shared::<HoldCheck>();
    holds.set(authority::of_native);
    holds
}

/// Names of the objects of a namespace that cannot be decoded.
pub fn unreadable_names<K: CacheableKind>(cache: &ObjectCache<K>, namespace: &str) -> Vec<String> {
    let of_namespace = |meta: &kube::core::ObjectMeta| meta.namespace.as_deref().unwrap_or_default() == namespace;
    let unreadable = cache.unreadable().into_iter().filter(|object| of_namespace(&object.meta));
    unreadable.filter_map(|object| object.meta.name).collect()
}

/// Drops `managedFields`, which no plan reads, and the room that lists and maps have left: decoded from JSON, a list of one has
/// room for four.
pub fn prune<K: Resource>(object: &mut K) {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    meta.owner_references.iter_mut().for_each(Vec::shrink_to_fit);
    meta.finalizers.iter_mut().for_each(Vec::shrink_to_fit);
    [&mut meta.labels, &mut meta.annotations].into_iter().flatten().for_each(pack);
}

/// Fills the leaves of a tree: one to which entries were added in order has leaves that are half empty.
fn pack(map: &mut BTreeMap<String, String>) {
    const ENTRIES_OF_LEAF: usize = 11;
    if map.len() > ENTRIES_OF_LEAF {
        *map = mem::take(map).into_iter().collect();
    }
}
