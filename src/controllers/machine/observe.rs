//! Reads the caches into a snapshot.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::core::ObjectMeta;

use super::{
    ClassView, Memory, NodeLookup, RivalMachines, Snapshot, TargetNodeView,
    apply::{MachineContext, MachineReconciler, MachineSession},
};
use crate::{api_servers::ApiServers, machine, machine_class, node, object::finalizer};
use mcm_api::{labels, machine::Machine, node::Node};
use mcm_rules::safety::{
    node_claim::{self, NodeClaim},
    trust::{TargetTrust, TrustInterruption},
};
use mcm_runtime::{
    cache::Key,
    reconcile::SnapshotReader,
    target::{TargetCluster, TargetOf},
    trust::CacheTrust,
};

impl SnapshotReader for MachineReconciler {
    type Key = Key;
    // Futures would hold it several times.
    type Snapshot = Box<Snapshot>;
    type Memory = Memory;
    type Session = MachineSession;

    fn namespaces(&self, key: &Key) -> Vec<String> {
        vec![key.namespace.clone()]
    }

    fn begin(&self, key: &Key) -> MachineSession {
        MachineSession::new(self.context.lanes.visit(key))
    }

    /// `None` if the Machine does not exist.
    fn observe(&self, key: &Key, memory: &Memory, session: &MachineSession) -> Option<Self::Snapshot> {
        let context = &self.context;
        let machine = context.machines.cache.get(key)?;
        let uid = machine.metadata.uid.as_deref();
        let class = self.class(key, &machine.spec.class.name);
        let (learned, memory) = (session.learned_of(uid), memory.for_uid(uid).at(context.now()));
        let target = context.targets.target_for(&machine.metadata);
        let mut snapshot = Snapshot::new(
            machine,
            class,
            trust_of(&target, &context.servers, context.now()),
            learned,
            memory,
            context.now(),
        );
        if let TargetOf::Known(target) = &target {
            snapshot.target_ahead = target.ahead_of(snapshot.now);
        }
        snapshot.policy = Arc::clone(&context.policy);
        snapshot.hold = context.holds.hold_for(&snapshot.machine.metadata);
        let node = node_in(&target, &snapshot.node_key(), &snapshot.machine);
        snapshot.is_rolled_out = is_new(&node) && context.rollouts.are_annotated(&snapshot.machine);
        let rivals = self.rivals(&snapshot.machine, &node);
        if let TargetOf::Known(target) = &target {
            snapshot.other_node = self.other_node(&snapshot.machine, &node, target);
        }
        Some(Box::new(snapshot.with_node(node, rivals)))
    }

    fn is_unreadable(&self, key: &Key) -> bool {
        self.context.machines.cache.is_unreadable(key)
    }
}

impl MachineReconciler {
    fn class(&self, key: &Key, name: &str) -> ClassView {
        let classes = &self.context.classes.cache;
        let key = Key::new(&key.namespace, name);
        let Some(class) = classes.get(&key) else {
            return if machine_class::is_missing(classes, &key) { ClassView::Missing } else { ClassView::Unknown };
        };
        match self.context.drivers.get(&class) {
            Ok(driver) => ClassView::Present { driver: driver.capabilities(), class },
            Err(_) => ClassView::Unserved(class),
        }
    }

    /// A Node of another name with the VM of the Machine, if the named one is not healthy or not its own; while the Machine is deleted, also
    /// one that it had before. A Node that another Machine names belongs to that Machine.
    fn other_node(&self, machine: &Machine, named: &TargetNodeView, target: &TargetCluster) -> Option<Arc<Node>> {
        let nodes = &target.nodes.cache;
        let own = machine.node_name()?;
        let is_fine = |node: &Node| is_ready(node) && NodeClaim::is_stored(node, machine);
        if matches!(named, TargetNodeView::Present(node) if is_fine(node)) || !nodes.is_synced() {
            return None;
        }
        let is_deleting = machine.metadata.deletion_timestamp.is_some();
        let vm = node_claim::key_of(&machine.spec.provider_id);
        let of_vm = vm.into_iter().flat_map(|vm| nodes.by(node::BY_VM, &vm));
        let of_vm = of_vm.filter(|node| node_claim::has_named_vm(node, machine));
        let former =
            machine.metadata.name.iter().filter(|_| is_deleting).flat_map(|name| nodes.by(node::BY_MACHINE, name));
        let former = former.filter(|node| NodeClaim::is_stored(node, machine));
        of_vm.chain(former).find(|node| {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let key = self.context.targets.node_key(&machine.metadata, name);
            let Some(key) = key.filter(|_| name != own) else { return false };
            machine::of_node(&self.context.machines.cache, &self.context.targets, &key).next().is_none()
        })
    }

