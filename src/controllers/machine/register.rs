use std::sync::Arc;

use kube::core::ObjectMeta;

use super::{
    apply::{Machines, Ports},
    cache::{BY_USER_DATA, naming_class, of_node},
    may_call_driver, metrics,
};
use crate::{
    api::machine::{Machine, MachineClass},
    controllers::{self, Kind, Settings, api_servers::ApiServers, machine_class, node, secret::MetadataOfSecret},
    runtime::{
        cache::{Change, Key},
        cell::Builder,
        queue::{Pacing, Queue},
        reconcile::States,
        target::{NodeKey, Target, TargetOf},
        trust::Trust,
    },
};

pub(crate) const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

/// Workers beyond the slots of the lanes, for reconciles that need no slot.
const BESIDE_SLOTS: usize = 64;

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let queue = Queue::new("machine", Pacing::default());
    let states = Arc::<States<Machines>>::default();
    let ports = Arc::new(Ports::new(builder, settings, &queue));
    let (machines, targets) = (Arc::clone(&ports.machines), Arc::clone(&ports.targets));

    let in_line = Arc::clone(&ports);
    builder.on_change::<Machine>(move |change| {
        if change.new.is_none() {
            in_line.lanes.forget(&change.key);
        }
    });
    let limit = ports.lanes.slots().saturating_add(BESIDE_SLOTS);
    let reconciler = Machines { context: Arc::clone(&ports) };
    builder.controller(reconciler, &queue, &states, limit, |_: &Change<Machine>| true);
    builder.export::<Machine>(|machines, out| metrics::machines(machines, out));

    // The change may have fixed the cause of a failed call.
    let (of_class, failed, retried) = (Arc::clone(&machines), Arc::clone(&states), Arc::clone(&queue));
    let retry = Arc::new(move |class: &Key, concerns: fn(&Machine) -> bool| {
        for machine in naming_class(&of_class.cache, class).filter(|machine| concerns(machine)) {
            let key = Key::of(&machine.metadata);
            failed.update_if_known(&key, super::Memory::forget_failures);
            retried.add(key);
        }
    });
    let retry_all = Arc::clone(&retry);
    builder.on_change::<MachineClass>(move |change| {
        if change.gone || change.new.as_ref().map(content) != change.old.as_ref().map(content) {
            retry_all(&change.key, |_| true);
        }
    });
    let (secrets, classes) = (ports.secrets.clone(), Arc::clone(&ports.classes));
    builder.on_change::<MachineClass>(move |change| {
        let before = change.old.iter().flat_map(|class| machine_class::secret_refs(class));
        for secret in before.map(|secret| Key::beside(&change.meta, &secret.name)) {
            if machine_class::naming(&classes.cache, &secret).next().is_none() {
                secrets.forget(&secret);
            }
        }
    });
    let classes = Arc::clone(&ports.classes);
    builder.on_change::<MetadataOfSecret>(move |change| {
        for class in machine_class::naming(&classes.cache, &change.key) {
            retry(&Key::of(&class.metadata), may_call_driver);
        }
    });
    let (booting, failed, retried) = (Arc::clone(&machines), Arc::clone(&states), Arc::clone(&queue));
    builder.on_change::<MetadataOfSecret>(move |change| {
        let machines = booting.cache.by(BY_USER_DATA, &change.key);
        for machine in machines.iter().filter(|machine| may_call_driver(machine)) {
            let key = Key::of(&machine.metadata);
            failed.update_if_known(&key, super::Memory::forget_failures);
            retried.add(key);
        }
    });
    let held = Arc::clone(&queue);
    ports.holds.on_change(move |key| held.add(key.clone()));
    let waiting = Arc::clone(&queue);
    ports.permits.on_release(move |key| waiting.add(key.clone()));

    // Decisions about the Nodes of this target, including postponed ones, have to be made again.
    let unfrozen = Arc::clone(&ports.measured);
    builder.on_start(move || unfrozen.frozen(false));
    let (all_targets, frozen) = (Arc::clone(&targets), Arc::clone(&ports.measured));
    let measure = Arc::new(move |servers: &ApiServers| {
        let is_untrusted = |target: &Arc<Target>| matches!(target.nodes.cache.trust(), Trust::Untrusted { .. });
        frozen.frozen(servers.is_any_frozen() || all_targets.all().iter().any(is_untrusted));
    });
    let (measured, frozen, reconciled) = (Arc::clone(&measure), Arc::clone(&machines), Arc::clone(&queue));
    ports.servers.on_change(move |servers| {
        measured(servers);
        frozen.cache.all().iter().for_each(|machine| reconciled.add(Key::of(&machine.metadata)));
    });
    let (all, of_target, reconciled) = (Arc::clone(&machines), Arc::clone(&targets), Arc::clone(&queue));
    let servers = Arc::clone(&ports.servers);
    targets.on_trust_change(move |target, _| {
        measure(&servers);
        for machine in all.cache.all() {
            if matches!(of_target.of(&machine.metadata), TargetOf::Known(own) if own.id == target.id) {
                reconciled.add(Key::of(&machine.metadata));
            }
        }
    });

    let known = Arc::clone(&targets);
    targets.on_node_change(move |target, change| {
        if node::is_relevant(change) {
            let node = NodeKey::new(&target.id, &change.key.name);
            for machine in of_node(&machines.cache, &known, &node) {
                queue.add(Key::of(&machine.metadata));
            }
        }
    });
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
    use crate::{
        capi::provider,
        controllers::{MACHINES, SETS},
        runtime::{
            cell::{Kept, Role},
            guard::Guard,
        },
    };

    #[rstest]
    #[case::sets(&[SETS], &["InPlaceUpdate"])]
    #[case::machines(&[MACHINES], &["Ready", "InPlaceUpdate"])]
    #[case::both(&[SETS, MACHINES], &["Ready", "InPlaceUpdate"])]
    #[case::the_provider(&[provider::ROLE], &["Ready", "InPlaceUpdate"])]
    fn a_process_that_reconciles_only_sets_caches_one_condition_of_machines(
        #[case] roles: &[Role],
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
        let cache = Machine::cache_for(roles);
        cache.observe(watcher::Event::Apply(Guard::Readable(machine.clone())));
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
        crate::controllers::testing::merge(&mut value, &change);
        assert_eq!(content(&before) != content(&class(&value)), expected);
    }

    #[test]
    fn a_machine_uses_the_class_that_it_names_whatever_kind_it_writes_beside_the_name() {
        let machines = <Machine as Kept>::cache();
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
