//! Executes plans for MachineDeployments.

mod rollout_nodes;

use std::{collections::BTreeMap, iter, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::Value;

pub(super) use rollout_nodes::RolloutCaches;
pub(crate) use rollout_nodes::RolloutNodes;

use super::{Action, DeploymentPolicy, NodePatchOrder, SetCreateFailure, Snapshot};
use crate::{
    machine_set::InFlightWrites,
    object::{
        owner,
        strays::{self, StrayMemory},
    },
};
use mcm_api::{
    backoff::Backoff,
    machine::{Machine, MachineDeployment, MachineSet},
    node::Node,
    patch,
    selector::Selector,
};
use mcm_rules::plan::{
    Event, PlanInput, Step,
    repeats::{RepeatCount, RepeatPace},
};
use mcm_runtime::{
    cache::Key,
    clock::TimeSource,
    events::EventRecorder,
    hold_check::HoldCheck,
    objects::{CachedApi, ObjectWriteError, WriteFailure},
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun, UnresolvedWrite},
    target::{CellTargets, TargetOf},
    worker::ReconcileError,
};

/// Concurrent Node patches of one plan.
const WRITES_IN_FLIGHT: usize = 32;
const COMPONENT: &str = "machine-controller-manager";
/// Pauses for a Node whose patches fail. The first one is that after a conflict.
const NODE_RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(5));

/// Sets for one spec: two at once, then one after 1, 2, 4, … up to 10 minutes. A spec needs one set, and a second one if the
/// first is not recognised.
const NEW_SETS: RepeatPace = RepeatPace::new(2, Backoff::new(Duration::from_mins(1), Duration::from_mins(10)));

/// Reconciles MachineDeployments.
pub(crate) struct DeploymentReconciler {
    pub deployments: Arc<CachedApi<MachineDeployment>>,
    pub sets: Arc<CachedApi<MachineSet>>,
    pub machines: Arc<CachedApi<Machine>>,
    /// Clusters of their Nodes.
    pub targets: Arc<CellTargets>,
    /// Writes in flight of the sets, announced by the set controller.
    pub in_flight: Arc<InFlightWrites>,
    pub holds: Arc<HoldCheck>,
    pub policy: DeploymentPolicy,
    pub events: EventRecorder,
    pub clock: Arc<dyn TimeSource>,
}

/// In-memory facts about a deployment that are kept between reconciles.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The last create of a set failed.
    pub(super) failure: Option<SetCreateFailure>,
    /// Nodes whose last patch failed, by name.
    pub(super) node_retries: BTreeMap<String, NodeRetry>,
    /// The sets that it created.
    pub(super) strays: StrayMemory,
    /// The generation in which a client wrote 0 replicas.
    zero_written: Option<i64>,
    /// How many sets were created for the spec of this generation.
    new_sets: (Option<i64>, RepeatCount),
    /// The last event, so that a warning is recorded once.
    recorded: Option<Event>,
}

impl Memory {
    /// A live read showed that the replicas of this generation are a 0 that a client wrote.
    pub(super) fn is_zero_written(&self, generation: Option<i64>) -> bool {
        generation.is_some() && self.zero_written == generation
    }

    fn set_created(&mut self, generation: Option<i64>, now: Timestamp) {
        if self.new_sets.0 != generation {
            self.new_sets = (generation, RepeatCount::default());
        }
        self.new_sets.1.add(&NEW_SETS, now);
    }

    /// When the next set may be created for the spec of this generation; `None` if that is now.
    pub(super) fn sets_paused_until(&self, generation: Option<i64>, now: Timestamp) -> Option<Timestamp> {
        let (of, count) = &self.new_sets;
        count.paused_until(&NEW_SETS, now).filter(|_| *of == generation)
    }

    /// The Nodes whose patches are not retried yet, and until when. A later retry than the longest pause allows was planned
    /// before the clock was set back: it is due.
    pub(super) fn node_retries_at(&self, now: Timestamp) -> BTreeMap<String, Timestamp> {
        let longest = SignedDuration::try_from(NODE_RETRY.longest()).unwrap_or(SignedDuration::MAX);
        let pending = self.node_retries.iter().filter(|(_, retry)| retry.at.duration_since(now) <= longest);
        pending.map(|(node, retry)| (node.clone(), retry.at)).collect()
    }
}

/// When to retry the patch of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeRetry {
    attempts: u32,
    pub(super) at: Timestamp,
}

impl NodeRetry {
    /// The pause after one more failed patch.
    fn after(previous: Option<&Self>, now: Timestamp) -> Self {
        let attempts = previous.map_or(0, |retry| retry.attempts);
        let attempts = attempts.saturating_add(1);
        Self { attempts, at: now.saturating_add(NODE_RETRY.after(attempts)).unwrap_or(now) }
    }
}

