//! The reconcile loop: resolve writes of unknown outcome, then observe, plan and apply until no steps are left. It also
//! contains what every kind needs around that: status pacing, unresolved writes, memory, requeue.

use std::{
    collections::HashMap,
    fmt::{Debug, Display},
    future::Future,
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    cache::Key,
    objects::{WriteError, WriteFailure},
    queue::Queue,
    worker::{Handler, ReconcileError, Requeue},
};
use crate::plan::{Plan, Step, Wait, WaitKind};

/// How one kind is reconciled.
pub(crate) trait Reconciler: Send + Sync + Sized + 'static {
    /// Key of an object.
    type Key: Clone + Eq + Hash + Debug + Display + Send + Sync + 'static;
    /// The input of a plan.
    type Snapshot: Send + Sync;
    /// One operation of a plan.
    type Action: Display + Send;
    /// In-memory facts that earlier reconciles of an object leave for later plans. Losing them costs a repeated call.
    type Memory: Clone + Default + Send + 'static;
    /// State of the running reconcile: results of calls, and what it holds until it ends.
    type Session: Default + Send;

    /// Reads the caches; `None` if the object does not exist or is unreadable.
    fn observe(&self, key: &Self::Key, memory: &Self::Memory, session: &Self::Session) -> Option<Self::Snapshot>;

    /// Whether the object exists and cannot be decoded. Its memory is kept until it can.
    fn is_unreadable(&self, key: &Self::Key) -> bool {
        let _ = key;
        false
    }

    /// Returns the next steps and waits.
    fn plan(&self, snapshot: &Self::Snapshot) -> Plan<Self::Action>;

    /// The bound that a plan would break, computed without the planner's arithmetic.
    fn lint(&self, snapshot: &Self::Snapshot, plan: &Plan<Self::Action>) -> Option<String> {
        let _ = (snapshot, plan);
        None
    }

    /// Executes the steps of a plan in order. Makes no decisions.
    fn apply(
        &self,
        snapshot: Self::Snapshot,
        steps: Vec<Step<Self::Action>>,
        turn: &mut Turn<'_, Self>,
    ) -> impl Future<Output = Result<Next, ReconcileError>> + Send;

    /// Resolves a write whose response was lost, by a live read of its object.
    fn resolve(
        &self,
        key: &Self::Key,
        write: &UnresolvedWrite,
    ) -> impl Future<Output = Result<(), ReconcileError>> + Send {
        let _ = (key, write);
        std::future::ready(Ok(()))
    }

    /// Whether an action writes the status. A plan with nothing else may be delayed, to save writes.
    fn is_status(action: &Self::Action) -> bool {
        let _ = action;
        false
    }

    /// Called when a plan has no steps left: clears facts in the memory that are out of date. True if it has to be
    /// planned again.
    fn settle(memory: &mut Self::Memory) -> bool {
        let _ = memory;
        false
    }
}

/// How the loop continues after a plan was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Plan again.
    Plan,
    /// End this reconcile.
    Requeue(Requeue),
}

/// A write of unknown outcome. Nothing is planned for the object that made it until a live read resolves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnresolvedWrite {
    /// Kind of the object that was written.
    pub kind: String,
    /// Its key.
    pub key: Key,
}

/// Rounds of one reconcile. After more of them, others get their turn.
const ROUNDS: usize = 32;
/// How often the same step comes in as many rounds of a plan that does not converge. In a large rollout there is something else to
/// do in each round.
const REPETITIONS: usize = 4;
/// Minimum time between two status writes of one object, unless there are other steps.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
/// Requeue period of an object that waits for others to become readable.
const DECODE_AGAIN: Duration = Duration::from_secs(5);

/// Reconciles objects of one kind with the loop.
pub(crate) struct Loop<R: Reconciler> {
    /// The kind.
    pub reconciler: R,
    queue: Arc<Queue<R::Key>>,
    states: Arc<States<R>>,
}

