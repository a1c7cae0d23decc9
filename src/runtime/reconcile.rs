//! The reconcile loop: resolve writes of unknown outcome, then observe, plan and apply until no steps are left. It also
//! contains the common part of all kinds: status pacing, unresolved writes, memory, requeue.

use std::{
    collections::HashMap,
    fmt::{Debug, Display},
    future::Future,
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    cache::{CacheableKind, Key},
    clock::TimeSource,
    engaged::{NamespaceGate, ParkedKeys},
    explain::{FinalPlan, LastPlan},
    fence,
    objects::{CachedApi, ObjectWriteError, WriteFailure},
    queue::WorkQueue,
    worker::{KeyReconciler, ReconcileError, RequeueTime},
};
use mcm_api::patch;
use mcm_rules::plan::{Plan, PlanInput, Step, Wait, WaitKind, WriteLog};

/// Reads the input of plans. Implemented in `observe.rs`.
pub trait SnapshotReader: Send + Sync + Sized + 'static {
    /// Key of an object.
    type Key: Clone + Eq + Hash + Debug + Display + Send + Sync + 'static;
    /// The input of a plan. It decides.
    type Snapshot: PlanInput;
    /// In-memory facts that earlier reconciles of an object leave for later plans. Losing them costs a repeated call.
    type Memory: Clone + Default + Send + 'static;
    /// State of the running reconcile: results of calls, and guards that are released when it ends.
    type Session: Default + Send;

    /// State with which a reconcile begins. It is dropped when the reconcile ends, however that ends.
    fn begin(&self, key: &Self::Key) -> Self::Session {
        let _ = key;
        Self::Session::default()
    }

    /// Reads the caches; `None` if the object does not exist or is unreadable.
    fn observe(&self, key: &Self::Key, memory: &Self::Memory, session: &Self::Session) -> Option<Self::Snapshot>;

    /// The namespaces of the control cluster in which the reconcile of a key acts. None if it writes nothing there.
    fn namespaces(&self, key: &Self::Key) -> Vec<String> {
        let _ = key;
        Vec::new()
    }

    /// False if a key in the queue is that of an object that does not exist any more.
    fn exists(&self, key: &Self::Key) -> bool {
        let _ = key;
        true
    }

    /// The object exists and cannot be decoded. Its memory is kept until it can.
    fn is_unreadable(&self, key: &Self::Key) -> bool {
        let _ = key;
        false
    }
}

/// An action of the plans of a kind.
pub(crate) type ActionOf<R> = <<R as SnapshotReader>::Snapshot as PlanInput>::Action;

/// Executes plans. Implemented in `apply.rs`.
pub trait PlanExecutor: SnapshotReader {
    /// Executes the steps of a plan in order. Makes no decisions.
    fn apply(
        &self,
        snapshot: Self::Snapshot,
        steps: Vec<Step<ActionOf<Self>>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> impl Future<Output = Result<LoopContinuation, ReconcileError>> + Send;

    /// Resolves a write whose response was lost, by a live read of its object.
    fn resolve(
        &self,
        key: &Self::Key,
        write: &UnresolvedWrite,
    ) -> impl Future<Output = Result<(), ReconcileError>> + Send {
        let _ = (key, write);
        std::future::ready(Ok(()))
    }

    /// Called when a plan has no steps left: clears facts in the memory that are out of date. True if it has to be
    /// planned again.
    fn settle(memory: &mut Self::Memory) -> bool {
        let _ = memory;
        false
    }
}

/// A kind that observes and executes; its snapshots plan.
pub trait KindReconciler: PlanExecutor {}

impl<R: PlanExecutor> KindReconciler for R {}

/// How the loop continues after a plan was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopContinuation {
    /// Plan again.
    Plan,
    /// End this reconcile.
    Requeue(RequeueTime),
}

/// A write of unknown outcome. Nothing is planned for the object that made it until a live read resolves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedWrite {
    /// Kind of the object that was written.
    pub kind: String,
    /// Its key.
    pub key: Key,
}

/// Most rounds of one reconcile. After them, other keys have their turn.
const ROUNDS: usize = 32;
/// The number of rounds in which the same step appears when a plan does not converge. In a large rollout each round has
/// other steps.
const REPETITIONS: usize = 4;
/// Minimum time between two status writes of one object, unless there are other steps.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
/// Requeue period of an object whose role has lost its Lease, until its workers have ended.
const NO_LONGER_LEADER: Duration = Duration::from_secs(1);
/// Requeue period of an object that waits for others to become readable.
const DECODE_AGAIN: Duration = Duration::from_secs(5);

