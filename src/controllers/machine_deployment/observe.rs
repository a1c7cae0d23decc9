use std::{collections::BTreeMap, sync::Arc};

use kube::ResourceExt;

use super::{
    Snapshot, UnreadableMachine,
    apply::{DeploymentReconciler, DeploymentSession, Memory},
    cache::BY_NAMESPACE,
    overlap::{overlap, selects},
};
use crate::{machine, machine_set, object::owner};
use mcm_api::{
    machine::{Machine, MachineDeployment, MachineSet},
    node::Node,
    selector::Selector,
};
use mcm_rules::safety::node_claim;
use mcm_runtime::{cache::Key, reconcile::SnapshotReader, target::TargetOf, trust::CacheTrust};

impl SnapshotReader for DeploymentReconciler {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = Memory;
    type Session = DeploymentSession;

    fn namespaces(&self, key: &Key) -> Vec<String> {
        vec![key.namespace.clone()]
    }

    /// `None` if the deployment does not exist.
    fn observe(&self, key: &Key, memory: &Memory, _: &DeploymentSession) -> Option<Snapshot> {
        let now = self.clock.now();
        let deployment = self.deployments.cache.get(key)?;
        let sets = self.sets_of(&deployment);
        let uids = sets.iter().filter_map(|set| set.uid());
        let in_flight = uids.map(|uid| (uid.clone(), self.in_flight.set_writes(&uid))).collect();
        let uid = deployment.uid().unwrap_or_default();
        let own = sets.iter().filter(|set| owner::is_controlled_by(&set.metadata, &uid));
        let own: Vec<String> = own.filter_map(|set| set.uid()).collect();
        let machines: Vec<Arc<Machine>> =
            own.iter().flat_map(|uid| self.machines.cache.by(machine::BY_CONTROLLER, uid)).collect();
        let strays = Selector::parse(deployment.spec.selector.as_ref()).map(|selector| {
            let find = |name: &str| self.sets.cache.get(&Key::beside(&deployment.metadata, name));
            memory.strays.view(&uid, &selector, now, find)
        });
        Some(Snapshot {
            policy: self.policy,
            in_flight,
            unreadable_sets: self.unreadable_sets(&uid),
            unreadable_machines: self.unreadable_machines(&own),
            nodes_unknown: self.nodes_unknown(&deployment),
            nodes: self.nodes_of(&deployment, &machines),
            node_retries: memory.node_retries_at(now),
            strays: strays.unwrap_or_default(),
            sets_paused_until: memory.sets_paused_until(deployment.metadata.generation, now),
            is_zero_written: memory.is_zero_written(deployment.metadata.generation),
            failure: memory.failure.clone(),
            hold: self.holds.hold_for(&deployment.metadata),
            rivals: self.rivals_of(&deployment, &sets),
            deployment,
            sets,
            machines,
            now,
        })
    }

    fn is_unreadable(&self, key: &Key) -> bool {
        self.deployments.cache.is_unreadable(key)
    }
}

impl DeploymentReconciler {
    /// The sets that it controls, and those without a controller that it selects.
    fn sets_of(&self, deployment: &MachineDeployment) -> Vec<Arc<MachineSet>> {
        let cache = &self.sets.cache;
        let mut sets = cache.by(machine_set::BY_CONTROLLER, &deployment.uid().unwrap_or_default());
        if let Ok(selector) = Selector::parse(deployment.spec.selector.as_ref()) {
            let orphans = cache.by(machine_set::BY_CONTROLLER, "").into_iter();
            sets.extend(orphans.filter(|set| {
                set.metadata.namespace == deployment.metadata.namespace
                    && selector.matches(set.metadata.labels.as_ref())
            }));
        }
        sets
    }

    /// Deployments that share sets or Machines with this one, or could.
    fn rivals_of(&self, deployment: &MachineDeployment, sets: &[Arc<MachineSet>]) -> Vec<Arc<MachineDeployment>> {
        let orphans: Vec<_> = sets.iter().filter(|set| owner::controller_of(&set.metadata).is_none()).collect();
        let is_rival = |other: &&Arc<MachineDeployment>| {
            other.metadata.deletion_timestamp.is_none()
                && other.metadata.name != deployment.metadata.name
                && (overlap(deployment, other) || orphans.iter().any(|set| selects(other, set.labels())))
        };
        let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
        let cache = &self.deployments.cache;
        cache.with(BY_NAMESPACE, namespace, |all| all.iter().filter(is_rival).cloned().collect())
    }

    fn unreadable_sets(&self, deployment: &str) -> Vec<String> {
        let unreadable = self.sets.cache.unreadable().into_iter();
        let own = unreadable.filter(|set| owner::is_controlled_by(&set.meta, deployment));
        own.filter_map(|set| set.meta.name).collect()
    }

    fn unreadable_machines(&self, sets: &[String]) -> Vec<UnreadableMachine> {
        let unreadable = self.machines.cache.unreadable().into_iter();
        let own = unreadable.filter_map(|machine| {
            let set_uid = owner::controller_of(&machine.meta)?.uid.clone();
            let is_terminating = machine.meta.deletion_timestamp.is_some();
            Some(UnreadableMachine { name: machine.meta.name?, set_uid, is_terminating })
        });
        own.filter(|machine| sets.contains(&machine.set_uid)).collect()
    }

    fn nodes_unknown(&self, deployment: &MachineDeployment) -> Option<String> {
        let TargetOf::Known(target) = self.targets.target_for(&deployment.metadata) else {
            return Some("the target cluster is not connected".to_owned());
        };
        match target.nodes.cache.trust() {
            CacheTrust::Untrusted { since, why } => Some(format!("not trusted since {since:.0}: {why}")),
            CacheTrust::Trusted if target.nodes.cache.is_synced() => None,
            CacheTrust::Trusted | CacheTrust::Unknown { .. } => Some("the cache of Nodes is not filled yet".to_owned()),
        }
    }

    fn nodes_of(&self, deployment: &MachineDeployment, machines: &[Arc<Machine>]) -> BTreeMap<String, Arc<Node>> {
        let TargetOf::Known(target) = self.targets.target_for(&deployment.metadata) else { return BTreeMap::new() };
        let nodes = &target.nodes;
        let named = machines.iter().filter_map(|machine| {
            let node = nodes.cache.get(&Key::new("", machine.node_name()?))?;
            node_claim::is_named(&node, machine).then_some(node)
        });
        named.map(|node| (node.name_any(), node)).collect()
    }
}
