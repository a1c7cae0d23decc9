//! Observe, plan, apply for one set.

use std::{sync::Arc, time::Instant};

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{Action, Failure, Snapshot, plan};
use crate::{
    api::{
        machine::{Machine, MachinePhase, MachineSet, OperationType},
        reasons::EventReason,
    },
    controllers::{
        context::{Context, WRITES_IN_FLIGHT, machines_by},
        controller::{ROUNDS, ReconcileError, Wake, hold_status},
        owner,
        plan::{Note, Step},
        selector::Selector,
    },
    runtime::{
        cache::Key,
        objects::{WriteError, WriteFailure, merge_patch},
    },
};

/// What one pass over a set remembers for the next.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The last create or delete failed.
    pub failure: Option<Failure>,
    /// Names of Machines of which it is not known whether they were created.
    pub doubts: Vec<String>,
    /// How many Machines the pass under way may still create; for a set that has grown smaller meanwhile, too.
    pub coming: usize,
    /// When the status was last written.
    pub status_written_at: Option<Timestamp>,
}

const COMPONENT: &str = "machineset-controller";

/// One pass over a set: plans and applies until there is nothing left to do.
pub async fn reconcile(key: Key, context: Arc<Context>) -> Result<Wake, ReconcileError> {
    settle_doubts(&key, &context).await?;
    let mut last = String::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let Some(snapshot) = observe(&key, &context) else {
            context.memory.sets.forget(&key);
            return Ok(Wake::OnChange);
        };
        let plan = plan(&snapshot);
        context.queues.sets.charge(&key, begun.elapsed());
        let Some(step) = plan.steps.last() else {
            if snapshot.failure.is_none() {
                return Ok(plan.wake_at().into());
            }
            // Nothing is left to be tried again, whoever did it: the report of the failure is withdrawn.
            context.memory.sets.update(&key, |memory| memory.failure = None);
            continue;
        };
        let only_status = plan.steps.iter().all(|step| matches!(step.action, Action::WriteStatus(_)));
        if only_status && let Some(wake) = hold_status(context.memory.sets.get(&key).status_written_at, context.now()) {
            return Ok(wake);
        }
        last.clone_from(&step.reason);
        let Some(coming) = announce(&snapshot, &plan.steps, &key, &context) else { continue };
        let applied = apply(&snapshot, plan.steps, &key, &context).await;
        if coming > 0 {
            context.memory.sets.update(&key, |memory| memory.coming = 0);
            wake_deployment(&snapshot.set, &context);
        }
        applied?;
        context.memory.sets.update(&key, |memory| memory.failure = None);
    }
    Err(ReconcileError::Restless { key, step: last })
}

fn observe(key: &Key, context: &Context) -> Option<Snapshot> {
    let set = context.sets.cache.get(key)?;
    let uid = set.uid().unwrap_or_default();
    let mut machines = context.machines.cache.by(machines_by::CONTROLLER, &uid);
    if let Ok(selector) = Selector::parse(set.spec.selector.as_ref()) {
        let orphans = context.machines.cache.by(machines_by::CONTROLLER, "");
        machines.extend(orphans.into_iter().filter(|machine| selector.matches(machine.metadata.labels.as_ref())));
    }
    let unreadable = context.machines.cache.unreadable().into_iter();
    let unreadable = unreadable.filter(|machine| owner::is_controlled_by(&machine.meta, &uid));
    Some(Snapshot {
        set,
        machines,
        unreadable: unreadable.filter_map(|machine| machine.meta.name).collect(),
        failure: context.memory.sets.get(key).failure,
        now: context.now(),
        seed: rand::random(),
    })
}

/// A create whose answer was lost may have been carried out: until that is known, nothing is planned.
async fn settle_doubts(key: &Key, context: &Context) -> Result<(), ReconcileError> {
    for name in context.memory.sets.get(key).doubts {
        let found = context.machines.api(&key.namespace).get_opt(&name).await.map_err(|source| {
            ReconcileError::Read { what: format!("machine {}/{name}", key.namespace), source: source.into() }
        })?;
        if let Some(machine) = found {
            context.machines.cache.wrote(machine);
        }
        context.memory.sets.update(key, |memory| memory.doubts.retain(|doubt| *doubt != name));
        if let Some(set) = context.sets.cache.get(key) {
            wake_deployment(&set, context);
        }
    }
    Ok(())
}

/// Lets the deployment know how many Machines are about to be created: until they exist, nothing else shows that they take
/// room. `None` if the set has changed meanwhile; a deployment that changes it later knows already.
fn announce(snapshot: &Snapshot, steps: &[Step<Action>], key: &Key, context: &Context) -> Option<usize> {
    let coming = steps.iter().filter(|step| matches!(step.action, Action::CreateMachine(_))).count();
    context.memory.sets.update(key, |memory| memory.coming = coming);
    let current = context.sets.cache.get(key).and_then(|set| set.resource_version());
    if current == snapshot.set.resource_version() {
        return Some(coming);
    }
    context.memory.sets.update(key, |memory| memory.coming = 0);
    None
}