    fn rivals(&self, machine: &Machine, node: &TargetNodeView) -> RivalMachines {
        let MachineContext { machines, targets, .. } = &*self.context;
        let TargetNodeView::Present(node) = node else { return RivalMachines::default() };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let Some(node) = targets.node_key(&machine.metadata, name) else { return RivalMachines::default() };
        let is_rival =
            |other: &ObjectMeta| other.namespace == machine.metadata.namespace && other.uid != machine.metadata.uid;
        let readable = machine::of_node(&machines.cache, targets, &node);
        let unreadable = machine::unreadable_of_node(&machines.cache, targets, &node);
        RivalMachines {
            readable: readable.filter(|other| is_rival(&other.metadata)).collect(),
            unreadable: unreadable.filter(is_rival).collect(),
        }
    }
}

/// The Node lacks our finalizer, which the first patch adds.
fn is_new(node: &TargetNodeView) -> bool {
    matches!(node, TargetNodeView::Present(node) if !finalizer::has(&node.metadata, labels::NODE_FINALIZER))
}

fn is_ready(node: &Node) -> bool {
    node.status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Trust in the cached Nodes of a target, and in its API servers.
pub(crate) fn trust_of(target: &TargetOf, servers: &ApiServers, now: Timestamp) -> TargetTrust {
    let TargetOf::Known(target) = target else { return TargetTrust::default() };
    let nodes = &target.nodes.cache;
    servers.limit(&target.id, trust_in(nodes.trust(), nodes.last_silence(), now))
}

/// `silence`: how long ago the last one of the watch of Nodes began and ended.
fn trust_in(nodes: CacheTrust, silence: Option<(Duration, Duration)>, now: Timestamp) -> TargetTrust {
    match nodes {
        CacheTrust::Untrusted { since, why } => TargetTrust::Untrusted { since, reason: why },
        // A Node that was never read is unknown anyway.
        CacheTrust::Trusted | CacheTrust::Unknown { .. } => {
            let ago = |elapsed| now.checked_sub(elapsed).unwrap_or(Timestamp::MIN);
            let after = silence.map(|(began, ended)| TrustInterruption { began: ago(began), ended: ago(ended) });
            TargetTrust::Trusted { after }
        }
    }
}

/// A Node that is not in the cache is `Missing`, because it does not exist or could not be decoded. A live read
/// distinguishes these.
fn node_in(target: &TargetOf, key: &NodeLookup, machine: &Machine) -> TargetNodeView {
    let nodes = match target {
        TargetOf::NoTarget => return TargetNodeView::NoTarget,
        TargetOf::Unknown => return TargetNodeView::Unknown,
        TargetOf::Known(target) => &target.nodes.cache,
    };
    let found = match key {
        NodeLookup::Name(name) => nodes.get(&Key::new("", name)),
        // Machines of other namespaces may have its name.
        NodeLookup::OfMachine(name) => {
            let labelled = nodes.by(node::BY_MACHINE, name);
            let own = labelled.iter().find(|node| NodeClaim::is_stored(node, machine)).cloned();
            own.or_else(|| labelled.into_iter().next())
        }
    };
    match found {
        Some(node) => TargetNodeView::Present(node),
        None if nodes.is_synced() => TargetNodeView::Missing,
        None => TargetNodeView::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_of_nodes_that_is_not_trusted_is_not_judged_by() {
        let (since, now) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(100).unwrap());
        let silence = Some((Duration::from_secs(80), Duration::from_secs(10)));
        let untrusted = CacheTrust::Untrusted { since, why: "silent".to_owned() };
        assert_eq!(trust_in(untrusted, silence, now), TargetTrust::Untrusted { since, reason: "silent".to_owned() });
        let [began, ended] = [20, 90].map(|second| Timestamp::from_second(second).unwrap());
        let after = Some(TrustInterruption { began, ended });
        assert_eq!(trust_in(CacheTrust::Trusted, silence, now), TargetTrust::Trusted { after });
        let never_read = CacheTrust::Unknown { why: "not read yet".to_owned() };
        assert_eq!(trust_in(never_read, None, now), TargetTrust::Trusted { after: None });
    }
}
