use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{GoneNode, apply::NodeReconciler};
use mcm_api::{
    hash::fnv1a_64,
    machine::Machine,
    node::{Node, NodeCondition, NodeMetadata, NodeStatus},
};
use mcm_rules::{plan::SubjectRef, safety::node_claim::NodeClaim};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::CellBuilder,
    enqueue::EnqueueMapper,
    queue::{QueuePacing, QueueTurns, WorkQueue},
    reconcile::ObjectStateMap,
    target::{TargetCluster, TargetNodeKey},
    trust::CacheTrust,
};
use {
    crate as controllers,
    crate::{Kind, Settings, api_servers::ApiServers, machine::ReplacementPermits, object},
};

pub const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

/// Of all target clusters.
const WORKERS: usize = 1024;

/// Of one target cluster. Each call to it may take a minute.
const WORKERS_OF_TARGET: usize = 16;

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
    let group = |key: &TargetNodeKey| fnv1a_64(key.target.0.bytes());
    let turns = QueueTurns { most: WORKERS_OF_TARGET, group };
    let queue = WorkQueue::with_turns("node", QueuePacing::default(), Some(turns));
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

/// A heartbeat does not count as a change. Most changes are heartbeats, so nothing is copied.
pub fn is_relevant(change: &ObjectChange<Node>) -> bool {
    let is_news = match (&change.old, &change.new) {
        (Some(old), Some(new)) => !is_heartbeat(old, new),
        (old, new) => old.is_some() != new.is_some(),
    };
    change.gone || is_news
}

/// Whether two states of a Node differ in nothing but versions and the times of heartbeats.
fn is_heartbeat(old: &Node, new: &Node) -> bool {
    let Node { metadata, spec, status } = old;
    let NodeStatus { conditions, capacity, volumes_attached } = status;
    *spec == new.spec
        && *capacity == new.status.capacity
        && *volumes_attached == new.status.volumes_attached
        && is_same_metadata(metadata, &new.metadata)
        && conditions.len() == new.status.conditions.len()
        && conditions.iter().zip(&new.status.conditions).all(|(old, new)| is_same_condition(old, new))
}

fn is_same_condition(old: &NodeCondition, new: &NodeCondition) -> bool {
    let NodeCondition { last_heartbeat_time: _, last_transition_time, message, reason, status, type_ } = old;
    *type_ == new.type_
        && *status == new.status
        && *reason == new.reason
        && *message == new.message
        && *last_transition_time == new.last_transition_time
}

fn is_same_metadata(old: &NodeMetadata, new: &NodeMetadata) -> bool {
    let ObjectMeta {
        annotations: _,
        creation_timestamp,
        deletion_grace_period_seconds,
        deletion_timestamp,
        finalizers,
        generate_name,
        generation,
        labels: _,
        managed_fields,
        name,
        namespace,
        owner_references,
        resource_version: _,
        self_link,
        uid,
    } = &**old;
    *uid == new.uid
        && *generation == new.generation
        && old.labels == new.labels
        && old.annotations == new.annotations
        && *finalizers == new.finalizers
        && *deletion_timestamp == new.deletion_timestamp
        && *deletion_grace_period_seconds == new.deletion_grace_period_seconds
        && *owner_references == new.owner_references
        && *managed_fields == new.managed_fields
        && *creation_timestamp == new.creation_timestamp
        && (name, namespace, generate_name, self_link)
            == (&new.name, &new.namespace, &new.generate_name, &new.self_link)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::merge;

    fn node(change: &Value) -> Node {
        let mut node = json!({
            "metadata": {
                "name": "n", "uid": "u", "resourceVersion": "1", "generation": 1, "labels": {"a": "b"},
                "annotations": {"c": "d"}, "finalizers": ["f"], "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"providerID": "cloud:///1", "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {
                "capacity": {"cpu": "4"}, "volumesAttached": [{"name": "v"}],
                "conditions": [condition(&json!({}))],
            },
        });
        merge(&mut node, change);
        serde_json::from_value(node).unwrap()
    }

    fn condition(change: &Value) -> Value {
        let mut condition = json!({
            "type": "Ready", "status": "True", "reason": "r", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
        });
        merge(&mut condition, change);
        condition
    }

    fn of_condition(change: &Value) -> Value {
        json!({"status": {"conditions": [condition(change)]}})
    }

    #[rstest]
    #[case::nothing(json!({}), false)]
    #[case::a_heartbeat(of_condition(&json!({"lastHeartbeatTime": "2026-01-01T00:05:00Z"})), false)]
    #[case::a_version(json!({"metadata": {"resourceVersion": "2"}}), false)]
    #[case::a_status(of_condition(&json!({"status": "Unknown"})), true)]
    #[case::a_transition(of_condition(&json!({"lastTransitionTime": "2026-01-01T00:05:00Z"})), true)]
    #[case::a_reason(of_condition(&json!({"reason": "s"})), true)]
    #[case::a_message(of_condition(&json!({"message": "n"})), true)]
    #[case::another_type(of_condition(&json!({"type": "Disk"})), true)]
    #[case::fewer_conditions(json!({"status": {"conditions": []}}), true)]
    #[case::capacity(json!({"status": {"capacity": {"cpu": "8"}}}), true)]
    #[case::volumes(json!({"status": {"volumesAttached": []}}), true)]
    #[case::taints(json!({"spec": {"taints": []}}), true)]
    #[case::a_cordon(json!({"spec": {"unschedulable": true}}), true)]
    #[case::labels(json!({"metadata": {"labels": {"a": "c"}}}), true)]
    #[case::annotations(json!({"metadata": {"annotations": {"c": "e"}}}), true)]
    #[case::finalizers(json!({"metadata": {"finalizers": []}}), true)]
    #[case::a_deletion(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:05:00Z"}}), true)]
    #[case::another_node(json!({"metadata": {"uid": "v"}}), true)]
    fn a_node_is_news_with_everything_but_heartbeats(#[case] change: Value, #[case] expected: bool) {
        let between = |old, new| is_relevant(&ObjectChange::between(old, new));
        let (old, new) = (node(&json!({})), node(&change));
        assert_eq!(between(Some(old.clone()), Some(new.clone())), expected);
        assert_eq!(between(Some(new), Some(old.clone())), expected);
        assert!(between(None, Some(old.clone())) && between(Some(old), None));
    }
}
