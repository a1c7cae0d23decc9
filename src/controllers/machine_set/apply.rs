//! Executes plans for MachineSets.

mod recent;

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{Stream, StreamExt, stream};
use kube::ResourceExt;
use parking_lot::Mutex;

use super::{Action, ReplicaWriteFailure, SetWritesInFlight, Snapshot, replicas::BATCH};
use crate::{
    machine::metrics::MachineMetrics,
    object::{
        owner,
        strays::{self, StrayMemory},
    },
    secret::MetadataOfSecret,
};
use mcm_api::{
    machine::{Machine, MachineClass, MachineDeployment, MachinePhase, MachineSet, OperationType},
    patch,
    reasons::EventReason,
    selector::Selector,
};
use mcm_rules::plan::{Event, Step};
use mcm_runtime::{
    cache::{Key, ObjectCache},
    clock::TimeSource,
    events::EventRecorder,
    fence,
    handlers::HandlerList,
    hold_check::HoldCheck,
    objects::{CachedApi, ObjectWriteError, WriteFailure},
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun, UnresolvedWrite},
    worker::ReconcileError,
};
use recent::ReplacementCount;

pub(crate) use recent::RecentCreations;

const COMPONENT: &str = "machineset-controller";

/// Concurrent writes of one kind in one plan.
const WRITES_IN_FLIGHT: usize = 32;

/// Reconciles MachineSets.
pub(crate) struct MachineSetReconciler {
    pub sets: Arc<CachedApi<MachineSet>>,
    pub machines: Arc<CachedApi<Machine>>,
    pub deployments: Arc<ObjectCache<MachineDeployment>>,
    pub classes: Arc<CachedApi<MachineClass>>,
    pub secrets: Arc<CachedApi<MetadataOfSecret>>,
    /// Shared with the deployments.
    pub in_flight: Arc<InFlightWrites>,
    /// The Machines that this process created lately.
    pub recent: Arc<RecentCreations>,
    pub holds: Arc<HoldCheck>,
    pub events: EventRecorder,
    pub clock: Arc<dyn TimeSource>,
    pub measured: Arc<MachineMetrics>,
    /// Seeds for the names of new Machines.
    pub entropy: Arc<dyn Fn() -> u64 + Send + Sync>,
}

type SettledWriteHandler = dyn Fn(&Key) + Send + Sync;

/// The writes in flight of all sets, by UID: sets announce them, deployments read them.
#[derive(Default)]
pub(crate) struct InFlightWrites {
    writes: Mutex<HashMap<String, SetWritesInFlight>>,
    on_settled: HandlerList<SettledWriteHandler>,
}

impl InFlightWrites {
    /// The writes in flight of a set. Read before the Machines: a write that ends in between is then counted once.
    pub fn set_writes(&self, set_uid: &str) -> SetWritesInFlight {
        self.writes.lock().get(set_uid).cloned().unwrap_or_default()
    }

    /// Calls `handler` with the deployment of each set whose last write in flight ended. No watch reports that.
    pub fn on_settled(&self, handler: impl Fn(&Key) + Send + Sync + 'static) {
        self.on_settled.add(Box::new(handler));
    }

    /// Records the next writes of a set.
    pub fn announce(&self, set: &MachineSet, writes: SetWritesInFlight) {
        if writes.is_empty() {
            return;
        }
        let mut all = self.writes.lock();
        let present = all.entry(set.uid().unwrap_or_default()).or_default();
        present.creates.extend(writes.creates);
        present.deletes.extend(writes.deletes);
    }

    /// The result of a write is in the cache, or the write is dropped.
    pub fn settle(&self, set: &MachineSet, machine: &str) {
        if self.remove(&set.uid().unwrap_or_default(), machine)
            && let Some(deployment) = owner::controller_of(&set.metadata)
        {
            let key = Key::new(set.namespace().unwrap_or_default(), &deployment.name);
            self.on_settled.each(|handler| handler(&key));
        }
    }

    /// The set was deleted.
    pub fn forget(&self, set_uid: &str) {
        self.writes.lock().remove(set_uid);
    }