/// Reconciles objects of one kind with the loop.
pub struct ReconcileLoop<R: KindReconciler> {
    /// The kind.
    pub reconciler: Arc<R>,
    queue: Arc<WorkQueue<R::Key>>,
    states: Arc<ObjectStateMap<R>>,
    clock: Arc<dyn TimeSource>,
    parked: ParkedKeys<R::Key>,
}

/// State of each object between reconciles.
///
/// Boxed: a map has room for up to twice as many entries as it has.
pub struct ObjectStateMap<R: SnapshotReader>(Mutex<HashMap<R::Key, Box<ObjectState<R>>>>);

struct ObjectState<R: SnapshotReader> {
    memory: R::Memory,
    unresolved: Vec<UnresolvedWrite>,
    writes: WriteLog,
    status_written_at: Option<Instant>,
    last_plan: Option<LastPlan>,
}

impl<R: SnapshotReader> Default for ObjectState<R> {
    fn default() -> Self {
        Self {
            memory: R::Memory::default(),
            unresolved: Vec::new(),
            writes: WriteLog::default(),
            status_written_at: None,
            last_plan: None,
        }
    }
}

impl<R: SnapshotReader> Default for ObjectStateMap<R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<R: SnapshotReader> ObjectStateMap<R> {
    /// Changes the memory of an object, if there is one; for watch handlers.
    pub fn update_if_known(&self, key: &R::Key, change: impl FnOnce(&mut R::Memory)) {
        if let Some(state) = self.0.lock().get_mut(key) {
            change(&mut state.memory);
        }
    }

    /// Changes the memory of an object; for watch handlers.
    pub fn update(&self, key: &R::Key, change: impl FnOnce(&mut R::Memory)) {
        self.with(key, |state| change(&mut state.memory));
    }

    /// Drops the state of all objects.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// Drops the state of a deleted object.
    pub fn forget(&self, key: &R::Key) {
        self.0.lock().remove(key);
    }

    /// The facts that earlier reconciles of an object left.
    pub fn memory(&self, key: &R::Key) -> R::Memory {
        self.0.lock().get(key).map(|state| state.memory.clone()).unwrap_or_default()
    }

    fn has_plan(&self, key: &R::Key) -> bool {
        self.0.lock().get(key).is_some_and(|state| state.last_plan.is_some())
    }

    /// Shows the last plan of each object. Nothing else may be done with the states meanwhile.
    pub(super) fn each_plan(&self, see: &mut dyn FnMut(&R::Key, &LastPlan)) {
        let states = self.0.lock();
        let plans = states.iter().filter_map(|(key, state)| Some((key, state.last_plan.as_ref()?)));
        plans.for_each(|(key, plan)| see(key, plan));
    }

    /// Changes the last plan of an object, unless the object was deleted meanwhile.
    fn planned(&self, key: &R::Key, now: Timestamp, change: impl FnOnce(&mut LastPlan)) {
        if let Some(state) = self.0.lock().get_mut(key) {
            change(state.last_plan.get_or_insert_with(|| LastPlan::new(now)));
        }
    }

    fn with<T>(&self, key: &R::Key, read: impl FnOnce(&mut ObjectState<R>) -> T) -> T {
        read(self.0.lock().entry(key.clone()).or_default())
    }
}

/// The running reconcile.
pub struct ReconcileRun<'a, R: SnapshotReader> {
    /// Key of the object.
    pub key: &'a R::Key,
    /// State of this reconcile.
    pub session: R::Session,
    states: &'a ObjectStateMap<R>,
    clock: &'a dyn TimeSource,
}

