use std::sync::Arc;

use kube::ResourceExt;

use super::{
    MachineSetGroup,
    apply::{OvershootReconciler, SubjectKey},
    observe::subject_of,
};
use mcm_api::{
    labels,
    machine::{Machine, MachineDeployment, MachineSet},
    reasons::ConditionType,
};
use mcm_runtime::{
    cache::{Key, ObjectCache, ObjectChange},
    cell::CellBuilder,
    enqueue::EnqueueMapper,
    queue::{QueuePacing, WorkQueue},
    reconcile::ObjectStateMap,
};
use {
    crate as controllers,
    crate::{
        Kind, Settings, machine_set,
        object::{self, condition, owner},
    },
};

pub const KIND: Kind = Kind { role: controllers::SETS.name, register };

const WORKERS: usize = 8;
/// Creations of Machines come in batches.
const PACING: QueuePacing = QueuePacing { gather: std::time::Duration::from_millis(250), ..QueuePacing::OF_OWNERS };

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let overshoot = Arc::new(OvershootReconciler {
        deployments: builder.objects(),
        sets: builder.objects(),
        machines: builder.objects(),
        holds: object::holds(builder),
        policy: settings.overshoot,
        events: builder.config().events.clone(),
        clock: Arc::clone(&builder.config().shared.clock),
    });
    let queue = WorkQueue::new("machinesafetyovershooting", PACING);
    let states = Arc::<ObjectStateMap<OvershootReconciler>>::default();
    let workers = builder.reconciler_with(&overshoot, &queue, &states, WORKERS, SubjectKey::object);
    let forget = Arc::new(move |subject: &SubjectKey| {
        workers.forget(subject);
        states.forget(subject);
    });
    let gone = Arc::clone(&forget);
    builder.on_change::<MachineDeployment>(move |change| {
        if change.gone {
            gone(&MachineSetGroup::Deployment(change.key.clone()));
        }
    });
    builder.on_change::<MachineSet>(move |change| {
        if change.gone {
            forget(&MachineSetGroup::Set(change.key.clone()));
        }
    });
    let enqueue = EnqueueMapper::new(&overshoot, &queue);
    overshoot.holds.on_change(enqueue.on(of_held));
    builder.on_start(enqueue.all(everything));
    builder.on_change(enqueue.on(of_deployment));
    builder.on_change(enqueue.on(of_set));
    builder.on_change(enqueue.on(of_machine));
}

/// Subjects to check after an object was held.
fn of_held(caches: &OvershootReconciler, key: &Key) -> Vec<SubjectKey> {
    let set = caches.sets.cache.get(key);
    let subject = set.and_then(|set| subject_of(&caches.deployments.cache, &set));
    subject.into_iter().chain([MachineSetGroup::Deployment(key.clone())]).collect()
}

fn everything(caches: &OvershootReconciler) -> Vec<SubjectKey> {
    let (deployments, sets) = (caches.deployments.cache.all(), caches.sets.cache.all());
    let of_sets = sets.iter().filter_map(|set| subject_of(&caches.deployments.cache, set));
    deployments
        .iter()
        .map(|deployment| MachineSetGroup::Deployment(Key::from_meta(&deployment.metadata)))
        .chain(of_sets)
        .collect()
}

/// A deployment that is new or to be unfrozen; after its deletion, the sets that it leaves.
fn of_deployment(caches: &OvershootReconciler, change: &ObjectChange<MachineDeployment>) -> Vec<SubjectKey> {
    if change.gone {
        let uid = change.meta.uid.as_deref().unwrap_or_default();
        let left = caches.sets.cache.by(machine_set::BY_CONTROLLER, uid);
        return left.iter().map(|set| MachineSetGroup::Set(Key::from_meta(&set.metadata))).collect();
    }
    let is_due = change.old.is_none() || change.new.as_ref().is_some_and(|new| is_asked(new.as_ref()));
    is_due.then(|| MachineSetGroup::Deployment(change.key.clone())).into_iter().collect()
}

/// A set that has another controller, or is to be unfrozen.
fn of_set(caches: &OvershootReconciler, change: &ObjectChange<MachineSet>) -> Vec<SubjectKey> {
    let controller = |set: &Arc<MachineSet>| owner::controller_uid(set.as_ref());
    let has_moved = change.old.as_ref().map(controller) != change.new.as_ref().map(controller);
    let is_due = has_moved || change.new.as_ref().is_some_and(|new| is_asked(new.as_ref()));
    let set = change.new.as_ref().or(change.old.as_ref()).filter(|_| is_due);
    set.and_then(|set| subject_of(&caches.deployments.cache, set)).into_iter().collect()
}

/// The set of a Machine that is new, or that a frozen set lost.
fn of_machine(caches: &OvershootReconciler, change: &ObjectChange<Machine>) -> Vec<SubjectKey> {
    let set = set_of(&caches.sets.cache, change);
    let set = set.filter(|set| change.old.is_none() || (change.gone && is_frozen(set)));
    set.and_then(|set| subject_of(&caches.deployments.cache, &set)).into_iter().collect()
}

fn set_of(sets: &ObjectCache<MachineSet>, change: &ObjectChange<Machine>) -> Option<Arc<MachineSet>> {
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