/// State of each object between reconciles.
pub(crate) struct States<R: Reconciler>(Mutex<HashMap<R::Key, State<R>>>);

struct State<R: Reconciler> {
    memory: R::Memory,
    unresolved: Vec<UnresolvedWrite>,
    status_written_at: Option<Instant>,
}

impl<R: Reconciler> Default for State<R> {
    fn default() -> Self {
        Self { memory: R::Memory::default(), unresolved: Vec::new(), status_written_at: None }
    }
}

impl<R: Reconciler> Default for States<R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<R: Reconciler> States<R> {
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

    fn with<T>(&self, key: &R::Key, read: impl FnOnce(&mut State<R>) -> T) -> T {
        read(self.0.lock().entry(key.clone()).or_default())
    }
}

/// The running reconcile.
pub(crate) struct Turn<'a, R: Reconciler> {
    /// Key of the object.
    pub key: &'a R::Key,
    /// State of this reconcile.
    pub session: R::Session,
    states: &'a States<R>,
}

impl<R: Reconciler> Turn<'_, R> {
    /// Changes the memory of the object.
    pub fn remember(&self, change: impl FnOnce(&mut R::Memory)) {
        self.states.with(self.key, |state| change(&mut state.memory));
    }

    /// Records a failed write whose outcome is unknown.
    pub fn track<T>(&self, answer: Result<T, WriteError>) -> Result<T, WriteError> {
        answer.inspect_err(|error| {
            if error.failure() == WriteFailure::Unknown {
                let write = UnresolvedWrite { kind: error.kind().to_owned(), key: error.key().clone() };
                self.states.with(self.key, |state| state.unresolved.push(write));
            }
        })
    }

    /// The status was written.
    pub fn status_written(&self) {
        self.states.with(self.key, |state| state.status_written_at = Some(Instant::now()));
    }
}

impl<R: Reconciler> Loop<R> {
    /// The loop for the keys of a queue.
    pub fn new(reconciler: R, queue: Arc<Queue<R::Key>>, states: Arc<States<R>>) -> Self {
        Self { reconciler, queue, states }
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
        let memory = self.states.with(key, |state| state.memory.clone());
        self.reconciler.observe(key, &memory, session)
    }

    /// How long the next status write has to wait; `None` if it may be written now.
    fn hold_status(&self, key: &R::Key) -> Option<Duration> {
        let written_at = self.states.with(key, |state| state.status_written_at)?;
        STATUS_INTERVAL.checked_sub(written_at.elapsed()).filter(|left| !left.is_zero())
    }
}

/// When to requeue. No watch handler enqueues the objects that wait for an unreadable one, so they are polled.
fn requeue_of<A>(plan: &Plan<A>) -> Requeue {
    let is_blocked = plan.waits.iter().any(|wait| wait.kind == WaitKind::Unreadable);
    if is_blocked { Requeue::After(DECODE_AGAIN) } else { plan.requeue_at().into() }
}

impl<R: Reconciler> Handler for Loop<R> {
    type Key = R::Key;