    /// True if it was the last one of the set.
    fn remove(&self, set_uid: &str, machine: &str) -> bool {
        let mut all = self.writes.lock();
        let Some(present) = all.get_mut(set_uid) else { return false };
        present.remove(machine);
        let is_last = present.is_empty();
        if is_last {
            all.remove(set_uid);
        }
        is_last
    }
}

/// State of one reconcile of a set, which ends with the first failure.
#[derive(Debug, Default)]
pub(crate) struct SetSession {
    wave: SlowStart,
}

/// How many Machines are created at a time: few until creations have succeeded.
#[derive(Clone, Copy, Debug)]
struct SlowStart {
    size: usize,
}

impl Default for SlowStart {
    fn default() -> Self {
        Self { size: 1 }
    }
}

impl SlowStart {
    fn double(&mut self) {
        self.size = self.size.saturating_mul(2).min(BATCH);
    }
}

/// The steps of one plan during their execution.
struct SetPlanExecution<'a> {
    kind: &'a MachineSetReconciler,
    turn: &'a ReconcileRun<'a, MachineSetReconciler>,
    seen: &'a MachineSet,
    /// Announced writes with an unknown outcome.
    open: Mutex<BTreeSet<String>>,
    has_failed: AtomicBool,
    /// A Machine was stored so that it is not the set's.
    has_strayed: AtomicBool,
}

impl PlanExecutor for MachineSetReconciler {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        turn.session.wave = self.execute(&snapshot, steps, turn).await?;
        turn.remember(|memory| memory.failure = None);
        Ok(LoopContinuation::Plan)
    }

    async fn resolve(&self, key: &Key, write: &UnresolvedWrite) -> Result<(), ReconcileError> {
        let read = self.machines.read_again(&write.key).await;
        read.map_err(|source| ReconcileError::read(format!("machine {}", write.key), source))?;
        if let Some(set) = self.sets.cache.get(key) {
            self.in_flight.settle(&set, &write.key.name);
        }
        Ok(())
    }

    /// Clears the failure once there is nothing left to retry.
    fn settle(memory: &mut Memory) -> bool {
        memory.failure.take().is_some()
    }
}

impl MachineSetReconciler {
    async fn execute(
        &self,
        snapshot: &Snapshot,
        steps: Vec<Step<Action>>,
        turn: &ReconcileRun<'_, Self>,
    ) -> Result<SlowStart, ObjectWriteError> {
        let seen = &snapshot.set.metadata;
        if steps.iter().any(|step| step.action.adopts(seen.uid.as_deref())) && !self.sets.is_alive(seen).await? {
            return Ok(turn.session.wave);
        }
        if replaces_young(snapshot, &steps) {
            turn.remember(|memory| memory.replacements.add());
        }
        let batch = SetPlanExecution::announce(self, &snapshot.set, &steps, turn);
        let mut creates = Vec::new();
        let mut deletes = Vec::new();
        for step in steps {
            match step.action {
                Action::CreateMachine(machine) => creates.push((*machine, step.event)),
                Action::DeleteMachine(machine) => deletes.push((machine, step.event)),
                Action::TryMachine(machine) => batch.try_one(&machine, step.event).await?,
                Action::PatchSet(patch) => drop(turn.patch(&self.sets, seen, &patch).await?),
                Action::PatchMachine { machine, patch } => {
                    turn.patch(&self.machines, &machine.metadata, &patch).await?;
                }
                Action::WriteStatus(status) => {
                    let patch = patch::status(&snapshot.set.status, &Some(*status));
                    self.sets.patch_status(seen, &patch).await?;
                    turn.status_written();
                    let events = self.events.with_component(COMPONENT);
                    step.event.iter().for_each(|event| events.record(&*snapshot.set, event));
                }
            }
        }
        let wave = batch.create_by_slow_start(creates, turn.session.wave).await?;
        all_of(stream::iter(deletes).map(|(machine, event)| batch.delete(machine, event))).await?;
        Ok(wave)
    }
}