impl<R: SnapshotReader> ReconcileRun<'_, R> {
    /// Changes the memory of the object.
    pub fn remember(&self, change: impl FnOnce(&mut R::Memory)) {
        self.states.with(self.key, |state| change(&mut state.memory));
    }

    /// Records a failed write whose outcome is unknown.
    pub fn track<T>(&self, answer: Result<T, ObjectWriteError>) -> Result<T, ObjectWriteError> {
        answer.inspect_err(|error| {
            if error.failure() == WriteFailure::Unknown {
                let write = UnresolvedWrite { kind: error.kind().to_owned(), key: error.key().clone() };
                self.states.with(self.key, |state| state.unresolved.push(write));
            }
        })
    }

    /// Sends a merge patch as [`Objects::patch`] does. The loop compares it with the answer, and holds it back if it is undone.
    pub async fn patch<K: CacheableKind + Serialize>(
        &self,
        objects: &CachedApi<K>,
        seen: &ObjectMeta,
        patch: &Value,
    ) -> Result<Arc<K>, ObjectWriteError> {
        let answer = objects.patch(seen, patch).await?;
        self.compare(seen, patch, &*answer);
        Ok(answer)
    }

    /// Sends a merge patch of metadata as [`Objects::patch_any`] does, also of an object that cannot be decoded. The loop compares
    /// it with the answer.
    pub async fn patch_any<K: CacheableKind + Serialize>(
        &self,
        objects: &CachedApi<K>,
        seen: &ObjectMeta,
        patch: &Value,
    ) -> Result<(), ObjectWriteError> {
        let metadata = objects.patch_any(seen, patch).await?;
        self.compare(seen, patch, &json!({ "metadata": metadata }));
        Ok(())
    }

    fn compare(&self, seen: &ObjectMeta, patch: &Value, stored: &impl Serialize) {
        let (stored, now) = (serde_json::to_value(stored).unwrap_or_default(), self.clock.now());
        let uid = seen.uid.as_deref().unwrap_or_default();
        self.states.with(self.key, |state| state.writes.accepted(uid, patch, &stored, now));
    }

    /// Creates an object. If another one has its name, reads that object, so that it is in the cache before the next plan.
    pub async fn create_or_read<K: CacheableKind + Serialize>(
        &self,
        objects: &CachedApi<K>,
        object: &K,
    ) -> Result<(), ReconcileError> {
        match self.track(objects.create(object).await) {
            Err(error) if error.failure() == WriteFailure::AlreadyExists => {
                let key = Key::from_meta(object.meta());
                let read = objects.read_again(&key).await;
                read.map(drop).map_err(|source| ReconcileError::read(format!("{} {key}", K::kind(&())), source))
            }
            answer => answer.map(drop).map_err(ReconcileError::from),
        }
    }

    /// Writes the fields of a status that changed.
    pub async fn write_status<K: CacheableKind + Serialize, S: Serialize>(
        &self,
        objects: &CachedApi<K>,
        seen: &ObjectMeta,
        stored: &S,
        next: &S,
    ) -> Result<(), ObjectWriteError> {
        self.track(objects.patch_status(seen, &patch::status(stored, next)).await)?;
        self.status_written();
        Ok(())
    }

    /// The status was written.
    pub fn status_written(&self) {
        self.states.with(self.key, |state| state.status_written_at = Some(Instant::now()));
    }
}

impl<R: KindReconciler> ReconcileLoop<R> {
    /// The loop for the keys of a queue.
    pub fn new(
        reconciler: Arc<R>,
        queue: Arc<WorkQueue<R::Key>>,
        states: Arc<ObjectStateMap<R>>,
        clock: Arc<dyn TimeSource>,
    ) -> Self {
        let parked = ParkedKeys::new(&Arc::default(), &queue);
        Self { reconciler, queue, states, clock, parked }
    }

    /// Reconciles only keys whose namespaces are admitted.
    #[must_use]
    pub(super) fn admitted_by(self, gate: &Arc<NamespaceGate>) -> Self {
        Self { parked: ParkedKeys::new(gate, &self.queue), ..self }
    }

    /// The object may not be reconciled now. What was learned of it is forgotten, as by a process that ends: others may act
    /// meanwhile. Writes of unknown outcome are kept.
    fn park(&self, key: &R::Key, obstacle: String) {
        tracing::debug!(controller = self.queue.name(), object = %key, "waiting for {obstacle}");
        if !self.reconciler.exists(key) {
            self.parked.forget(key);
            return self.states.forget(key);
        }
        if !self.states.has_plan(key) && self.observe(key, &self.reconciler.begin(key)).is_none() {
            return self.states.forget(key);
        }
        let now = self.clock.now();
        let waits = vec![Wait::new(WaitKind::Hold, obstacle, None)];
        self.states.with(key, |state| {
            state.memory = R::Memory::default();
            state.last_plan.get_or_insert_with(|| LastPlan::new(now)).end(FinalPlan { waits, step: None }, now);
        });
    }

    async fn resolve_writes(&self, key: &R::Key) -> Result<(), ReconcileError> {
        loop {
            let write = self.states.with(key, |state| state.unresolved.first().cloned());
            let Some(write) = write else { return Ok(()) };
            self.reconciler.resolve(key, &write).await?;
            self.states.with(key, |state| state.unresolved.retain(|other| *other != write));
        }
    }

    fn observe(&self, key: &R::Key, session: &R::Session) -> Option<R::Snapshot> {
        self.reconciler.observe(key, &self.states.memory(key), session)
    }

