//! Observe, plan, apply for one deployment.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{Action, Failure, Snapshot, plan};
use crate::{
    api::{machine::MachineSet, node::Node, reasons::EventReason},
    controllers::{
        context::{Context, WRITES_IN_FLIGHT, machines_by, sets_by},
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

/// What one pass over a deployment remembers for the next.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The last create of a set failed.
    pub failure: Option<Failure>,
    /// Names of sets of which it is not known whether they were written.
    pub doubts: Vec<String>,
    /// When the status was last written.
    pub status_written_at: Option<Timestamp>,
    /// The last thing told about this deployment, so that it is told once.
    pub told: Option<Note>,
}

/// When to try again to mark Nodes that somebody else wrote at the same time.
const NODE_RETRY: Duration = Duration::from_secs(1);
const COMPONENT: &str = "machine-controller-manager";

/// One pass over a deployment: plans and applies until there is nothing left to do.
pub async fn reconcile(key: Key, context: Arc<Context>) -> Result<Wake, ReconcileError> {
    settle_doubts(&key, &context).await?;
    let mut last = String::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let Some(snapshot) = observe(&key, &context) else {
            context.memory.deployments.forget(&key);
            return Ok(Wake::OnChange);
        };
        let plan = plan(&snapshot, &context.deployment_policy);
        context.queues.deployments.charge(&key, begun.elapsed());
        let Some(step) = plan.steps.last() else {
            if snapshot.failure.is_none() {
                return Ok(plan.wake_at().into());
            }
            // No set is wanted any more that could not be created.
            context.memory.deployments.update(&key, |memory| memory.failure = None);
            continue;
        };
        let only_status = plan.steps.iter().all(|step| matches!(step.action, Action::WriteStatus(_)));
        if only_status
            && let Some(wake) = hold_status(context.memory.deployments.get(&key).status_written_at, context.now())
        {
            return Ok(wake);
        }
        last.clone_from(&step.reason);
        if let Some(wake) = apply(&snapshot, plan.steps, &key, &context).await? {
            return Ok(wake);
        }
    }
    Err(ReconcileError::Restless { key, step: last })
}

/// A write of a set whose answer was lost may have been carried out. How large one set may be depends on all of them, and
/// no resource version guards that: until it is known, nothing is planned.
async fn settle_doubts(key: &Key, context: &Context) -> Result<(), ReconcileError> {
    for name in context.memory.deployments.get(key).doubts {
        let found = context.sets.api(&key.namespace).get_opt(&name).await.map_err(|source| ReconcileError::Read {
            what: format!("machine set {}/{name}", key.namespace),
            source: source.into(),
        })?;
        if let Some(set) = found {
            context.sets.cache.wrote(set);
        }
        context.memory.deployments.update(key, |memory| memory.doubts.retain(|doubt| *doubt != name));
    }
    Ok(())
}

fn doubt(error: &WriteError, set: &MachineSet, key: &Key, context: &Context) {
    if error.failure() == WriteFailure::Unknown {
        context.memory.deployments.update(key, |memory| memory.doubts.push(set.name_any()));
    }
}

fn observe(key: &Key, context: &Context) -> Option<Snapshot> {
    let deployment = context.deployments.cache.get(key)?;
    let uid = deployment.uid().unwrap_or_default();
    let mut sets = context.sets.cache.by(sets_by::CONTROLLER, &uid);
    let owned: Vec<String> = sets.iter().filter_map(|set| set.uid()).collect();
    if let Ok(selector) = Selector::parse(deployment.spec.selector.as_ref()) {
        let orphans = context.sets.cache.by(sets_by::CONTROLLER, "");
        sets.extend(orphans.into_iter().filter(|set| selector.matches(set.metadata.labels.as_ref())));
    }
    let coming = |set: &Arc<MachineSet>| {
        let memory = context.memory.sets.get(&Key::of(&set.metadata));
        (set.name_any(), memory.coming + memory.doubts.len())
    };
    let coming = sets.iter().map(coming).collect();
    let machines: Vec<_> =
        owned.iter().flat_map(|uid| context.machines.cache.by(machines_by::CONTROLLER, uid)).collect();
    let mut unreadable: Vec<String> = context
        .sets
        .cache
        .unreadable()
        .into_iter()
        .filter(|set| owner::is_controlled_by(&set.meta, &uid))
        .filter_map(|set| set.meta.name)
        .collect();
    unreadable.extend(
        context
            .machines
            .cache
            .unreadable()
            .into_iter()
            .filter(|machine| owned.iter().any(|set| owner::is_controlled_by(&machine.meta, set)))
            .filter_map(|machine| machine.meta.name),
    );
    let nodes: BTreeMap<String, Arc<Node>> = context
        .nodes
        .iter()
        .flat_map(|nodes| machines.iter().filter_map(|machine| nodes.cache.get(&Key::new("", machine.node_name()?))))
        .map(|node| (node.name_any(), node))
        .collect();
    let failure = context.memory.deployments.get(key).failure;
    Some(Snapshot { deployment, sets, machines, coming, unreadable, nodes, failure, now: context.now() })
}

