use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    Memory, Snapshot,
    apply::{OrphanCollector, OrphanSession},
    claim_of,
    nodes::TargetNode,
    pass::period_of,
};
use crate::machine;
use mcm_api::machine::MachineClass;
use mcm_driver::CloudAccount;
use mcm_rules::safety::trust::TargetTrust;
use mcm_runtime::{
    cache::Key,
    reconcile::SnapshotReader,
    target::{TargetCluster, TargetOf},
};

impl SnapshotReader for OrphanCollector {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = Memory;
    type Session = OrphanSession;

    fn namespaces(&self, key: &Key) -> Vec<String> {
        vec![key.namespace.clone()]
    }

    /// `None` if the class does not exist.
    fn observe(&self, key: &Key, memory: &Memory, session: &OrphanSession) -> Option<Snapshot> {
        let class = self.classes.cache.get(key)?;
        let now = self.clock.now();
        let all_machines = self.machines.cache.all();
        Some(Snapshot {
            policy: self.policy,
            can_list: self.drivers.get(&class).is_ok_and(|driver| driver.capabilities().list),
            claims: all_machines.iter().map(|machine| claim_of(machine)).collect(),
            machines: machine::naming_class(&self.machines.cache, key).collect(),
            all_machines,
            nodes: if session.learned.list.is_some() { self.nodes(&class) } else { Vec::new() },
            recently_deleted: self.recently_deleted(&class, now),
            uncertain: self.uncertain(now).or_else(|| self.unknown_nodes(key, session)),
            memory: memory.clone(),
            learned: session.learned.clone(),
            class,
            now,
        })
    }
}

impl OrphanCollector {
    fn recently_deleted(&self, class: &MachineClass, now: Timestamp) -> usize {
        let since = now.checked_sub(period_of(&self.policy)).unwrap_or(Timestamp::MIN);
        let deletions = self.deletions.lock();
        deletions
            .get(&CloudAccount::from_class(class))
            .map_or(0, |times| times.iter().filter(|at| **at > since).count())
    }

    /// The Nodes of all targets.
    fn nodes(&self, class: &MachineClass) -> Vec<TargetNode> {
        let meta = ObjectMeta { namespace: class.metadata.namespace.clone(), ..ObjectMeta::default() };
        let default = self.targets.node_key(&meta, "").map(|key| key.target);
        let of_target = |target: Arc<TargetCluster>| {
            let is_default = default.as_ref() == Some(&target.id);
            let nodes = target.nodes.cache.all();
            nodes.into_iter().map(move |node| TargetNode { target: target.id.to_string(), is_default, node })
        };
        self.targets.all().into_iter().flat_map(of_target).collect()
    }

    /// Why the Nodes of the listed VMs are unknown. Without Machines a target may be connected on demand: it stays connected
    /// until after the next check.
    fn unknown_nodes(&self, class: &Key, session: &OrphanSession) -> Option<String> {
        let listed = session.learned.list.as_ref()?.found.as_ref().ok()?;
        if listed.vms.is_empty() {
            return None;
        }
        if self.machines.cache.is_empty() {
            self.targets.demand(period_of(&self.policy).unsigned_abs().saturating_mul(2));
        }
        self.targets.unknown_nodes(&class.namespace)
    }

    /// Why a Machine that the cache lacks may exist, or why its VM must not be judged now.
    fn uncertain(&self, now: Timestamp) -> Option<String> {
        let cache = &self.machines.cache;
        if let Some(problem) = cache.trust().problem() {
            return Some(format!("machines: {problem}"));
        }
        if let Some(odd) = cache.unreadable().first() {
            let name = odd.meta.name.as_deref().unwrap_or_default();
            return Some(format!("machine {name} cannot be decoded, so its VM is unknown"));
        }
        self.targets.all().into_iter().find_map(|target| {
            let id = target.id.clone();
            if let Some(odd) = target.nodes.cache.unreadable().first() {
                let name = odd.meta.name.as_deref().unwrap_or_default();
                return Some(format!("node {name} of {id} cannot be decoded, so its VM is unknown"));
            }
            match machine::trust_of(&TargetOf::Known(target), &self.servers, now) {
                TargetTrust::Untrusted { since, reason } => {
                    Some(format!("cluster {id} is not trusted since {since:.0}: {reason}"))
                }
                TargetTrust::Trusted { .. } => None,
            }
        })
    }
}
