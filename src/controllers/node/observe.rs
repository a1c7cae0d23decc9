use super::{
    Memory, ObservedNode, Snapshot,
    apply::{NodeReconciler, NodeSession},
};
use crate::machine;
use mcm_rules::safety::node_claim::NodeClaim;
use mcm_runtime::{
    cell::CellScope,
    reconcile::SnapshotReader,
    target::{TargetNodeKey, TargetOf},
};

impl SnapshotReader for NodeReconciler {
    type Key = TargetNodeKey;
    type Snapshot = Snapshot;
    type Memory = Memory;
    type Session = NodeSession;

    fn namespaces(&self, key: &TargetNodeKey) -> Vec<String> {
        let machines = machine::of_node(&self.machines.cache, &self.targets, key);
        let mut namespaces: Vec<String> = machines.filter_map(|machine| machine.metadata.namespace.clone()).collect();
        if namespaces.is_empty() {
            namespaces = match &self.scope {
                CellScope::Namespace(namespace) => vec![namespace.clone()],
                CellScope::All => self.targets.namespaces_of(&key.target),
            };
        }
        namespaces.sort_unstable();
        namespaces.dedup();
        namespaces
    }

    fn exists(&self, key: &TargetNodeKey) -> bool {
        self.targets.get(&key.target).is_some_and(|target| target.nodes.cache.get(&key.in_target()).is_some())
    }

    /// `None` if the Node does not exist and nothing is left to do for it, or its Machine may not be touched now.
    fn observe(&self, key: &TargetNodeKey, memory: &Memory, session: &NodeSession) -> Option<Snapshot> {
        let target = self.targets.get(&key.target)?;
        let machines: Vec<_> = machine::of_node(&self.machines.cache, &self.targets, key).collect();
        if machines.iter().any(|machine| self.holds.hold_for(&machine.metadata).is_some()) {
            return None;
        }
        let node = target.nodes.cache.get(&key.in_target());
        let memory = match &node {
            Some(node) => memory.for_uid(node.metadata.uid.as_deref()),
            None => memory.clone(),
        };
        let (machines, unproven) = match &node {
            Some(node) => machines.into_iter().partition(|machine| NodeClaim::is_stored(node, machine)),
            None => (machines, Vec::new()),
        };
        let subject = match (node, &memory.gone) {
            (Some(node), _) => ObservedNode::Present(node),
            (None, Some(gone)) => ObservedNode::Gone {
                node: gone.clone(),
                exists: session.exists.clone(),
                permit: session.permit.clone(),
            },
            (None, None) => return None,
        };
        let now = self.clock.now();
        Some(Snapshot {
            policy: self.policy,
            subject,
            machines,
            unproven,
            machines_complete: self.machines.cache.is_synced() && self.machines.cache.unreadable().is_empty(),
            target_ahead: target.ahead_of(now),
            target: machine::trust_of(&TargetOf::Known(target), &self.servers, now),
            memory,
            now,
        })
    }
}
