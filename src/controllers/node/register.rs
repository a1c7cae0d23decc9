use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use k8s_openapi::api::core::v1::NodeCondition;

use super::{GoneNode, apply::NodeReconciler};
use mcm_api::{machine::Machine, node::Node};
use mcm_rules::{plan::SubjectRef, safety::node_claim::NodeClaim};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::CellBuilder,
    enqueue::EnqueueMapper,
    queue::{QueuePacing, WorkQueue},
    reconcile::ObjectStateMap,
    target::{TargetCluster, TargetNodeKey},
    trust::CacheTrust,
};
use {
    crate as controllers,
    crate::{Kind, Settings, api_servers::ApiServers, machine::ReplacementPermits, object},
};

pub const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

const WORKERS: usize = 16;

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let (permits, servers) = (builder.shared::<ReplacementPermits>(), builder.shared::<ApiServers>());
    let (machines, holds) = (builder.objects::<Machine>(), object::holds(builder));
    let config = builder.config();
    let nodes = Arc::new(NodeReconciler {
        machines,
        targets: Arc::clone(&config.targets),
        scope: config.scope.clone(),
        permits,
        servers,
        holds,
        clock: Arc::clone(&config.shared.clock),
        policy: settings.node,
    });
    let queue = WorkQueue::new("node", QueuePacing::default());
    let states = Arc::<ObjectStateMap<NodeReconciler>>::default();
    builder.reconciler_with(&nodes, &queue, &states, WORKERS, |key| SubjectRef::named::<Node>(&key.name));

    let enqueue = EnqueueMapper::new(&nodes, &queue);
    nodes.holds.on_change(enqueue.on(of_machine));
    nodes.permits.on_release(enqueue.on(of_machine));
    nodes.targets.on_trust_change(enqueue.within(of_target));
    let deletions = DeletionTracker { nodes, queue, states, is_leading: builder.is_leading() };
    deletions.register(builder);
}

fn of_machine(caches: &NodeReconciler, key: &Key) -> Vec<TargetNodeKey> {
    let machine = caches.machines.cache.get(key);
    let node = machine.and_then(|machine| caches.targets.node_key(&machine.metadata, machine.node_name()?));
    node.into_iter().collect()
}

fn of_target(_: &NodeReconciler, target: &TargetCluster, _: &CacheTrust) -> Vec<TargetNodeKey> {
    let name = |node: &Arc<Node>| node.metadata.name.clone().unwrap_or_default();
    target.nodes.cache.all().iter().map(|node| TargetNodeKey::new(&target.id, name(node))).collect()
}

/// Remembers deletions of Machines and Nodes. A standby would keep the names until it becomes leader; then they may be names of
/// other Nodes.
struct DeletionTracker {
    nodes: Arc<NodeReconciler>,
    queue: Arc<WorkQueue<TargetNodeKey>>,
    states: Arc<ObjectStateMap<NodeReconciler>>,
    is_leading: Arc<AtomicBool>,
}

impl DeletionTracker {
    fn register(self, builder: &mut CellBuilder<'_>) {
        let (this, targets) = (Arc::new(self), Arc::clone(&builder.config().targets));
        let of_nodes = Arc::clone(&this);
        targets.on_node_change(move |target, change| of_nodes.node(target, change));
        builder.on_change::<Machine>(move |change| this.machine(change));
    }

    fn machine(&self, change: &ObjectChange<Machine>) {
        if !self.is_leading.load(Ordering::Relaxed) {
            return;
        }
        let targets = &self.nodes.targets;
        let node = change.old.as_ref().filter(|_| change.gone).and_then(|old| old.node_name());
        let key = node.and_then(|name| targets.node_key(&change.meta, name));
        let node_of = |key: &TargetNodeKey| targets.get(&key.target)?.nodes.cache.get(&key.in_target());
        let (Some(machine), Some(key)) = (&change.old, key) else { return };
        if let Some(node) = node_of(&key) {
            if NodeClaim::is_stored(&node, machine) {
                self.states.update(&key, |memory| memory.former_machine = Some(change.key.name.clone()));
            }
            self.queue.add(key);
        }
    }

    fn node(&self, target: &TargetCluster, change: &ObjectChange<Node>) {
        let key = TargetNodeKey::new(&target.id, &change.key.name);
        match change.gone {
            true if self.is_leading.load(Ordering::Relaxed) => {
                let gone = change.old.as_ref().map(|node| GoneNode::from_node(node, self.nodes.clock.now()));
                self.states.update(&key, |memory| memory.gone = gone);
                self.queue.add(key);
            }
            true => {
                self.states.forget(&key);
                self.queue.forget(&key);
            }
            false if is_relevant(change) => self.queue.add(key),
            false => {}
        }
    }
}

/// A heartbeat does not count as a change.
pub fn is_relevant(change: &ObjectChange<Node>) -> bool {
    let without_heartbeat = |node: &Arc<Node>| {
        let mut node = Node::clone(node);
        node.metadata.resource_version = None;
        for condition in &mut node.status.conditions {
            *condition = NodeCondition { last_heartbeat_time: None, ..condition.clone() };
        }
        node
    };
    change.gone || change.old.as_ref().map(without_heartbeat) != change.new.as_ref().map(without_heartbeat)
}