/// The first failure, after all writes in flight have ended: a request that is cancelled may still be executed
/// unnoticed.
async fn all_of(
    writes: impl Stream<Item = impl Future<Output = Result<(), ObjectWriteError>>>,
) -> Result<(), ObjectWriteError> {
    let results: Vec<_> = writes.buffer_unordered(WRITES_IN_FLIGHT).collect().await;
    results.into_iter().collect()
}

impl<'a> SetPlanExecution<'a> {
    /// Records before the first call which Machines will be created and deleted, so that the deployment counts them. If
    /// the deployment changed the set before that, [`Batch::is_current`] notices.
    fn announce(
        kind: &'a MachineSetReconciler,
        seen: &'a MachineSet,
        steps: &[Step<Action>],
        turn: &'a ReconcileRun<'a, MachineSetReconciler>,
    ) -> Self {
        let mut writes = SetWritesInFlight::default();
        for step in steps {
            match &step.action {
                Action::CreateMachine(machine) => drop(writes.creates.insert(machine.name_any())),
                Action::DeleteMachine(machine) => drop(writes.deletes.insert(machine.name_any())),
                _ => {}
            }
        }
        let open = Mutex::new(writes.creates.union(&writes.deletes).cloned().collect());
        kind.in_flight.announce(seen, writes);
        let (has_failed, has_strayed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { kind, turn, seen, open, has_failed, has_strayed }
    }

    /// True while this process leads, and spec, labels and deletion timestamp of the set are those of the plan. A long batch
    /// stops otherwise.
    fn is_current(&self) -> bool {
        fence::may_act()
            && self.kind.sets.cache.get(self.turn.key).is_some_and(|set| {
                let (now, seen) = (&set.metadata, &self.seen.metadata);
                now.uid == seen.uid
                    && now.generation == seen.generation
                    && now.deletion_timestamp == seen.deletion_timestamp
                    && now.labels == seen.labels
            })
    }

    /// One, two, four, … at a time, so that a rejected create fails fast. Returns how many the next plan begins with.
    async fn create_by_slow_start(
        &self,
        machines: Vec<(Machine, Option<Event>)>,
        mut wave: SlowStart,
    ) -> Result<SlowStart, ObjectWriteError> {
        let mut rest = machines.into_iter();
        while rest.len() > 0 && !self.has_strayed.load(Ordering::Relaxed) {
            let next: Vec<_> = rest.by_ref().take(wave.size).collect();
            all_of(stream::iter(next).map(|(machine, event)| self.create(machine, event))).await?;
            wave.double();
        }
        Ok(if self.has_strayed.load(Ordering::Relaxed) { SlowStart::default() } else { wave })
    }

    async fn create(&self, machine: Machine, event: Option<Event>) -> Result<(), ObjectWriteError> {
        if self.has_failed.load(Ordering::Relaxed) || !self.is_current() {
            return Ok(());
        }
        let answer = self.kind.machines.create(&machine).await;
        let is_own = answer.as_ref().is_ok_and(|stored| self.is_own(&machine, stored));
        let event = event.filter(|_| is_own);
        let answer = answer.map(|created| self.kind.recent.add(&created));
        self.finish(&machine.name_any(), answer, event, creation_failed)
    }

    /// A created Machine belongs to the set as it was stored. Remembers both, for the next plan.
    fn is_own(&self, sent: &Machine, stored: &Machine) -> bool {
        let (difference, now) = (self.difference(sent, stored), self.kind.clock.now());
        let is_own = difference.is_none();
        self.turn.remember(|memory| match difference {
            None => memory.strays.created(&stored.metadata, now),
            Some(difference) => memory.strays.altered(&stored.metadata, difference, now),
        });
        self.has_strayed.fetch_or(!is_own, Ordering::Relaxed);
        is_own
    }

    /// Sends a Machine to the API server as a dry run, and remembers how it would be stored.
    async fn try_one(&self, machine: &Machine, event: Option<Event>) -> Result<(), ObjectWriteError> {
        match self.kind.machines.try_create(machine).await {
            Ok(stored) => {
                let (difference, now) = (self.difference(machine, &stored), self.kind.clock.now());
                self.turn.remember(|memory| memory.strays.tried(difference, now));
                Ok(())
            }
            Err(error) if error.failure() == WriteFailure::Refused => {
                self.turn.remember(|memory| memory.strays.trial_refused());
                Ok(())
            }
            Err(error) => self.finish(&machine.name_any(), Err(error), event, creation_failed),
        }
    }

    fn difference(&self, sent: &Machine, stored: &Machine) -> Option<String> {
        let uid = self.seen.metadata.uid.as_deref().unwrap_or_default();
        let selector = Selector::parse(self.seen.spec.selector.as_ref()).ok()?;
        strays::difference(&sent.metadata, &stored.metadata, uid, &selector)
    }

    async fn delete(&self, machine: Arc<Machine>, event: Option<Event>) -> Result<(), ObjectWriteError> {
        if self.has_failed.load(Ordering::Relaxed) || !self.is_current() {
            return Ok(());
        }
        let name = machine.name_any();
        let machines = &self.kind.machines;
        let answer = machines.delete_unchanged(&machine.metadata).await;
        if answer.is_ok() && is_replaced_for_health(&machine) {
            self.kind.measured.stale_deleted();
        }
        self.finish(&name, answer, event, |error| {
            (EventReason::FailedDelete, format!("Error deleting machine {name}: {error}"))
        })
    }

    fn finish(
        &self,
        machine: &str,
        answer: Result<(), ObjectWriteError>,
        event: Option<Event>,
        failed: impl Fn(&str) -> (EventReason, String),
    ) -> Result<(), ObjectWriteError> {
        let is_unresolved = answer.as_ref().is_err_and(|error| error.failure() == WriteFailure::Unknown);
        self.open.lock().remove(machine);
        if !is_unresolved {
            self.kind.in_flight.settle(self.seen, machine);
        }
        let events = self.kind.events.with_component(COMPONENT);
        match self.turn.track(answer) {
            Ok(()) => event.iter().for_each(|event| events.record(self.seen, event)),
            // The object has changed: the next plan decides again.
            Err(error) if error.failure() == WriteFailure::Conflict => return Err(error),
            Err(error) => {
                self.has_failed.store(true, Ordering::Relaxed);
                self.remember(&error);
                let (reason, text) = failed(&error.text());
                events.record(self.seen, &Event::warning(reason, text));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stores a failed create or delete for the condition ReplicaFailure.
    fn remember(&self, error: &ObjectWriteError) {
        let failure = ReplicaWriteFailure { message: error.text() };
        self.turn.remember(|memory| memory.failure = Some(failure));
    }
}

fn creation_failed(error: &str) -> (EventReason, String) {
    (EventReason::FailedCreate, format!("Error creating machine: {error}"))
}

/// Announced writes that were not sent are no longer in flight, even if the reconcile is aborted.
impl Drop for SetPlanExecution<'_> {
    fn drop(&mut self) {
        for machine in std::mem::take(&mut *self.open.lock()) {
            self.kind.in_flight.settle(self.seen, &machine);
        }
    }
}

/// Machines are replaced that failed soon after their creation.
fn replaces_young(snapshot: &Snapshot, steps: &[Step<Action>]) -> bool {
    let young = &snapshot.young_failures.ages;
    let is_young = |machine: &Machine| machine.metadata.uid.as_ref().is_some_and(|uid| young.contains_key(uid));
    steps.iter().any(|step| matches!(&step.action, Action::DeleteMachine(machine) if is_young(machine)))
}

/// The Machine failed because its health timeout passed.
fn is_replaced_for_health(machine: &Machine) -> bool {
    let operation = machine.status.as_ref().and_then(|status| status.last_operation.type_.as_ref());
    machine.phase() == MachinePhase::Failed && operation == Some(&OperationType::HealthCheck)
}

/// In-memory facts about a set that are kept between reconciles.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The last create or delete failed.
    pub(super) failure: Option<ReplicaWriteFailure>,
    /// The replacements of Machines that failed soon after their creation.
    pub(super) replacements: ReplacementCount,
    /// The Machines that it created.
    pub(super) strays: StrayMemory,
}