/// What a set may still create is no object whose change would wake its deployment.
fn wake_deployment(set: &MachineSet, context: &Context) {
    if let Some(deployment) = owner::controller_of(&set.metadata) {
        context.queues.deployments.add(Key::new(set.namespace().unwrap_or_default(), &deployment.name));
    }
}

/// Only what concerns the number of Machines is reported; any other write is simply tried again.
fn remember(error: &WriteError, key: &Key, context: &Context) {
    if error.failure() != WriteFailure::Conflict {
        let failure = Failure { message: error.text() };
        context.memory.sets.update(key, |memory| memory.failure = Some(failure));
    }
}

async fn apply(snapshot: &Snapshot, steps: Vec<Step<Action>>, key: &Key, context: &Context) -> Result<(), WriteError> {
    let mut creates = Vec::new();
    let mut deletes = Vec::new();
    for step in steps {
        tracing::debug!(set = %key, reason = %step.reason, "step");
        match step.action {
            Action::CreateMachine(machine) => creates.push((*machine, step.event)),
            Action::DeleteMachine(machine) => deletes.push((machine, step.event)),
            Action::PatchSet(patch) => {
                context.sets.patch(&snapshot.set.metadata, &patch).await?;
            }
            Action::PatchMachine { machine, patch } => {
                context.machines.patch(&machine.metadata, &patch).await?;
            }
            Action::WriteStatus(status) => {
                let before = serde_json::to_value(&snapshot.set.status).unwrap_or_default();
                let after = serde_json::to_value(&*status).unwrap_or_default();
                let patch = serde_json::json!({ "status": merge_patch(&before, &after) });
                context.sets.patch_status(&snapshot.set.metadata, &patch).await?;
                context.memory.sets.update(key, |memory| memory.status_written_at = Some(context.now()));
            }
        }
    }
    create_by_slow_start(snapshot, creates, key, context).await?;
    stream::iter(deletes)
        .map(|(machine, event)| delete(snapshot, machine, event, key, context))
        .buffer_unordered(WRITES_IN_FLIGHT)
        .try_collect()
        .await
}

/// One, two, four, … at a time: a wish that the API server refuses costs few calls.
async fn create_by_slow_start(
    snapshot: &Snapshot,
    mut machines: Vec<(Machine, Option<Note>)>,
    key: &Key,
    context: &Context,
) -> Result<(), WriteError> {
    let mut batch = 1;
    while !machines.is_empty() {
        let rest = machines.split_off(batch.min(machines.len()));
        let results: Vec<_> = stream::iter(machines)
            .map(|(machine, event)| create(snapshot, machine, event, key, context))
            .buffer_unordered(WRITES_IN_FLIGHT)
            .collect()
            .await;
        results.into_iter().collect::<Result<(), WriteError>>()?;
        machines = rest;
        batch *= 2;
    }
    Ok(())
}

async fn create(
    snapshot: &Snapshot,
    machine: Machine,
    event: Option<Note>,
    key: &Key,
    context: &Context,
) -> Result<(), WriteError> {
    let answer = context.machines.create(&machine).await;
    context.memory.sets.update(key, |memory| {
        memory.coming = memory.coming.saturating_sub(1);
        if answer.as_ref().is_err_and(|error| error.failure() == WriteFailure::Unknown) {
            memory.doubts.push(machine.name_any());
        }
    });
    match answer {
        Ok(_) => {
            event.iter().for_each(|event| context.note(&*snapshot.set, COMPONENT, event));
            Ok(())
        }
        Err(error) => {
            remember(&error, key, context);
            let text = format!("Error creating machine: {}", error.text());
            context.note(&*snapshot.set, COMPONENT, &Note::warning(EventReason::FailedCreate, text));
            Err(error)
        }
    }
}

async fn delete(
    snapshot: &Snapshot,
    machine: Arc<Machine>,
    event: Option<Note>,
    key: &Key,
    context: &Context,
) -> Result<(), WriteError> {
    match context.machines.delete(&machine.metadata).await {
        Ok(()) => {
            if was_given_up(&machine) {
                context.metrics.machines().stale_deleted();
            }
            event.iter().for_each(|event| context.note(&*snapshot.set, COMPONENT, event));
            Ok(())
        }
        Err(error) => {
            remember(&error, key, context);
            let text = format!("Error deleting machine {}: {}", machine.name_any(), error.text());
            context.note(&*snapshot.set, COMPONENT, &Note::warning(EventReason::FailedDelete, text));
            Err(error)
        }
    }
}

/// Its health did not come back in time.
fn was_given_up(machine: &Machine) -> bool {
    let operation = machine.status.as_ref().and_then(|status| status.last_operation.type_);
    machine.phase() == MachinePhase::Failed && operation == Some(OperationType::HealthCheck)
}
