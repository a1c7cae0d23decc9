//! Finds the Node of a VM that no Machine has.

use std::{collections::BTreeMap, sync::Arc};

use mcm_api::{
    labels::{MACHINE_NAME, NOT_MANAGED},
    machine::Machine,
    node::Node,
    sharing::SharedText,
};
use mcm_driver::ListedVm;

/// A Node of a target cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetNode {
    /// The target.
    pub target: String,
    /// A Machine without labels has its Node there.
    pub is_default: bool,
    /// The Node.
    pub node: Arc<Node>,
}

impl TargetNode {
    /// Pods may run on it now.
    pub(super) fn is_ready(&self) -> bool {
        self.node.status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
    }

    /// It carries the annotation `not-managed-by-mcm`, which its manager would remove.
    pub(super) fn is_marked(&self) -> bool {
        self.node.annotations().contains_key(NOT_MANAGED)
    }
}

/// The Nodes of all targets, by the VM that they run on.
pub(super) struct NodeIndex<'a> {
    by_vm: BTreeMap<&'a str, Vec<&'a TargetNode>>,
    /// Nodes without a provider ID, by their name and by the Machine in their label.
    by_name: BTreeMap<&'a str, &'a TargetNode>,
    /// Machines by the name of their Node.
    holders: BTreeMap<&'a str, &'a Machine>,
}

/// The end of a provider ID. Clouds and Nodes differ in the rest.
fn last_part(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

impl<'a> NodeIndex<'a> {
    pub(super) fn new(nodes: &'a [TargetNode], machines: &'a [Arc<Machine>]) -> Self {
        let named = machines.iter().filter_map(|machine| Some((machine.node_name()?, machine.as_ref())));
        let mut index = Self { by_vm: BTreeMap::new(), by_name: BTreeMap::new(), holders: named.collect() };
        for one in nodes {
            let id = one.node.spec.provider_id.as_str();
            if id.is_empty() {
                let owner = one.node.labels().get(MACHINE_NAME).map(SharedText::as_str);
                let names = [one.node.metadata.name.as_deref(), owner.filter(|owner| !owner.is_empty())];
                index.by_name.extend(names.into_iter().flatten().map(|name| (name, one)));
            } else {
                index.by_vm.entry(last_part(id)).or_default().push(one);
            }
        }
        index
    }

    /// The Node of a VM that no Machine has. A Node of a Machine belongs to another VM, unless it has this very ID.
    pub(super) fn of_vm(&self, id: &str, vm: &ListedVm) -> Option<&'a TargetNode> {
        let alike = self.by_vm.get(last_part(id)).map(Vec::as_slice).unwrap_or_default();
        let exact = alike.iter().find(|one| one.node.spec.provider_id == id);
        let free = || alike.iter().find(|one| self.holder(one).is_none());
        let namesake = || self.by_name.get(vm.machine.as_str()).filter(|one| self.holder(one).is_none());
        exact.or_else(free).or_else(namesake).copied()
    }

    /// The Machine that names a Node as its own.
    pub(super) fn holder(&self, one: &TargetNode) -> Option<&'a Machine> {
        self.holders.get(one.node.metadata.name.as_deref()?).copied()
    }
}