    async fn handle(&self, key: &R::Key) -> Result<Requeue, ReconcileError> {
        self.resolve_writes(key).await?;
        let controller = self.queue.name();
        let mut turn = Turn { key, session: R::Session::default(), states: &self.states };
        let mut done: HashMap<String, usize> = HashMap::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let Some(snapshot) = self.observe(key, &turn.session) else {
                if !self.reconciler.is_unreadable(key) {
                    self.states.forget(key);
                }
                return Ok(Requeue::OnChange);
            };
            let plan = self.reconciler.plan(&snapshot);
            let violation = self.reconciler.lint(&snapshot, &plan);
            // Of the last round only: those before it led to writes, which take longer than their plans.
            self.queue.charge(key, begun.elapsed());
            let Some(step) = plan.steps.last() else {
                if self.states.with(key, |state| R::settle(&mut state.memory)) {
                    continue;
                }
                for wait in &plan.waits {
                    let Wait { kind, text, until } = wait;
                    tracing::debug!(controller, object = %key, ?kind, ?until, "waiting for {text}");
                }
                return Ok(requeue_of(&plan));
            };
            if plan.steps.iter().all(|step| R::is_status(&step.action))
                && let Some(left) = self.hold_status(key)
            {
                return Ok(Requeue::After(left));
            }
            if let Some(violation) = violation {
                for step in &plan.steps {
                    tracing::info!(controller, object = %key, action = %step.action, reason = %step.reason, "refused step");
                }
                return Err(ReconcileError::Refused { key: key.to_string(), violation });
            }
            *done.entry(format!("{}: {}", step.action, step.reason)).or_default() += 1;
            for step in &plan.steps {
                tracing::debug!(controller, object = %key, action = %step.action, reason = %step.reason, "step");
            }
            if let Next::Requeue(requeue) = self.reconciler.apply(snapshot, plan.steps, &mut turn).await? {
                return Ok(requeue);
            }
        }
        match done.into_iter().max_by_key(|(_, count)| *count).filter(|(_, count)| *count >= REPETITIONS) {
            Some((step, _)) => Err(ReconcileError::Restless { key: key.to_string(), step }),
            None => Ok(Requeue::After(Duration::ZERO)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::queue::Pacing;

    /// Creates two objects, and both answers are lost.
    #[derive(Default)]
    struct TwoLostAnswers {
        resolved: Mutex<Vec<String>>,
        is_planned: Mutex<bool>,
    }

    impl Reconciler for Arc<TwoLostAnswers> {
        type Key = Key;
        type Snapshot = ();
        type Action = &'static str;
        type Memory = ();
        type Session = ();

        fn observe(&self, _: &Key, (): &(), (): &()) -> Option<()> {
            Some(())
        }

        fn plan(&self, (): &()) -> Plan<&'static str> {
            let mut plan = Plan::default();
            if !std::mem::replace(&mut *self.is_planned.lock(), true) {
                plan.then("a", "it is missing").then("b", "it is missing");
            }
            plan
        }

        async fn apply(
            &self,
            (): (),
            steps: Vec<Step<&'static str>>,
            turn: &mut Turn<'_, Self>,
        ) -> Result<Next, ReconcileError> {
            for name in steps.into_iter().map(|step| step.action) {
                let lost = std::io::Error::other("connection reset by peer");
                let error =
                    WriteError::new("create", "Machine", Key::new("ns", name), kube::Error::Service(lost.into()));
                let _ = turn.track::<()>(Err(error));
            }
            Ok(Next::Requeue(Requeue::OnChange))
        }

        async fn resolve(&self, _: &Key, write: &UnresolvedWrite) -> Result<(), ReconcileError> {
            self.resolved.lock().push(write.key.name.clone());
            Ok(())
        }
    }

    #[tokio::test]
    async fn every_write_of_unknown_outcome_is_resolved_once() {
        let reconciler = Arc::new(TwoLostAnswers::default());
        let queue = Queue::new("test", Pacing::default());
        let it = Loop::new(Arc::clone(&reconciler), queue, Arc::default());
        for _ in 0..3 {
            it.handle(&Key::new("ns", "set")).await.unwrap();
        }
        assert_eq!(*reconciler.resolved.lock(), ["a", "b"]);
    }

    /// Always has something to do: the same, or something else.
    struct Busy {
        same: bool,
        rounds: Mutex<usize>,
    }

    impl Reconciler for Arc<Busy> {
        type Key = Key;
        type Snapshot = usize;
        type Action = &'static str;
        type Memory = ();
        type Session = ();

        fn observe(&self, _: &Key, (): &(), (): &()) -> Option<usize> {
            Some(*self.rounds.lock())
        }

        fn plan(&self, round: &usize) -> Plan<&'static str> {
            let mut plan = Plan::default();
            let number = if self.same { round % 2 } else { *round };
            plan.then("scale", format!("{number} machines became available"));
            plan
        }

        async fn apply(
            &self,
            round: usize,
            _: Vec<Step<&'static str>>,
            _: &mut Turn<'_, Self>,
        ) -> Result<Next, ReconcileError> {
            *self.rounds.lock() = round + 1;
            Ok(Next::Plan)
        }
    }

