use std::sync::{Arc, atomic::Ordering};

use k8s_openapi::api::core::v1::NodeCondition;

use super::{GoneNode, apply::Nodes};
use crate::{
    api::{machine::Machine, node::Node},
    controllers::{self, Kind, Settings, api_servers::ApiServers, machine::Permits, object},
    runtime::{
        cache::{Change, Key},
        cell::Builder,
        queue::{Pacing, Queue},
        reconcile::States,
        target::NodeKey,
    },
};

pub(crate) const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

const WORKERS: usize = 16;

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let (permits, servers) = (builder.shared::<Permits>(), builder.shared::<ApiServers>());
    let (machines, holds) = (builder.objects::<Machine>(), object::holds(builder));
    let config = builder.config();
    let (targets, clock) = (Arc::clone(&config.targets), Arc::clone(&config.shared.clock));
    let waiting = Arc::clone(&permits);
    let nodes = Nodes {
        machines: Arc::clone(&machines),
        targets: Arc::clone(&targets),
        permits,
        servers,
        holds: Arc::clone(&holds),
        clock: Arc::clone(&clock),
        policy: settings.node,
    };

    let queue = Queue::new("node", Pacing::default());
    let states = Arc::<States<Nodes>>::default();
    builder.reconciler(nodes, &queue, &states, WORKERS);

    let (of_machine, known) = (Arc::clone(&queue), Arc::clone(&targets));
    let enqueue = Arc::new(move |key: &Key| {
        let machine = machines.cache.get(key);
        let node = machine.and_then(|machine| known.node_key(&machine.metadata, machine.node_name()?));
        node.into_iter().for_each(|node| of_machine.add(node));
    });
    let of_held = Arc::clone(&enqueue);
    holds.on_change(move |key| of_held(key));
    waiting.on_release(move |key| enqueue(key));

    // A standby would keep the names until it becomes leader; then they may be names of other Nodes.
    let is_leading = builder.is_leading();
    let (of_machine, known, former) = (Arc::clone(&queue), Arc::clone(&targets), Arc::clone(&states));
    let leads = Arc::clone(&is_leading);
    builder.on_change::<Machine>(move |change| {
        if !leads.load(Ordering::Relaxed) {
            return;
        }
        let node = change.old.as_ref().filter(|_| change.gone).and_then(|old| old.node_name());
        let key = node.and_then(|name| known.node_key(&change.meta, name));
        let is_there = |key: &NodeKey| {
            known.get(&key.target).is_some_and(|target| target.nodes.cache.get(&key.in_target()).is_some())
        };
        if let Some(key) = key.filter(is_there) {
            former.update(&key, |memory| memory.former_machine = Some(change.key.name.clone()));
            of_machine.add(key);
        }
    });

    let all = Arc::clone(&queue);
    targets.on_trust_change(move |target, _| {
        for node in target.nodes.cache.all() {
            all.add(NodeKey::new(&target.id, node.metadata.name.as_deref().unwrap_or_default()));
        }
    });

    targets.on_node_change(move |target, change| {
        let key = NodeKey::new(&target.id, &change.key.name);
        if change.gone {
            if is_leading.load(Ordering::Relaxed) {
                let gone = change.old.as_ref().map(|node| GoneNode::of(node, clock.now()));
                states.update(&key, |memory| memory.gone = gone);
                queue.add(key);
            } else {
                states.forget(&key);
                queue.forget(&key);
            }
        } else if is_relevant(change) {
            queue.add(key);
        }
    });
}

/// A heartbeat does not count as a change.
pub(crate) fn is_relevant(change: &Change<Node>) -> bool {
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
