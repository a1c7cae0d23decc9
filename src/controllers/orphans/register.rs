use std::{sync::Arc, time::Duration};

use super::{
    Action, Memory, Snapshot,
    apply::{COMPONENT, Orphans, Session},
    metrics::OrphanMetrics,
    plan,
};
use crate::{
    api::machine::{Machine, MachineClass},
    controllers::{self, Kind, Settings, secret::MetadataOfSecret},
    driver::Code,
    plan::{Plan, Step},
    runtime::{
        cache::{Change, Key},
        cell::Builder,
        owners::Owners,
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, States, Turn},
        secrets::Secrets,
        worker::ReconcileError,
    },
};

pub(crate) const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

const WORKERS: usize = 4;
/// Lists of one class are so far apart, however many of its Machines are deleted.
const PACING: Pacing = Pacing { gather: Duration::from_mins(1), per_cost: 0 };

impl Reconciler for Orphans {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = Memory;
    type Session = Session;

    fn observe(&self, key: &Key, memory: &Memory, session: &Session) -> Option<Snapshot> {
        self.snapshot(key, memory, &session.learned)
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<Action> {
        plan(snapshot, &self.policy)
    }

    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        self.execute(&snapshot, steps, turn).await;
        Ok(Next::Plan)
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let (classes, machines) = (builder.objects::<MachineClass>(), builder.objects::<Machine>());
    let (secrets, servers) = (builder.objects::<MetadataOfSecret>(), builder.shared());
    let owners = Owners::of_cell(builder);
    let config = builder.config();
    let measured = config.shared.metrics.of::<OrphanMetrics>();
    let orphans = Orphans {
        classes: Arc::clone(&classes),
        machines,
        secrets: Secrets::new(Arc::clone(&secrets.cache), &config.control),
        control: config.control.clone(),
        scope: config.scope.clone(),
        owners,
        targets: Arc::clone(&config.targets),
        servers,
        drivers: Arc::clone(&settings.drivers),
        policy: settings.orphans,
        events: config.events.with_component(COMPONENT),
        measured: Arc::clone(&measured),
        clock: Arc::clone(&config.shared.clock),
        deletions: parking_lot::Mutex::default(),
    };
    let queue = Queue::new("machinesafetyorphanvms", PACING);
    let states = Arc::<States<Orphans>>::default();
    let workers = builder.reconciler(orphans, &queue, &states, WORKERS);

    let all = Arc::clone(&queue);
    let sightings = Arc::clone(&states);
    builder.on_start(move || {
        // Another leader may have corrected findings of an earlier term.
        sightings.clear();
        classes.cache.all().iter().for_each(|class| all.add(Key::of(&class.metadata)));
    });

    let new = Arc::clone(&queue);
    builder.on_change::<MachineClass>(move |change| {
        if change.gone {
            workers.forget(&change.key);
            states.forget(&change.key);
            measured.forget([&change.key.namespace, &change.key.name]);
        } else if change.old.is_none() {
            new.add(change.key.clone());
        }
    });

    builder.on_change::<Machine>(move |change| {
        let machine = change.new.as_ref().or(change.old.as_ref());
        if let Some(machine) = machine.filter(|_| change.gone || has_several_vms(change)) {
            queue.add(Key::beside(&change.meta, &machine.spec.class.name));
        }
    });
}

/// Its last operation newly failed because there are several VMs. As in the reference, the text contains that.
fn has_several_vms(change: &Change<Machine>) -> bool {
    let says = |machine: &Arc<Machine>| {
        let status = machine.status.as_ref();
        status.is_some_and(|status| status.last_operation.description.contains(Code::OutOfRange.as_str()))
    };
    change.new.as_ref().is_some_and(says) && !change.old.as_ref().is_some_and(says)
}
