use std::sync::Arc;

use kube::core::ObjectMeta;

use super::{
    apply::{MachineContext, MachineReconciler, short_of_resources},
    cache::{BY_USER_DATA, naming_class, of_node, with_vm_of},
    may_call_driver, metrics,
};
use mcm_api::{
    machine::{Machine, MachineClass},
    node::Node,
};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::CellBuilder,
    enqueue::{EnqueueMapper, itself},
    freeze::FreezeCause,
    queue::{QueuePacing, WorkQueue},
    reconcile::ObjectStateMap,
    target::{TargetCluster, TargetNodeKey, TargetOf},
    trust::CacheTrust,
};
use {
    crate as controllers,
    crate::{
        Kind, Settings,
        api_servers::{ApiServerId, FrozenServers},
        machine_class, node,
        secret::MetadataOfSecret,
    },
};

pub const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

/// Workers beyond the slots of the lanes, for reconciles that need no slot.
const BESIDE_SLOTS: usize = 64;

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let queue = WorkQueue::new("machine", QueuePacing::default());
    let states = Arc::<ObjectStateMap<MachineReconciler>>::default();
    let ports = Arc::new(MachineContext::new(builder, settings, &queue));
    let lanes = Arc::clone(&ports.lanes);
    builder.on_change::<Machine>(move |change| {
        if change.new.is_none() {
            lanes.forget(&change.key);
        }
    });
    let limit = ports.lanes.slots().saturating_add(BESIDE_SLOTS);
    let machines = Arc::new(MachineReconciler { context: Arc::clone(&ports) });
    builder.controller::<Machine, _>(&machines, &queue, &states, limit, |_| true);
    builder.export::<Machine>(|machines, out| metrics::machines(machines, out));

    retry_with_freed_resources(&ports, &states);
    let enqueue = EnqueueMapper::new(&ports, &queue);
    // The change may have fixed the cause of a failed call.
    let retry = enqueue.after(move |key| states.update_if_known(key, super::Memory::forget_failures));
    builder.on_change(retry.on(of_class));
    builder.on_change(retry.on(of_secret));
    builder.on_change(retry.on(booting_with));
    let reader = Arc::clone(&ports);
    builder.on_change::<MachineClass>(move |change| forget_unused_secrets(&reader, change));
    ports.holds.on_change(enqueue.on(itself));
    ports.permits.on_release(enqueue.on(itself));
    ports.targets.on_node_change(enqueue.within(of_changed_node));
    measure_freezes(builder, &ports);
    // Decisions about the Nodes of this target, and postponed ones, have to be made again.
    ports.servers.on_change(enqueue.on(of_servers));
    ports.targets.on_trust_change(enqueue.within(of_target));
}

/// After each deletion of a VM one Machine that waits for resources is tried again. More of them would fail again, and each
/// would call the cloud for each deletion.
fn retry_with_freed_resources(ports: &Arc<MachineContext>, states: &Arc<ObjectStateMap<MachineReconciler>>) {
    let (reader, states) = (Arc::downgrade(ports), Arc::clone(states));
    ports.freed.on_delete(move |class| {
        let Some(ports) = reader.upgrade() else { return };
        let short = short_of_resources(&ports.machines.cache, &ports.classes.cache, class);
        let next = short.into_iter().find(|key| {
            let mut is_waiting = false;
            states.update_if_known(key, |memory| is_waiting = memory.resources_freed());
            is_waiting
        });
        if let Some(key) = next {
            tracing::debug!(machine = %key, "its creation is tried again, because a VM of the account was deleted");
            ports.queue.add_now(key);
        }
    });
}

/// Measures whether Machines are frozen, before they are reconciled because of that.
fn measure_freezes(builder: &mut CellBuilder<'_>, ports: &Arc<MachineContext>) {
    let (unfrozen, notice) = (Arc::downgrade(&ports.freeze), Arc::clone(ports.targets.freeze()));
    builder.on_start(move || {
        notice.set(None);
        unfrozen.upgrade().iter().for_each(|freeze| freeze.set(false));
    });
    // They do not keep what they are called by.
    let (of_servers, of_targets) = (Arc::downgrade(ports), Arc::downgrade(ports));
    ports.servers.on_change(move |_| of_servers.upgrade().iter().for_each(|ports| measure_freeze(ports)));
    ports.targets.on_trust_change(move |_, _| of_targets.upgrade().iter().for_each(|ports| measure_freeze(ports)));
}

