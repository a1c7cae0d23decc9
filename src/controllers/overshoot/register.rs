use std::sync::Arc;

use kube::ResourceExt;

use super::{
    Action, Memory, Snapshot, Subject,
    apply::{Overshoot, SubjectKey},
    observe::subject_of,
    plan,
};
use crate::{
    api::{
        labels,
        machine::{Machine, MachineDeployment, MachineSet},
        reasons::ConditionType,
    },
    controllers::{
        self, Kind, Settings, machine_set,
        object::{self, condition, owner},
    },
    plan::{Plan, Step},
    runtime::{
        cache::{Cache, Change, Key},
        cell::Builder,
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, States, Turn},
        worker::ReconcileError,
    },
};

pub(crate) const KIND: Kind = Kind { role: controllers::SETS.name, register };

const WORKERS: usize = 8;
/// Creations of Machines come in batches.
const PACING: Pacing = Pacing { gather: std::time::Duration::from_millis(250), ..Pacing::OF_OWNERS };

impl Reconciler for Overshoot {
    type Key = SubjectKey;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = Memory;
    type Session = ();

    fn observe(&self, key: &SubjectKey, memory: &Memory, (): &()) -> Option<Snapshot> {
        self.snapshot(key, memory)
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
        self.execute(&snapshot, steps, turn).await?;
        Ok(Next::Plan)
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let (deployments, sets) = (builder.objects::<MachineDeployment>(), builder.objects::<MachineSet>());
    let (machines, holds) = (builder.objects::<Machine>(), object::holds(builder));
    let config = builder.config();
    let reconciler = Overshoot {
        deployments: Arc::clone(&deployments),
        sets: Arc::clone(&sets),
        machines,
        holds: Arc::clone(&holds),
        policy: settings.overshoot,
        events: config.events.clone(),
        clock: Arc::clone(&config.shared.clock),
    };
    let queue = Queue::new("machinesafetyovershooting", PACING);
    let states = Arc::<States<Overshoot>>::default();
    let workers = builder.reconciler(reconciler, &queue, &states, WORKERS);

    let subject_of = {
        let deployments = Arc::clone(&deployments);
        Arc::new(move |set: &Arc<MachineSet>| subject_of(&deployments.cache, set))
    };
    let (all_sets, subject, held) = (Arc::clone(&sets), Arc::clone(&subject_of), Arc::clone(&queue));
    holds.on_change(move |key| {
        let subject = all_sets.cache.get(key).and_then(|set| subject(&set));
        subject.into_iter().chain([Subject::Deployment(key.clone())]).for_each(|subject| held.add(subject));
    });

    let (all_sets, subject, all) = (Arc::clone(&sets), Arc::clone(&subject_of), Arc::clone(&queue));
    builder.on_start(move || {
        let deployments = deployments.cache.all().into_iter();
        deployments.for_each(|deployment| all.add(Subject::Deployment(Key::of(&deployment.metadata))));
        all_sets.cache.all().iter().filter_map(|set| subject(set)).for_each(|subject| all.add(subject));
    });

    let (all_sets, asked) = (Arc::clone(&sets), Arc::clone(&queue));
    let (forgetting, forgotten) = (Arc::clone(&workers), Arc::clone(&states));
    builder.on_change::<MachineDeployment>(move |change| {
        let subject = Subject::Deployment(change.key.clone());
        if change.gone {
            forgetting.forget(&subject);
            forgotten.forget(&subject);
            let orphans = all_sets.cache.by(machine_set::BY_CONTROLLER, change.meta.uid.as_deref().unwrap_or_default());
            orphans.iter().for_each(|set| asked.add(Subject::Set(Key::of(&set.metadata))));
        } else if change.old.is_none() || change.new.as_ref().is_some_and(|new| is_asked(new.as_ref())) {
            asked.add(subject);
        }
    });

    let (subject, asked) = (Arc::clone(&subject_of), Arc::clone(&queue));
    builder.on_change::<MachineSet>(move |change| {
        let controller = |set: &Arc<MachineSet>| owner::controller_uid(set.as_ref());
        let has_moved = change.old.as_ref().map(controller) != change.new.as_ref().map(controller);
        if change.gone {
            let subject = Subject::Set(change.key.clone());
            workers.forget(&subject);
            states.forget(&subject);
        }
        let set = change.new.as_ref().or(change.old.as_ref());
        if (has_moved || change.new.as_ref().is_some_and(|new| is_asked(new.as_ref())))
            && let Some(subject) = set.and_then(|set| subject(set))
        {
            asked.add(subject);
        }
    });

    builder.on_change::<Machine>(move |change| {
        let set = set_of(&sets.cache, change);
        if let Some(set) = set.filter(|set| change.old.is_none() || (change.gone && is_frozen(set)))
            && let Some(subject) = subject_of(&set)
        {
            queue.add(subject);
        }
    });
}

fn set_of(sets: &Cache<MachineSet>, change: &Change<Machine>) -> Option<Arc<MachineSet>> {
    let reference = owner::controller_of(&change.meta)?;
    let set = sets.get(&Key::new(&change.key.namespace, &reference.name))?;
    (set.metadata.uid.as_ref() == Some(&reference.uid)).then_some(set)
}

/// A user requests to unfreeze it.
fn is_asked(object: &impl ResourceExt) -> bool {
    object.annotations().contains_key(labels::UNFREEZE)
}

/// Frozen by a controller, not by a label that a user set: such a set stays frozen until the next check.
fn is_frozen(set: &MachineSet) -> bool {
    let status = set.status.as_ref();
    status.is_some_and(|status| condition::find(&status.conditions, ConditionType::Frozen).is_some())
}
