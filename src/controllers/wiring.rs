//! Who is woken by which change. Nothing here decides anything; a wake-up too many costs a glance at the caches.

use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeCondition;
use kube::ResourceExt;

use super::{
    context::{Caches, Memory, Queues, classes_by, machines_by, sets_by},
    machine, owner,
    selector::Selector,
};
use crate::{
    api::{labels, machine::Machine, node::Node},
    runtime::cache::{Change, Key},
};

/// Connects caches to the queues of the MachineSet and MachineDeployment controllers.
pub fn connect_sets(caches: &Caches, queues: &Arc<Queues>, memory: &Arc<Memory>) {
    let (sets, wake) = (Arc::clone(&caches.sets), Arc::clone(queues));
    caches.machines.on_change(move |change| {
        let owners = [change.old.as_ref().map(|old| &old.metadata), Some(&change.meta)];
        let mut previous = None;
        for reference in owners.into_iter().flatten().filter_map(owner::controller_of) {
            if reference.kind != "MachineSet" || previous == Some(&reference.uid) {
                continue;
            }
            previous = Some(&reference.uid);
            wake.sets.add(Key::new(&change.key.namespace, &reference.name));
            for set in sets.by(sets_by::UID, &reference.uid) {
                if let Some(deployment) = owner::controller_of(&set.metadata) {
                    wake.deployments.add(Key::new(&change.key.namespace, &deployment.name));
                }
            }
        }
        let orphan = change.new.as_ref().filter(|machine| owner::controller_of(&machine.metadata).is_none());
        if let Some(machine) = orphan {
            for set in sets.all() {
                let selector = Selector::parse(set.spec.selector.as_ref());
                if selector.is_ok_and(|selector| selector.matches(machine.metadata.labels.as_ref())) {
                    wake.sets.add(Key::of(&set.metadata));
                }
            }
        }
    });

    let (deployments, wake, known) = (Arc::clone(&caches.deployments), Arc::clone(queues), Arc::clone(memory));
    caches.sets.on_change(move |change| {
        wake.sets.add(change.key.clone());
        if change.gone {
            wake.sets.forget(&change.key);
            known.sets.forget(&change.key);
        }
        let owners = [change.old.as_ref().map(|old| &old.metadata), Some(&change.meta)];
        for reference in owners.into_iter().flatten().filter_map(owner::controller_of) {
            wake.deployments.add(Key::new(&change.key.namespace, &reference.name));
        }
        let orphan = change.new.as_ref().filter(|set| owner::controller_of(&set.metadata).is_none());
        if let Some(set) = orphan {
            for deployment in deployments.all() {
                let selector = Selector::parse(deployment.spec.selector.as_ref());
                if selector.is_ok_and(|selector| selector.matches(set.metadata.labels.as_ref())) {
                    wake.deployments.add(Key::of(&deployment.metadata));
                }
            }
        }
    });

    let wake = Arc::clone(queues);
    let (sets, known) = (Arc::clone(&caches.sets), Arc::clone(memory));
    caches.deployments.on_change(move |change| {
        wake.deployments.add(change.key.clone());
        if change.gone {
            wake.deployments.forget(&change.key);
            known.deployments.forget(&change.key);
            return;
        }
        // A set whose deployment just appeared may be adopted; one that it owns may have to be released.
        for set in sets.by(sets_by::CONTROLLER, change.meta.uid.as_deref().unwrap_or_default()) {
            wake.sets.add(Key::of(&set.metadata));
        }
    });
}

/// Connects caches to the queues of the Machine, MachineClass, Secret and Node controllers.
pub fn connect_machines(caches: &Caches, queues: &Arc<Queues>, memory: &Arc<Memory>) {
    let wake = Arc::clone(queues);
    let (nodes, known) = (Arc::clone(&caches.nodes), Arc::clone(memory));
    caches.machines.on_change(move |change| {
        wake.machines.add(change.key.clone());
        let class = |machine: &Arc<Machine>| Key::new(&change.key.namespace, &machine.spec.class.name);
        let (old, new) = (change.old.as_ref().map(class), change.new.as_ref().map(class));
        if old != new {
            old.into_iter().chain(new).for_each(|key| wake.classes.add(key));
        }
        if change.gone {
            wake.machines.forget(&change.key);
            known.machines.forget(&change.key);
            let node = change.old.as_ref().and_then(|old| old.node_name()).map(|name| Key::new("", name));
            if let Some(node) = node.filter(|node| nodes.get(node).is_some()) {
                wake.nodes.add(node);
            }
        }
    });

    let (machines, wake, known) = (Arc::clone(&caches.machines), Arc::clone(queues), Arc::clone(memory));
    caches.classes.on_change(move |change| {
        wake.classes.add(change.key.clone());
        let content = |class: &Arc<_>| {
            let mut class = crate::api::machine::MachineClass::clone(class);
            // Machines wait for the finalizer of their class, too.
            let finalizers = class.metadata.finalizers.take();
            class.metadata = kube::core::ObjectMeta { finalizers, ..Default::default() };
            class
        };
        let usable = change.new.as_ref().map(content);
        if change.gone || usable != change.old.as_ref().map(content) {
            for machine in machines.by(machines_by::CLASS, &change.key.name) {
                try_anew(&machine, &wake, &known);
            }
            let references = |class: &Arc<crate::api::machine::MachineClass>| {
                [class.secret_ref.clone(), class.credentials_secret_ref.clone()]
            };
            let secrets = change.old.iter().chain(&change.new).flat_map(references).flatten();
            for secret in secrets.filter(|secret| !secret.name.is_empty()) {
                wake.secrets.add(Key::new(&change.key.namespace, secret.name));
            }
        }
    });

    let (classes, machines) = (Arc::clone(&caches.classes), Arc::clone(&caches.machines));
    let (wake, memory) = (Arc::clone(queues), Arc::clone(memory));
    caches.secrets.on_change(move |change| {
        let users = classes.by(classes_by::SECRET, &change.key.name);
        let ours = change.meta.finalizers.iter().flatten().any(|finalizer| finalizer == labels::SECRET_FINALIZER);
        if users.is_empty() && !ours {
            return;
        }
        wake.secrets.add(change.key.clone());
        // Content may have changed: whoever waits for it tries again.
        for class in users {
            for machine in machines.by(machines_by::CLASS, &class.name_any()) {
                if machine.spec.provider_id.is_empty() || machine.is_terminating() {
                    try_anew(&machine, &wake, &memory);
                }
            }
        }
    });

    let (machines, wake) = (Arc::clone(&caches.machines), Arc::clone(queues));
    caches.nodes.on_change(move |change| {
        if !matters(change) {
            return;
        }
        wake.nodes.add(change.key.clone());
        for machine in machines.by(machines_by::NODE, &change.key.name) {
            wake.machines.add(Key::of(&machine.metadata));
        }
        if change.gone {
            wake.nodes.forget(&change.key);
            wake.gone_nodes.add(change.key.clone());
        }
    });
}

/// What a failed call is waited out for may just have been mended.
fn try_anew(machine: &Machine, wake: &Queues, memory: &Memory) {
    let key = Key::of(&machine.metadata);
    memory.machines.update_if_known(&key, machine::Memory::forget_failures);
    wake.machines.add(key);
}

/// A heartbeat is no change.
fn matters(change: &Change<Node>) -> bool {
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