fn measure_freeze(ports: &MachineContext) {
    let is_untrusted = |target: &Arc<TargetCluster>| matches!(target.nodes.cache.trust(), CacheTrust::Untrusted { .. });
    ports.freeze.set(ports.servers.is_any_frozen() || ports.targets.all().iter().any(is_untrusted));
    let of_target = |target: &Arc<TargetCluster>| match target.nodes.cache.trust() {
        CacheTrust::Untrusted { since, why } => {
            Some(FreezeCause { since, why: format!("the Nodes of {} are not up to date: {why}", target.id) })
        }
        CacheTrust::Trusted | CacheTrust::Unknown { .. } => None,
    };
    let of_targets = || ports.targets.all().iter().find_map(of_target);
    ports.targets.freeze().set(ports.servers.freeze_cause().or_else(of_targets));
}

/// Drops the data of Secrets that no class names any more.
fn forget_unused_secrets(ports: &MachineContext, change: &ObjectChange<MachineClass>) {
    let before = change.old.iter().flat_map(|class| machine_class::secret_refs(class));
    for secret in before.map(|secret| Key::beside(&change.meta, &secret.name)) {
        if machine_class::naming(&ports.classes.cache, &secret).next().is_none() {
            ports.secrets.forget(&secret);
        }
    }
}

/// The Machines of a class of which something changed that concerns them.
fn of_class(ports: &MachineContext, change: &ObjectChange<MachineClass>) -> Vec<Key> {
    if !change.gone && change.new.as_ref().map(content) == change.old.as_ref().map(content) {
        return Vec::new();
    }
    naming_class(&ports.machines.cache, &change.key).map(|machine| Key::from_meta(&machine.metadata)).collect()
}

/// The Machines of the classes that name a Secret, if a driver may be called for them.
fn of_secret(ports: &MachineContext, change: &ObjectChange<MetadataOfSecret>) -> Vec<Key> {
    let classes = machine_class::naming(&ports.classes.cache, &change.key);
    let machines = classes.flat_map(|class| naming_class(&ports.machines.cache, &Key::from_meta(&class.metadata)));
    callable(machines)
}

/// The Machines whose user data a Secret has, if a driver may be called for them.
fn booting_with(ports: &MachineContext, change: &ObjectChange<MetadataOfSecret>) -> Vec<Key> {
    callable(ports.machines.cache.by(BY_USER_DATA, &change.key).into_iter())
}

fn callable(machines: impl Iterator<Item = Arc<Machine>>) -> Vec<Key> {
    machines.filter(|machine| may_call_driver(machine)).map(|machine| Key::from_meta(&machine.metadata)).collect()
}

/// The Machines that depend on these API servers.
fn of_servers(ports: &MachineContext, servers: &FrozenServers) -> Vec<Key> {
    let depends_on_all = servers.0.contains(&ApiServerId::Control);
    let is_target = |target: &TargetCluster| servers.0.contains(&ApiServerId::Target(target.id.to_string()));
    let depends = |machine: &Arc<Machine>| {
        depends_on_all
            || matches!(ports.targets.target_for(&machine.metadata), TargetOf::Known(target) if is_target(&target))
    };
    let all = ports.machines.cache.all();
    all.iter().filter(|machine| depends(machine)).map(|machine| Key::from_meta(&machine.metadata)).collect()
}

fn of_target(ports: &MachineContext, target: &TargetCluster, _: &CacheTrust) -> Vec<Key> {
    let is_there = |machine: &Arc<Machine>| matches!(ports.targets.target_for(&machine.metadata), TargetOf::Known(own) if own.id == target.id);
    let all = ports.machines.cache.all();
    all.iter().filter(|machine| is_there(machine)).map(|machine| Key::from_meta(&machine.metadata)).collect()
}

fn of_changed_node(ports: &MachineContext, target: &TargetCluster, change: &ObjectChange<Node>) -> Vec<Key> {
    if !node::is_relevant(change) {
        return Vec::new();
    }
    let node = TargetNodeKey::new(&target.id, &change.key.name);
    let named = of_node(&ports.machines.cache, &ports.targets, &node);
    let mut keys: Vec<Key> = named.map(|machine| Key::from_meta(&machine.metadata)).collect();
    if keys.is_empty()
        && let Some(node) = &change.new
    {
        let is_there = |machine: &Arc<Machine>| {
            let name = machine.node_name().unwrap_or_default();
            ports.targets.node_key(&machine.metadata, name).is_some_and(|key| key.target == target.id)
        };
        let of_vm = with_vm_of(&ports.machines.cache, node);
        keys.extend(of_vm.filter(is_there).map(|machine| Key::from_meta(&machine.metadata)));
    }
    keys
}

