//! The caches of Nodes with their index.

use std::sync::Arc;

use mcm_api::{
    labels,
    node::{Node, NodeCondition, NodeStatus},
    sharing::SharedText,
};
use mcm_rules::safety::node_claim;
use mcm_runtime::{
    cache::{CacheIndex, ObjectCache, share_texts},
    role::ControllerRole,
};
use {crate as controllers, crate::object::prune};

/// Index: name of the Machine in the label of a Node.
pub const BY_MACHINE: &CacheIndex<Node, String> = &CacheIndex::new("machine", |node| {
    node.labels().get(labels::MACHINE_NAME).map(ToString::to_string).into_iter().collect()
});

/// Index: the part of the provider ID that all its forms share.
pub const BY_VM: &CacheIndex<Node, String> =
    &CacheIndex::new("vm", |node| node_claim::key_of(&node.spec.provider_id).into_iter().collect());

/// An empty cache of the Nodes of one target.
pub fn cache() -> Arc<ObjectCache<Node>> {
    ObjectCache::new(&[BY_MACHINE, BY_VM], |node| {
        compact(node);
        let NodeStatus { conditions, capacity, .. } = &mut node.status;
        conditions.shrink_to_fit();
        share_texts(conditions.iter_mut().flat_map(NodeCondition::texts_mut).chain(capacity.texts_mut()));
    })
}

/// An empty cache of Nodes of which only metadata and spec are read. The status is half of a Node.
fn cache_without_status() -> Arc<ObjectCache<Node>> {
    ObjectCache::new(&[], |node| {
        compact(node);
        node.status = NodeStatus::default();
    })
}

fn compact(node: &mut Node) {
    prune(node);
    node.spec.taints.shrink_to_fit();
    let names = own_names(node);
    let is_own = |text: &SharedText| names.iter().any(|name| text.contains(name.as_str()));
    share_texts(node.metadata.texts_mut().filter(|text| !is_own(text)));
}

/// The names of a Node, its machine and its VM. A text with one of them has no equal, and would take a place among the shared texts.
fn own_names(node: &Node) -> Vec<String> {
    let machine = node.labels().get(labels::MACHINE_NAME).map(ToString::to_string);
    let names = [node.metadata.name.clone(), machine, node_claim::key_of(&node.spec.provider_id)];
    names.into_iter().flatten().filter(|name| !name.is_empty()).collect()
}

/// Creates the caches of Nodes in a process with these roles. Sets alone are reconciled without the status of Nodes.
pub fn cache_for(roles: &[ControllerRole]) -> fn() -> Arc<ObjectCache<Node>> {
    if roles == [controllers::SETS] { cache_without_status } else { cache }
}