async fn apply(
    snapshot: &Snapshot,
    steps: Vec<Step<Action>>,
    key: &Key,
    context: &Context,
) -> Result<Option<Wake>, WriteError> {
    let (nodes, steps): (Vec<_>, Vec<_>) =
        steps.into_iter().partition(|step| matches!(step.action, Action::PatchNode { .. }));
    let missed = patch_nodes(nodes, context).await;
    let only_nodes = steps.is_empty();
    // The status follows the patch of the same plan, so it is written on the version that the patch made.
    let mut deployment = Arc::clone(&snapshot.deployment);
    for step in steps {
        tracing::debug!(deployment = %key, reason = %step.reason, "step");
        match step.action {
            Action::PatchNode { .. } => {}
            Action::PatchDeployment(patch) => {
                deployment = context.deployments.patch(&deployment.metadata, &patch).await?;
            }
            Action::PatchSet { set, patch } => {
                let answer = context.sets.patch(&set.metadata, &patch).await;
                answer.inspect_err(|error| doubt(error, &set, key, context))?;
            }
            Action::PatchMachine { machine, patch } => {
                context.machines.patch(&machine.metadata, &patch).await?;
            }
            Action::DeleteSet(set) => {
                let answer = context.sets.delete(&set.metadata).await;
                answer.inspect_err(|error| doubt(error, &set, key, context))?;
            }
            Action::CreateSet(set) => create_set(snapshot, &set, key, context).await?,
            Action::WriteStatus(status) => {
                let before = serde_json::to_value(&snapshot.deployment.status).unwrap_or_default();
                let after = serde_json::to_value(&*status).unwrap_or_default();
                let patch = serde_json::json!({ "status": merge_patch(&before, &after) });
                context.deployments.patch_status(&deployment.metadata, &patch).await?;
                context.memory.deployments.update(key, |memory| memory.status_written_at = Some(context.now()));
            }
        }
        if let Some(event) = step.event {
            tell(snapshot, event, key, context);
        }
    }
    Ok((only_nodes && missed > 0).then_some(Wake::After(NODE_RETRY)))
}

fn tell(snapshot: &Snapshot, event: Note, key: &Key, context: &Context) {
    let mut repeated = false;
    context
        .memory
        .deployments
        .update(key, |memory| repeated = memory.told.replace(event.clone()) == Some(event.clone()));
    if !repeated || !event.warning {
        context.note(&*snapshot.deployment, COMPONENT, &event);
    }
}

/// Marks on Nodes help others; that one cannot be set holds up nothing. Answers how many could not be set.
async fn patch_nodes(steps: Vec<Step<Action>>, context: &Context) -> usize {
    let Some(nodes) = &context.nodes else { return 0 };
    let outcomes = stream::iter(steps).map(|step| async move {
        let Action::PatchNode { node, patch } = step.action else { return 0 };
        let Err(error) = nodes.patch(&node.metadata, &patch).await else { return 0 };
        tracing::debug!(node = %node.name_any(), error = %error.text(), reason = %step.reason, "node not marked");
        1
    });
    outcomes.buffer_unordered(WRITES_IN_FLIGHT).fold(0, async |sum, missed| sum + missed).await
}

async fn create_set(snapshot: &Snapshot, set: &MachineSet, key: &Key, context: &Context) -> Result<(), WriteError> {
    let Err(error) = context.sets.create(set).await else {
        context.memory.deployments.update(key, |memory| memory.failure = None);
        return Ok(());
    };
    doubt(&error, set, key, context);
    let failure = match error.failure() {
        // Created by a call whose answer was lost, or somebody else's: the object itself tells.
        WriteFailure::AlreadyExists => match context.sets.api(&key.namespace).get_opt(&set.name_any()).await {
            Ok(Some(found)) => {
                let ours = owner::is_controlled_by(&found.metadata, &snapshot.deployment.uid().unwrap_or_default());
                context.sets.cache.wrote(found);
                (!ours).then_some(Failure::NameTaken)
            }
            _ => None,
        },
        WriteFailure::Conflict => None,
        WriteFailure::Gone | WriteFailure::Refused | WriteFailure::Unknown => {
            let message = error.text();
            let text = format!("Failed to create new machine set {}: {message}", set.name_any());
            context.note(&*snapshot.deployment, COMPONENT, &Note::warning(EventReason::MachineSetCreateError, text));
            Some(Failure::Other { message })
        }
    };
    context.memory.deployments.update(key, |memory| memory.failure = failure);
    Err(error)
}