    #[tokio::test]
    async fn a_plan_that_does_not_converge_is_a_bug_and_one_that_the_world_keeps_busy_is_not() {
        for same in [true, false] {
            let busy = Arc::new(Busy { same, rounds: Mutex::default() });
            let it = Loop::new(Arc::clone(&busy), Queue::new("test", Pacing::default()), Arc::default());
            let outcome = it.handle(&Key::new("ns", "set")).await;
            assert_eq!(*busy.rounds.lock(), ROUNDS);
            match outcome {
                Err(ReconcileError::Restless { step, .. }) => assert!(same && step.starts_with("scale: "), "{step}"),
                outcome => assert_eq!((outcome.unwrap(), same), (Requeue::After(Duration::ZERO), false)),
            }
        }
    }

    /// Cannot be observed.
    struct Unseen {
        is_unreadable: bool,
    }

    impl Reconciler for Unseen {
        type Key = Key;
        type Snapshot = ();
        type Action = &'static str;
        type Memory = bool;
        type Session = ();

        fn observe(&self, _: &Key, _: &bool, (): &()) -> Option<()> {
            None
        }

        fn is_unreadable(&self, _: &Key) -> bool {
            self.is_unreadable
        }

        fn plan(&self, (): &()) -> Plan<&'static str> {
            Plan::default()
        }