/// State of one reconcile of a deployment.
#[derive(Debug, Default)]
pub(crate) struct DeploymentSession {
    /// Nodes were patched and the rest was planned again.
    has_planned_again: bool,
}

impl PlanExecutor for DeploymentReconciler {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        turn.remember(|memory| memory.node_retries.retain(|node, _| snapshot.nodes.contains_key(node)));
        self.execute(&snapshot, steps, turn).await?;
        Ok(LoopContinuation::Plan)
    }

    /// The replicas of one set depend on all sets, and no resource version guards that.
    async fn resolve(&self, _: &Key, write: &UnresolvedWrite) -> Result<(), ReconcileError> {
        let read = self.sets.read_again(&write.key).await;
        read.map_err(|source| ReconcileError::read(format!("machine set {}", write.key), source))?;
        Ok(())
    }

    /// Clears the failure once no set is left to create.
    fn settle(memory: &mut Memory) -> bool {
        memory.failure.take().is_some()
    }
}

impl DeploymentReconciler {
    async fn execute(
        &self,
        snapshot: &Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<(), ObjectWriteError> {
        let seen = &snapshot.deployment.metadata;
        if steps.iter().any(|step| step.action.adopts(seen.uid.as_deref())) && !self.deployments.is_alive(seen).await? {
            return Ok(());
        }
        // The status is written after the patch of the same plan, so with the resource version that the patch returned.
        let mut deployment = Arc::clone(&snapshot.deployment);
        let mut steps = steps.into_iter().peekable();
        while let Some(step) = steps.next() {
            if let Some(order) = step.action.node_order() {
                let mut nodes = vec![step];
                nodes.extend(iter::from_fn(|| steps.next_if(|step| step.action.node_order() == Some(order))));
                self.patch_nodes(snapshot, nodes, turn).await;
                let has_more = steps
                    .peek()
                    .is_some_and(|step| step.action.node_order().is_none() && !Snapshot::is_status(&step.action));
                if has_more && is_rest_outdated(order, &mut turn.session) {
                    return Ok(());
                }
                continue;
            }
            match step.action {
                Action::PatchNode { .. } => {}
                Action::PatchDeployment(patch) => {
                    deployment = turn.patch(&self.deployments, &deployment.metadata, &patch).await?;
                }
                Action::RestoreReplicas(patch) => {
                    if self.has_replicas(&deployment, turn).await? {
                        continue;
                    }
                    deployment = turn.patch(&self.deployments, &deployment.metadata, &patch).await?;
                }
                Action::PatchSet { set, patch } => {
                    turn.track(turn.patch(&self.sets, &set.metadata, &patch).await)?;
                }
                Action::PatchMachine { machine, patch } => {
                    turn.patch(&self.machines, &machine.metadata, &patch).await?;
                }
                Action::DeleteSet(set) => turn.track(self.sets.delete_unchanged(&set.metadata).await)?,
                Action::TrySet(set) => self.try_set(snapshot, &set, turn).await?,
                Action::CreateSet(set) => self.create_set(snapshot, &set, turn).await?,
                Action::WriteStatus(status) => {
                    let patch = patch::status(&snapshot.deployment.status, &Some(*status));
                    self.deployments.patch_status(&deployment.metadata, &patch).await?;
                    turn.status_written();
                }
            }
            if let Some(event) = step.event {
                self.record(snapshot, event, turn);
            }
        }
        Ok(())
    }

    /// A warning is recorded once until another event is recorded.
    fn record(&self, snapshot: &Snapshot, event: Event, turn: &ReconcileRun<'_, Self>) {
        let mut is_repeated = false;
        turn.remember(|memory| is_repeated = memory.recorded.replace(event.clone()).as_ref() == Some(&event));
        if !is_repeated || !event.warning {
            self.events.with_component(COMPONENT).record(&*snapshot.deployment, &event);
        }
    }

    /// Node patches only help the scheduler and the autoscaler, so a failed one does not stop the plan.
    async fn patch_nodes(&self, snapshot: &Snapshot, steps: Vec<Step<Action>>, turn: &ReconcileRun<'_, Self>) {
        let TargetOf::Known(target) = self.targets.target_for(&snapshot.deployment.metadata) else { return };
        let nodes = &target.nodes;
        let patches = steps.into_iter().filter_map(|step| match step.action {
            Action::PatchNode { node, patch, .. } => Some((node, patch)),
            _ => None,
        });
        let patches = stream::iter(patches)
            .map(|(node, patch)| async move { self.patch_node(nodes, &node, &patch.unpack(), turn).await });
        patches.buffer_unordered(WRITES_IN_FLIGHT).collect::<()>().await;
    }

    async fn patch_node(&self, nodes: &CachedApi<Node>, node: &Node, patch: &Value, turn: &ReconcileRun<'_, Self>) {
        let (name, answer) = (node.name_any(), turn.patch(nodes, &node.metadata, patch).await);
        turn.remember(|memory| match &answer {
            Ok(_) => drop(memory.node_retries.remove(&name)),
            Err(error) if error.failure() == WriteFailure::Gone => drop(memory.node_retries.remove(&name)),
            Err(_) => {
                let retry = NodeRetry::after(memory.node_retries.get(&name), self.clock.now());
                memory.node_retries.insert(name.clone(), retry);
            }
        });
        if let Err(error) = answer {
            tracing::debug!(node = %name, error = %error.text(), "node patch failed");
        }
    }

    /// Remembers a new set, and whether it belongs to the deployment as it was stored.
    fn set_created(&self, snapshot: &Snapshot, sent: &MachineSet, stored: &MachineSet, turn: &ReconcileRun<'_, Self>) {
        let (difference, now) = (difference(snapshot, sent, stored), self.clock.now());
        turn.remember(|memory| {
            memory.failure = None;
            memory.set_created(snapshot.deployment.metadata.generation, now);
            match difference {
                None => memory.strays.created(&stored.metadata, now),
                Some(difference) => memory.strays.altered(&stored.metadata, difference, now),
            }
        });
    }

    /// The API server has the field `spec.replicas`, which is 0 then. A decoded object does not show that.
    async fn has_replicas(
        &self,
        deployment: &MachineDeployment,
        turn: &ReconcileRun<'_, Self>,
    ) -> Result<bool, ObjectWriteError> {
        let seen = &deployment.metadata;
        let has_field = self.deployments.stored(seen).await?.pointer("/spec/replicas").is_some();
        turn.remember(|memory| memory.zero_written = seen.generation.filter(|_| has_field));
        Ok(has_field)
    }

    /// Sends a set to the API server as a dry run, and remembers how it would be stored.
    async fn try_set(
        &self,
        snapshot: &Snapshot,
        set: &MachineSet,
        turn: &ReconcileRun<'_, Self>,
    ) -> Result<(), ObjectWriteError> {
        match self.sets.try_create(set).await {
            Ok(stored) => {
                let (difference, now) = (difference(snapshot, set, &stored), self.clock.now());
                turn.remember(|memory| memory.strays.tried(difference, now));
                Ok(())
            }
            Err(error) if error.failure() == WriteFailure::Refused => {
                turn.remember(|memory| memory.strays.trial_refused());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn create_set(
        &self,
        snapshot: &Snapshot,
        set: &MachineSet,
        turn: &ReconcileRun<'_, Self>,
    ) -> Result<(), ObjectWriteError> {
        let error = match turn.track(self.sets.create(set).await) {
            Ok(stored) => {
                self.set_created(snapshot, set, &stored, turn);
                return Ok(());
            }
            Err(error) => error,
        };
        let failure = match error.failure() {
            // Created by a call whose response was lost, or by another client. A live read distinguishes the two.
            WriteFailure::AlreadyExists => match self.sets.read_again(&Key::from_meta(&set.metadata)).await {
                Ok(Some(found)) => {
                    let uid = snapshot.deployment.uid().unwrap_or_default();
                    (!owner::is_controlled_by(&found.metadata, &uid)).then_some(SetCreateFailure::NameTaken)
                }
                _ => None,
            },
            WriteFailure::Conflict | WriteFailure::Throttled => None,
            WriteFailure::Gone | WriteFailure::Refused | WriteFailure::Unknown => {
                Some(SetCreateFailure::Other { message: error.text() })
            }
        };
        turn.remember(|memory| memory.failure = failure);
        Err(error)
    }
}

/// Patching many Nodes takes long, and which Machines are available may have changed since, so the rest is planned again. A set
/// shrinks when no taint is left to write. Other patches delay the rest once per reconcile, because in a large pool there is always
/// a Node to patch.
const fn is_rest_outdated(order: NodePatchOrder, session: &mut DeploymentSession) -> bool {
    let has_planned_again = session.has_planned_again;
    session.has_planned_again = true;
    !has_planned_again || matches!(order, NodePatchOrder::BeforeShrinking)
}

/// Why a set does not belong to the deployment as it was stored.
fn difference(snapshot: &Snapshot, sent: &MachineSet, stored: &MachineSet) -> Option<String> {
    let deployment = &snapshot.deployment;
    let selector = Selector::parse(deployment.spec.selector.as_ref()).ok()?;
    strays::difference(&sent.metadata, &stored.metadata, deployment.metadata.uid.as_deref()?, &selector)
}
