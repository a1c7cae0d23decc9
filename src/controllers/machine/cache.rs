//! The cache of Machines with its indexes.

use std::sync::Arc;

use kube::core::ObjectMeta;

use crate::{
    SETS,
    object::{in_place, owner, prune},
};
use mcm_api::{
    labels,
    machine::{Machine, node_name},
    node::Node,
};
use mcm_rules::safety::node_claim;
use mcm_runtime::{
    cache::{AnyIndex, Cache, Index, Key},
    kind_cache::KindCache,
    target::{NodeKey, Targets},
};

/// Index: UID of the controller; empty for Machines without one.
pub const BY_CONTROLLER: &Index<Machine, String> =
    &Index::new("controller", |machine| vec![owner::controller_uid(machine)]);

/// Index: name of the Node, in any target.
const BY_NODE: &Index<Machine, String> =
    &Index::new("node", |machine| machine.node_name().map(str::to_owned).into_iter().collect());

/// Index: the part of the provider ID that all its forms share.
const BY_VM: &Index<Machine, String> =
    &Index::new("vm", |machine| node_claim::key_of(&machine.spec.provider_id).into_iter().collect());

/// Index: the class.
const BY_CLASS: &Index<Machine, Key> =
    &Index::new("class", |machine| vec![Key::beside(&machine.metadata, &machine.spec.class.name)]);

/// Index: value of the label `name`.
pub const BY_DEPLOYMENT: &Index<Machine, String> = &Index::new("deployment", |machine| {
    let labels = machine.metadata.labels.iter();
    labels.filter_map(|all| all.get(labels::DEPLOYMENT_NAME).cloned()).collect()
});

/// Index: the Secret with its own user data.
pub(super) const BY_USER_DATA: &Index<Machine, Key> = &Index::new("user data", |machine| {
    let secret = machine.user_data_secret().map(|name| Key::beside(&machine.metadata, name));
    secret.into_iter().collect()
});

const INDEXES: &[&dyn AnyIndex<Machine>] = &[BY_CONTROLLER, BY_NODE, BY_VM, BY_CLASS, BY_DEPLOYMENT, BY_USER_DATA];

/// How Machines are cached. Sets and deployments read one of the conditions, and write no status. The others are a third of a
/// Machine.
pub const CACHE: KindCache<Machine> = KindCache::new(|roles| {
    if roles == [SETS] {
        return Cache::new(INDEXES, |machine| {
            prune(machine);
            if let Some(status) = &mut machine.status {
                status.conditions.retain(in_place::is_progress);
                status.conditions.shrink_to_fit();
            }
        });
    }
    Cache::new(INDEXES, |machine| {
        prune(machine);
        machine.status.iter_mut().for_each(|status| status.conditions.shrink_to_fit());
    })
});

/// The Machines that name a class, with any `class.kind`.
pub fn naming_class(machines: &Cache<Machine>, class: &Key) -> impl Iterator<Item = Arc<Machine>> + use<> {
    machines.by(BY_CLASS, class).into_iter()
}

/// The Machines of a Node.
pub fn of_node<'a>(
    machines: &Cache<Machine>,
    targets: &'a Targets,
    node: &'a NodeKey,
) -> impl Iterator<Item = Arc<Machine>> + use<'a> {
    let named = machines.by(BY_NODE, &node.name).into_iter();
    named.filter(move |machine| targets.node_key(&machine.metadata, &node.name).as_ref() == Some(node))
}

/// The Machines whose VM has become a Node that they may not name.
pub(super) fn with_vm_of(machines: &Cache<Machine>, node: &Node) -> impl Iterator<Item = Arc<Machine>> + use<> {
    let vm = node_claim::key_of(&node.spec.provider_id);
    vm.map(|vm| machines.by(BY_VM, &vm)).unwrap_or_default().into_iter()
}

/// The metadata of the undecodable Machines of a Node.
pub fn unreadable_of_node<'a>(
    machines: &Cache<Machine>,
    targets: &'a Targets,
    node: &'a NodeKey,
) -> impl Iterator<Item = ObjectMeta> + use<'a> {
    let named = machines.unreadable().into_iter().map(|machine| machine.meta);
    named.filter(move |meta| {
        node_name(meta) == Some(&node.name) && targets.node_key(meta, &node.name).as_ref() == Some(node)
    })
}