    /// How long the next status write has to wait; `None` if it may be written now.
    fn hold_status(&self, key: &R::Key) -> Option<Duration> {
        let written_at = self.states.with(key, |state| state.status_written_at)?;
        STATUS_INTERVAL.checked_sub(written_at.elapsed()).filter(|left| !left.is_zero())
    }
    /// Plans and applies until no steps are left. `ending` is the last plan.
    async fn reconcile(&self, key: &R::Key, ending: &mut Option<FinalPlan>) -> Result<RequeueTime, ReconcileError> {
        let mut turn =
            ReconcileRun { key, session: self.reconciler.begin(key), states: &self.states, clock: &*self.clock };
        self.resolve_writes(key).await?;
        let controller = self.queue.name();
        let mut done: HashMap<Arc<str>, usize> = HashMap::new();
        let mut due = None;
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let Some(snapshot) = self.observe(key, &turn.session) else {
                *ending = None;
                if self.reconciler.is_unreadable(key) {
                    self.states.with(key, |state| state.last_plan = None);
                } else {
                    self.states.forget(key);
                }
                return Ok(RequeueTime::OnChange);
            };
            let mut plan = snapshot.plan();
            let now = self.clock.now();
            let undone = self.states.with(key, |state| state.writes.hold_back(&snapshot, &mut plan, now));
            snapshot.show_undone(&mut plan, &undone);
            let violation = snapshot.lint(&plan);
            due = plan.requeue_at();
            // Of the last round only: those before it led to writes, which take longer than their plans.
            self.queue.charge(key, self.clock.cost_since(begun));
            let Some(step) = plan.steps.last() else {
                if self.states.with(key, |state| R::settle(&mut state.memory)) {
                    continue;
                }
                for wait in &plan.waits {
                    let Wait { kind, text, until, .. } = wait;
                    let until = until.as_ref().map(tracing::field::display);
                    tracing::debug!(controller, object = %key, ?kind, until, "waiting for {text}");
                }
                let requeue = requeue_of(&plan);
                *ending = Some(FinalPlan { waits: plan.waits, step: None });
                return Ok(requeue);
            };
            if plan.steps.iter().all(|step| R::Snapshot::is_status(&step.action))
                && let Some(left) = self.hold_status(key)
            {
                *ending = Some(FinalPlan { waits: plan.waits, step: None });
                return Ok(RequeueTime::After(left));
            }
            let last: Arc<str> = format!("{}: {}", step.action, step.reason).into();
            if let Some(violation) = violation {
                for step in &plan.steps {
                    tracing::info!(controller, object = %key, action = %step.action, reason = %step.reason, "refused step");
                }
                *ending = Some(FinalPlan { waits: plan.waits, step: Some(last) });
                return Err(ReconcileError::Refused { key: key.to_string(), violation });
            }
            *done.entry(Arc::clone(&last)).or_default() += 1;
            if !fence::may_act() {
                tracing::debug!(controller, object = %key, "not reconciled, because this process is no longer the leader");
                return Ok(RequeueTime::After(NO_LONGER_LEADER));
            }
            for step in &plan.steps {
                tracing::debug!(controller, object = %key, action = %step.action, reason = %step.reason, "step");
            }
            self.states.planned(key, now, |plan| plan.begin(&last, now));
            *ending = Some(FinalPlan { waits: plan.waits, step: Some(last) });
            if let LoopContinuation::Requeue(requeue) = self.reconciler.apply(snapshot, plan.steps, &mut turn).await? {
                return Ok(requeue);
            }
        }
        match done.into_iter().max_by_key(|(_, count)| *count).filter(|(_, count)| *count >= REPETITIONS) {
            Some((step, _)) => Err(ReconcileError::NotConverging { key: key.to_string(), step: step.to_string(), due }),
            None => Ok(RequeueTime::After(Duration::ZERO)),
        }
    }
}

/// When to requeue. No watch handler enqueues the objects that wait for an unreadable one, so they are polled.
fn requeue_of<A>(plan: &Plan<A>) -> RequeueTime {
    let is_blocked = plan.waits.iter().any(|wait| wait.kind == WaitKind::Unreadable);
    if is_blocked { RequeueTime::After(DECODE_AGAIN) } else { plan.requeue_at().into() }
}

impl<R: KindReconciler> KeyReconciler for ReconcileLoop<R> {
    type Key = R::Key;

    async fn handle(&self, key: &R::Key) -> Result<RequeueTime, ReconcileError> {
        let admitted = match self.parked.admit(key, || self.reconciler.namespaces(key)) {
            Ok(admitted) => admitted,
            Err(obstacle) => {
                self.park(key, obstacle);
                return Ok(RequeueTime::OnChange);
            }
        };
        let mut ending = None;
        let outcome = fence::within(admitted, self.reconcile(key, &mut ending)).await;
        if let Some(ending) = ending {
            let now = self.clock.now();
            self.states.planned(key, now, |plan| plan.end(ending, now));
        }
        outcome
    }

    fn forget(&self, key: &R::Key) {
        self.parked.forget(key);
    }
}

#[cfg(test)]
mod tests;