        async fn apply(
            &self,
            (): (),
            _: Vec<Step<&'static str>>,
            _: &mut Turn<'_, Self>,
        ) -> Result<Next, ReconcileError> {
            Ok(Next::Plan)
        }
    }

    #[tokio::test]
    async fn what_is_remembered_of_an_object_goes_with_it_and_stays_while_it_is_unreadable() {
        for is_unreadable in [true, false] {
            let (states, key) = (Arc::<States<_>>::default(), Key::new("ns", "set"));
            states.update(&key, |memory| *memory = true);
            let it = Loop::new(Unseen { is_unreadable }, Queue::new("test", Pacing::default()), Arc::clone(&states));
            assert_eq!(it.handle(&key).await.unwrap(), Requeue::OnChange);
            let mut is_remembered = false;
            states.update_if_known(&key, |memory| is_remembered = *memory);
            assert_eq!(is_remembered, is_unreadable);
        }
    }

    /// Its status is out of date whenever it is looked at, which takes a while.
    #[derive(Default)]
    struct Counting {
        written: Mutex<usize>,
    }

    impl Reconciler for Arc<Counting> {
        type Key = Key;
        type Snapshot = ();
        type Action = &'static str;
        type Memory = ();
        type Session = ();

        fn observe(&self, _: &Key, (): &(), (): &()) -> Option<()> {
            Some(())
        }

        fn plan(&self, (): &()) -> Plan<&'static str> {
            std::thread::sleep(Duration::from_millis(20));
            let mut plan = Plan::default();
            plan.then("write the status", "a number changed");
            plan
        }

        async fn apply(
            &self,
            (): (),
            _: Vec<Step<&'static str>>,
            turn: &mut Turn<'_, Self>,
        ) -> Result<Next, ReconcileError> {
            *self.written.lock() += 1;
            turn.status_written();
            Ok(Next::Requeue(Requeue::OnChange))
        }

        fn is_status(_: &&'static str) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn a_status_is_written_a_few_times_a_second_and_expensive_plans_have_pauses() {
        let (counting, key) = (Arc::new(Counting::default()), Key::new("ns", "set"));
        let queue = Queue::new("test", Pacing { gather: Duration::ZERO, per_cost: 100 });
        let it = Loop::new(Arc::clone(&counting), Arc::clone(&queue), Arc::default());
        queue.add(key.clone());
        queue.take().await;
        assert_eq!(it.handle(&key).await.unwrap(), Requeue::OnChange);
        let again = it.handle(&key).await.unwrap();
        assert!(matches!(again, Requeue::After(left) if left <= STATUS_INTERVAL), "{again:?}");
        assert_eq!(*counting.written.lock(), 1);
        queue.add(key.clone());
        queue.done(&key, None);
        let next = tokio::time::timeout(Duration::from_millis(500), queue.take()).await;
        assert!(next.is_err(), "a hundred times the cost of the last plan");
    }

    /// Creates something after a long look. Then there is nothing left to do, which shows at once.
    #[derive(Default)]
    struct Thorough {
        is_done: Mutex<bool>,
    }

    impl Reconciler for Arc<Thorough> {
        type Key = Key;
        type Snapshot = bool;
        type Action = &'static str;
        type Memory = ();
        type Session = ();

        fn observe(&self, _: &Key, (): &(), (): &()) -> Option<bool> {
            Some(*self.is_done.lock())
        }

        fn plan(&self, is_done: &bool) -> Plan<&'static str> {
            let mut plan = Plan::default();
            if !is_done {
                std::thread::sleep(Duration::from_millis(100));
                plan.then("create", "it is missing");
            }
            plan
        }

        async fn apply(
            &self,
            _: bool,
            _: Vec<Step<&'static str>>,
            _: &mut Turn<'_, Self>,
        ) -> Result<Next, ReconcileError> {
            *self.is_done.lock() = true;
            Ok(Next::Plan)
        }
    }

    #[tokio::test]
    async fn a_plan_that_led_to_writes_has_no_pause() {
        let key = Key::new("ns", "set");
        let queue = Queue::new("test", Pacing { gather: Duration::ZERO, per_cost: 10 });
        let it = Loop::new(Arc::new(Thorough::default()), Arc::clone(&queue), Arc::default());
        queue.add(key.clone());
        queue.take().await;
        assert_eq!(it.handle(&key).await.unwrap(), Requeue::OnChange);
        queue.add(key.clone());
        queue.done(&key, None);
        let next = tokio::time::timeout(Duration::from_millis(900), queue.take()).await;
        assert!(next.is_ok(), "not ten times the cost of the first plan");
    }

    /// Has something to do only when its failure is forgotten.
    #[derive(Default)]
    struct Failed {
        applied: Mutex<Vec<String>>,
    }

    impl Reconciler for Arc<Failed> {
        type Key = Key;
        type Snapshot = bool;
        type Action = &'static str;
        type Memory = bool;
        type Session = ();

        fn observe(&self, _: &Key, has_failed: &bool, (): &()) -> Option<bool> {
            Some(*has_failed)
        }

        fn plan(&self, has_failed: &bool) -> Plan<&'static str> {
            let mut plan = Plan::default();
            if !has_failed {
                plan.then("write the status", "it still shows the failure");
            }
            plan
        }

        async fn apply(
            &self,
            _: bool,
            steps: Vec<Step<&'static str>>,
            _: &mut Turn<'_, Self>,
        ) -> Result<Next, ReconcileError> {
            self.applied.lock().extend(steps.into_iter().map(|step| step.reason));
            Ok(Next::Requeue(Requeue::OnChange))
        }

        fn settle(has_failed: &mut bool) -> bool {
            std::mem::take(has_failed)
        }
    }

    #[tokio::test]
    async fn what_is_forgotten_when_nothing_is_left_to_do_is_planned_for_at_once() {
        let (reconciler, states, key) =
            (Arc::new(Failed::default()), Arc::<States<_>>::default(), Key::new("ns", "set"));
        states.update(&key, |has_failed| *has_failed = true);
        let queue = Queue::new("test", Pacing::default());
        let it = Loop::new(Arc::clone(&reconciler), queue, states);
        it.handle(&key).await.unwrap();
        assert_eq!(*reconciler.applied.lock(), ["it still shows the failure"]);
    }
}