/// The parts of a class on which Machines depend: the finalizers and everything outside the metadata.
fn content(class: &Arc<MachineClass>) -> MachineClass {
    let mut class = MachineClass::clone(class);
    let finalizers = class.metadata.finalizers.take();
    class.metadata = ObjectMeta { finalizers, ..Default::default() };
    class
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::{MACHINES, SETS, testing::PROVIDER};
    use mcm_runtime::{guard::GuardedObject, role::ControllerRole};

    #[rstest]
    #[case::sets(&[SETS], &["InPlaceUpdate"])]
    #[case::machines(&[MACHINES], &["Ready", "InPlaceUpdate"])]
    #[case::both(&[SETS, MACHINES], &["Ready", "InPlaceUpdate"])]
    #[case::the_provider(&[PROVIDER], &["Ready", "InPlaceUpdate"])]
    fn a_process_that_reconciles_only_sets_caches_one_condition_of_machines(
        #[case] roles: &[ControllerRole],
        #[case] kept: &[&str],
    ) {
        let machine: Machine = serde_json::from_value(json!({
            "metadata": { "name": "m", "namespace": "ns", "labels": { "node": "n" } },
            "spec": { "providerID": "cloud:///1" },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }, { "type": "InPlaceUpdate", "status": "True" }],
                "currentStatus": { "phase": "Running" },
                "lastOperation": { "description": "joined", "type": "Create", "state": "Successful" },
            },
        }))
        .unwrap();
        let cache = crate::machine::CACHE.empty_for(roles);
        cache.observe(watcher::Event::Apply(GuardedObject::Readable(machine.clone())));
        let mut cached = Machine::clone(&cache.get(&Key::new("ns", "m")).unwrap());
        let conditions = std::mem::take(&mut cached.status.as_mut().unwrap().conditions);
        assert_eq!(conditions.iter().map(|one| one.type_.as_str()).collect::<Vec<_>>(), kept);
        let mut rest = machine;
        rest.status.as_mut().unwrap().conditions.clear();
        assert_eq!(cached, rest);
    }

    #[rstest]
    #[case::node_template(json!({ "nodeTemplate": { "capacity": {}, "virtualCapacity": { "gpu": "1" }, "instanceType": "", "region": "", "zone": "" } }), true)]
    #[case::provider_spec(json!({ "providerSpec": { "image": "next" } }), true)]
    #[case::secret(json!({ "credentialsSecretRef": { "name": "s", "namespace": "n" } }), true)]
    #[case::finalizers(json!({ "metadata": { "finalizers": ["x"] } }), true)]
    #[case::annotations(json!({ "metadata": { "annotations": { "a": "b" }, "resourceVersion": "2" } }), false)]
    fn a_class_concerns_its_machines_with_everything_but_its_metadata(#[case] change: Value, #[case] expected: bool) {
        let class = |value: &Value| Arc::new(serde_json::from_value(value.clone()).unwrap());
        let mut value = json!({ "metadata": { "name": "c" }, "providerSpec": {} });
        let before: Arc<MachineClass> = class(&value);
        crate::testing::merge(&mut value, &change);
        assert_eq!(content(&before) != content(&class(&value)), expected);
    }

    #[test]
    fn a_machine_uses_the_class_that_it_names_whatever_kind_it_writes_beside_the_name() {
        let machines = crate::machine::CACHE.empty();
        for (name, namespace, kind, class) in [
            ("a", "ns", "MachineClass", "c"),
            ("b", "ns", "machineClass", "c"),
            ("c", "ns", "MachineClass", "other"),
            ("d", "elsewhere", "MachineClass", "c"),
        ] {
            let mut machine = Machine::default();
            machine.metadata.name = Some(name.to_owned());
            machine.metadata.namespace = Some(namespace.to_owned());
            machine.metadata.uid = Some(name.to_owned());
            machine.metadata.resource_version = Some("1".to_owned());
            (machine.spec.class.kind, machine.spec.class.name) = (kind.to_owned(), class.to_owned());
            machines.wrote(machine);
        }
        let mut users: Vec<_> =
            naming_class(&machines, &Key::new("ns", "c")).filter_map(|machine| machine.metadata.name.clone()).collect();
        users.sort_unstable();
        assert_eq!(users, ["a", "b"]);
    }
}
