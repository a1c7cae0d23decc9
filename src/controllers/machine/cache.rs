//! The cache of Machines with its indexes.

use std::sync::Arc;

use kube::core::ObjectMeta;

use crate::{
    SETS,
    object::{in_place, owner, prune},
};
use mcm_api::{
    labels,
    machine::{Machine, NodeTemplate, node_name},
    node::{Node, NodeCondition},
};
use mcm_rules::safety::node_claim;
use mcm_runtime::{
    cache::{AnyIndex, CacheIndex, Key, ObjectCache, ValuePool, share_texts},
    kind_cache::KindCache,
    target::{CellTargets, TargetNodeKey},
};

/// Index: UID of the controller; empty for Machines without one.
pub const BY_CONTROLLER: &CacheIndex<Machine, String> =
    &CacheIndex::new("controller", |machine| vec![owner::controller_uid(machine)]);

/// Index: name of the Node, in any target.
const BY_NODE: &CacheIndex<Machine, String> =
    &CacheIndex::new("node", |machine| machine.node_name().map(str::to_owned).into_iter().collect());

/// Index: the part of the provider ID that all its forms share.
const BY_VM: &CacheIndex<Machine, String> =
    &CacheIndex::new("vm", |machine| node_claim::key_of(&machine.spec.provider_id).into_iter().collect());

/// Index: the class.
const BY_CLASS: &CacheIndex<Machine, Key> =
    &CacheIndex::new("class", |machine| vec![Key::beside(&machine.metadata, &machine.spec.class.name)]);

/// Index: value of the label `name`.
pub const BY_DEPLOYMENT: &CacheIndex<Machine, String> = &CacheIndex::new("deployment", |machine| {
    let labels = machine.metadata.labels.iter();
    labels.filter_map(|all| all.get(labels::DEPLOYMENT_NAME).cloned()).collect()
});

/// Index: the Secret with its own user data.
pub(super) const BY_USER_DATA: &CacheIndex<Machine, Key> = &CacheIndex::new("user data", |machine| {
    let secret = machine.user_data_secret().map(|name| Key::beside(&machine.metadata, name));
    secret.into_iter().collect()
});

const INDEXES: &[&dyn AnyIndex<Machine>] = &[BY_CONTROLLER, BY_NODE, BY_VM, BY_CLASS, BY_DEPLOYMENT, BY_USER_DATA];

/// How Machines are cached. Sets and deployments read one of the conditions, and write no status. The others are a third of a
/// Machine.
pub const CACHE: KindCache<Machine> = KindCache::new(|roles| {
    if roles == [SETS] {
        return ObjectCache::new(INDEXES, |machine| {
            machine.status.iter_mut().for_each(|status| status.conditions.retain(in_place::is_progress));
            compact(machine);
        });
    }
    ObjectCache::new(INDEXES, compact)
});

/// The node templates of cached Machines: those of a set have one, which is a third of a Machine.
static NODE_TEMPLATES: ValuePool<NodeTemplate> = ValuePool::new();

fn compact(machine: &mut Machine) {
    prune(machine);
    let Machine { metadata, spec, status } = machine;
    NODE_TEMPLATES.share((&metadata.namespace, &spec.class.name), &mut spec.node_template);
    if let Some(status) = status {
        status.conditions.shrink_to_fit();
        share_texts(status.conditions.iter_mut().flat_map(NodeCondition::texts_mut));
    }
}

/// The Machines that name a class, with any `class.kind`.
pub fn naming_class(machines: &ObjectCache<Machine>, class: &Key) -> impl Iterator<Item = Arc<Machine>> + use<> {
    machines.by(BY_CLASS, class).into_iter()
}

/// The Machines of a Node.
pub fn of_node<'a>(
    machines: &ObjectCache<Machine>,
    targets: &'a CellTargets,
    node: &'a TargetNodeKey,
) -> impl Iterator<Item = Arc<Machine>> + use<'a> {
    let named = machines.by(BY_NODE, &node.name).into_iter();
    named.filter(move |machine| targets.node_key(&machine.metadata, &node.name).as_ref() == Some(node))
}

/// The Machines whose VM has become a Node that they may not name.
pub(super) fn with_vm_of(machines: &ObjectCache<Machine>, node: &Node) -> impl Iterator<Item = Arc<Machine>> + use<> {
    let vm = node_claim::key_of(&node.spec.provider_id);
    vm.map(|vm| machines.by(BY_VM, &vm)).unwrap_or_default().into_iter()
}

/// The metadata of the undecodable Machines of a Node.
pub fn unreadable_of_node<'a>(
    machines: &ObjectCache<Machine>,
    targets: &'a CellTargets,
    node: &'a TargetNodeKey,
) -> impl Iterator<Item = ObjectMeta> + use<'a> {
    let named = machines.unreadable().into_iter().map(|machine| machine.meta);
    named.filter(move |meta| {
        node_name(meta) == Some(&node.name) && targets.node_key(meta, &node.name).as_ref() == Some(node)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::MACHINES;

    fn cached(name: &str) -> Arc<Machine> {
        let machine = json!({
            "metadata": {"name": name, "namespace": "unique", "uid": name, "resourceVersion": "1"},
            "spec": {"class": {"name": "c"}, "nodeTemplate": {"metadata": {"labels": {"a": "b"}}}},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "UniqueToThisTest"}]},
        });
        CACHE.empty_for(&[MACHINES]).wrote(serde_json::from_value(machine).unwrap())
    }

    #[test]
    fn machines_share_their_node_template_and_the_texts_of_their_conditions() {
        let [one, other] = ["a", "b"].map(cached);
        assert_eq!(one.spec, other.spec);
        assert_eq!(one.spec.node_template.owners(), 3, "both Machines and the pool");
        let reason = one.status.as_ref().unwrap().conditions[0].reason.as_ref().unwrap();
        assert_eq!((reason.as_str(), reason.owners()), ("UniqueToThisTest", 3));
    }
}
