use std::{sync::Arc, time::Duration};

use super::apply::{COMPONENT, OrphanCollector};
use mcm_api::machine::{Machine, MachineClass};
use mcm_driver::Code;
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::CellBuilder,
    enqueue::EnqueueMapper,
    owners::VmOwners,
    queue::{QueuePacing, WorkQueue},
    reconcile::ObjectStateMap,
    secrets::SecretCache,
};
use {
    crate as controllers,
    crate::{Kind, Settings, machine::ReplacementPermits, secret::MetadataOfSecret},
};

pub const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

const WORKERS: usize = 4;
/// Lists of one class are so far apart, however many of its Machines are deleted.
const PACING: QueuePacing = QueuePacing { gather: Duration::from_mins(1), per_cost: 0 };

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let orphans = Arc::new(OrphanCollector::new(builder, settings));
    let queue = WorkQueue::new("machinesafetyorphanvms", PACING);
    let states = Arc::<ObjectStateMap<OrphanCollector>>::default();
    let workers = builder.reconciler_of::<MachineClass, _>(&orphans, &queue, &states, WORKERS);
    let enqueue = EnqueueMapper::new(&orphans, &queue);

    // Another leader may have removed orphans that an earlier term saw.
    let (sightings, add_all, former) = (Arc::clone(&states), enqueue.all(all_classes), Arc::clone(&orphans));
    builder.on_start(move || {
        sightings.clear();
        former.handled.lock().clear();
        add_all();
    });
    let (measured, context) = (Arc::clone(&orphans.measured), Arc::clone(&orphans));
    builder.on_change::<MachineClass>(move |change| {
        if change.gone {
            context.handled.lock().retain(|_, (by, _)| *by != change.key);
            workers.forget(&change.key);
            states.forget(&change.key);
            measured.forget([&change.key.namespace, &change.key.name]);
        }
    });
    builder.on_change(enqueue.on(new_class));
    builder.on_change(enqueue.on(class_of_suspect));
}

impl OrphanCollector {
    fn new(builder: &mut CellBuilder<'_>, settings: &Settings) -> Self {
        let (classes, machines, servers) = (builder.objects(), builder.objects(), builder.shared());
        let freed = builder.shared();
        let (secrets, permits) = (builder.objects::<MetadataOfSecret>(), builder.shared::<ReplacementPermits>());
        let owners = VmOwners::of_cell(builder);
        let config = builder.config();
        Self {
            classes,
            machines,
            secrets: SecretCache::new(Arc::clone(&secrets.cache), &config.control),
            control: config.control.clone(),
            scope: config.scope.clone(),
            owners,
            targets: Arc::clone(&config.targets),
            servers,
            drivers: Arc::clone(&settings.drivers),
            freed,
            policy: settings.orphans,
            events: config.events.with_component(COMPONENT),
            measured: config.shared.metrics.collector(),
            clock: Arc::clone(&config.shared.clock),
            permits,
            drains: Arc::default(),
            deletions: parking_lot::Mutex::default(),
            handled: parking_lot::Mutex::default(),
        }
    }
}

fn all_classes(orphans: &OrphanCollector) -> Vec<Key> {
    orphans.classes.cache.all().iter().map(|class| Key::from_meta(&class.metadata)).collect()
}

fn new_class<C>(_: &C, change: &ObjectChange<MachineClass>) -> Vec<Key> {
    if change.gone || change.old.is_some() { Vec::new() } else { vec![change.key.clone()] }
}

/// The class of a Machine that was deleted, or that has several VMs.
fn class_of_suspect<C>(_: &C, change: &ObjectChange<Machine>) -> Vec<Key> {
    let machine = change.new.as_ref().or(change.old.as_ref());
    let suspect = machine.filter(|_| change.gone || has_several_vms(change));
    suspect.map(|machine| Key::beside(&change.meta, &machine.spec.class.name)).into_iter().collect()
}

/// Its last operation newly failed because there are several VMs. As in the reference, the text contains that.
fn has_several_vms(change: &ObjectChange<Machine>) -> bool {
    let says = |machine: &Arc<Machine>| {
        let status = machine.status.as_ref();
        status.is_some_and(|status| status.last_operation.description.contains(Code::OutOfRange.as_str()))
    };
    change.new.as_ref().is_some_and(says) && !change.old.as_ref().is_some_and(says)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn machine(description: &str) -> Machine {
        serde_json::from_value(json!({
            "metadata": { "name": "m", "namespace": "ns" },
            "spec": { "class": { "name": "c" } },
            "status": { "lastOperation": { "description": description } },
        }))
        .unwrap()
    }

    #[rstest]
    #[case::it_is_gone(Some("joined"), None, true)]
    #[case::it_has_several_vms(Some("joined"), Some("machine code: [OutOfRange] two VMs"), true)]
    #[case::that_is_known(Some("[OutOfRange] two VMs"), Some("[OutOfRange] two VMs"), false)]
    #[case::it_joined(Some("creating"), Some("joined"), false)]
    fn the_vms_of_a_class_are_listed_when_a_machine_makes_them_suspect(
        #[case] old: Option<&str>,
        #[case] new: Option<&str>,
        #[case] expected: bool,
    ) {
        let keys = class_of_suspect(&(), &ObjectChange::between(old.map(machine), new.map(machine)));
        let all: &[Key] = &[Key::new("ns", "c")];
        assert_eq!(keys, if expected { all } else { &[] });
    }
}
