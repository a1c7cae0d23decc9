use super::*;
use crate::{clock::SystemClock, queue::QueuePacing};

/// A snapshot with its plan.
struct Planned(Plan<&'static str>);

const WRITE_STATUS: &str = "write the status";

impl PlanInput for Planned {
    type Action = &'static str;

    fn plan(&self) -> Plan<&'static str> {
        self.0.clone()
    }

    fn is_status(action: &&'static str) -> bool {
        *action == WRITE_STATUS
    }
}

/// Creates two objects, and both responses are lost.
#[derive(Default)]
struct TwoLostAnswers {
    resolved: Mutex<Vec<String>>,
    is_planned: Mutex<bool>,
}

impl SnapshotReader for TwoLostAnswers {
    type Key = Key;
    type Snapshot = Planned;
    type Memory = ();
    type Session = ();

    fn observe(&self, _: &Key, (): &(), (): &()) -> Option<Planned> {
        let mut plan = Plan::default();
        if !std::mem::replace(&mut *self.is_planned.lock(), true) {
            plan.then("a", "it is missing").then("b", "it is missing");
        }
        Some(Planned(plan))
    }
}

impl PlanExecutor for TwoLostAnswers {
    async fn apply(
        &self,
        _: Planned,
        steps: Vec<Step<&'static str>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        for name in steps.into_iter().map(|step| step.action) {
            let lost = std::io::Error::other("connection reset by peer");
            let error =
                ObjectWriteError::new("create", "Machine", Key::new("ns", name), kube::Error::Service(lost.into()));
            let _ = turn.track::<()>(Err(error));
        }
        Ok(LoopContinuation::Requeue(RequeueTime::OnChange))
    }

    async fn resolve(&self, _: &Key, write: &UnresolvedWrite) -> Result<(), ReconcileError> {
        self.resolved.lock().push(write.key.name.clone());
        Ok(())
    }
}

#[tokio::test]
async fn every_write_of_unknown_outcome_is_resolved_once() {
    let reconciler = Arc::new(TwoLostAnswers::default());
    let queue = WorkQueue::new("test", QueuePacing::default());
    let it = ReconcileLoop::new(Arc::clone(&reconciler), queue, Arc::default(), Arc::new(SystemClock));
    for _ in 0..3 {
        it.handle(&Key::new("ns", "set")).await.unwrap();
    }
    assert_eq!(*reconciler.resolved.lock(), ["a", "b"]);
}

#[tokio::test]
async fn no_step_is_taken_once_the_lease_is_lost() {
    let reconciler = Rounds::of(|_| {
        let mut plan = Plan::default();
        plan.then("delete", "it is surplus");
        plan
    });
    let queue = WorkQueue::new("test", QueuePacing::default());
    let it = ReconcileLoop::new(Arc::clone(&reconciler), queue, Arc::default(), Arc::new(SystemClock));
    let fence = fence::LeaseFence::default();
    fence.close();
    let requeue = fence::within(fence, it.handle(&Key::new("ns", "set"))).await.unwrap();
    assert_eq!((requeue, *reconciler.played.lock()), (RequeueTime::After(NO_LONGER_LEADER), 0));
}

/// The plan of a round, by its number.
type PlanOf = fn(usize) -> Plan<&'static str>;

/// Plays rounds, each with its plan.
struct Rounds {
    plan: PlanOf,
    played: Mutex<usize>,
}

impl Rounds {
    fn of(plan: PlanOf) -> Arc<Self> {
        Arc::new(Self { plan, played: Mutex::default() })
    }
}

impl SnapshotReader for Rounds {
    type Key = Key;
    type Snapshot = Planned;
    type Memory = ();
    type Session = ();

    fn observe(&self, _: &Key, (): &(), (): &()) -> Option<Planned> {
        Some(Planned((self.plan)(*self.played.lock())))
    }
}

impl PlanExecutor for Rounds {
    async fn apply(
        &self,
        _: Planned,
        _: Vec<Step<&'static str>>,
        _: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        *self.played.lock() += 1;
        Ok(LoopContinuation::Plan)
    }
}

fn scale(number: usize) -> Plan<&'static str> {
    let mut plan = Plan::default();
    plan.then("scale", format!("{number} machines became available"));
    plan
}

#[tokio::test]
async fn a_plan_that_does_not_converge_is_a_bug_and_one_that_the_world_keeps_busy_is_not() {
    let plans: [(bool, PlanOf); 2] = [(true, |round| scale(round % 2)), (false, scale)];
    for (same, plan) in plans {
        let busy = Rounds::of(plan);
        let it = ReconcileLoop::new(
            Arc::clone(&busy),
            WorkQueue::new("test", QueuePacing::default()),
            Arc::default(),
            Arc::new(SystemClock),
        );
        let outcome = it.handle(&Key::new("ns", "set")).await;
        assert_eq!(*busy.played.lock(), ROUNDS);
        match outcome {
            Err(ReconcileError::NotConverging { step, .. }) => assert!(same && step.starts_with("scale: "), "{step}"),
            outcome => assert_eq!((outcome.unwrap(), same), (RequeueTime::After(Duration::ZERO), false)),
        }
    }
}

/// Cannot be observed.
struct Unseen {
    is_unreadable: bool,
}

impl SnapshotReader for Unseen {
    type Key = Key;
    type Snapshot = Planned;
    type Memory = bool;
    type Session = ();

    fn observe(&self, _: &Key, _: &bool, (): &()) -> Option<Planned> {
        None
    }

    fn is_unreadable(&self, _: &Key) -> bool {
        self.is_unreadable
    }
}

impl PlanExecutor for Unseen {
    async fn apply(
        &self,
        _: Planned,
        _: Vec<Step<&'static str>>,
        _: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        Ok(LoopContinuation::Plan)
    }
}

#[tokio::test]
async fn the_memory_of_an_object_is_kept_while_it_is_undecodable_and_dropped_with_it() {
    for is_unreadable in [true, false] {
        let (states, key) = (Arc::<ObjectStateMap<_>>::default(), Key::new("ns", "set"));
        states.update(&key, |memory| *memory = true);
        let it = ReconcileLoop::new(
            Arc::new(Unseen { is_unreadable }),
            WorkQueue::new("test", QueuePacing::default()),
            Arc::clone(&states),
            Arc::new(SystemClock),
        );
        assert_eq!(it.handle(&key).await.unwrap(), RequeueTime::OnChange);
        let mut is_remembered = false;
        states.update_if_known(&key, |memory| is_remembered = *memory);
        assert_eq!(is_remembered, is_unreadable);
    }
}

/// Its status is out of date whenever it is read, which takes a while.
#[derive(Default)]
struct Counting {
    written: Mutex<usize>,
}

impl SnapshotReader for Counting {
    type Key = Key;
    type Snapshot = Planned;
    type Memory = ();
    type Session = ();

    fn observe(&self, _: &Key, (): &(), (): &()) -> Option<Planned> {
        std::thread::sleep(Duration::from_millis(20));
        let mut plan = Plan::default();
        plan.then(WRITE_STATUS, "a number changed");
        Some(Planned(plan))
    }
}

impl PlanExecutor for Counting {
    async fn apply(
        &self,
        _: Planned,
        _: Vec<Step<&'static str>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        *self.written.lock() += 1;
        turn.status_written();
        Ok(LoopContinuation::Requeue(RequeueTime::OnChange))
    }
}

#[tokio::test]
async fn a_status_is_written_a_few_times_a_second_and_expensive_plans_have_pauses() {
    let (counting, key) = (Arc::new(Counting::default()), Key::new("ns", "set"));
    let queue = WorkQueue::new("test", QueuePacing { gather: Duration::ZERO, per_cost: 100 });
    let it = ReconcileLoop::new(Arc::clone(&counting), Arc::clone(&queue), Arc::default(), Arc::new(SystemClock));
    queue.add(key.clone());
    queue.take().await;
    assert_eq!(it.handle(&key).await.unwrap(), RequeueTime::OnChange);
    let again = it.handle(&key).await.unwrap();
    assert!(matches!(again, RequeueTime::After(left) if left <= STATUS_INTERVAL), "{again:?}");
    assert_eq!(*counting.written.lock(), 1);
    queue.add(key.clone());
    queue.done(&key, None);
    let next = tokio::time::timeout(Duration::from_millis(500), queue.take()).await;
    assert!(next.is_err(), "a hundred times the cost of the last plan");
}

#[tokio::test]
async fn a_plan_that_led_to_writes_has_no_pause() {
    let key = Key::new("ns", "set");
    let queue = WorkQueue::new("test", QueuePacing { gather: Duration::ZERO, per_cost: 10 });
    let thorough = Rounds::of(|round| match round {
        0 => {
            std::thread::sleep(Duration::from_millis(100));
            scale(1)
        }
        _ => Plan::default(),
    });
    let it = ReconcileLoop::new(thorough, Arc::clone(&queue), Arc::default(), Arc::new(SystemClock));
    queue.add(key.clone());
    queue.take().await;
    assert_eq!(it.handle(&key).await.unwrap(), RequeueTime::OnChange);
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

impl SnapshotReader for Failed {
    type Key = Key;
    type Snapshot = Planned;
    type Memory = bool;
    type Session = ();

    fn observe(&self, _: &Key, has_failed: &bool, (): &()) -> Option<Planned> {
        let mut plan = Plan::default();
        if !has_failed {
            plan.then(WRITE_STATUS, "it still shows the failure");
        }
        Some(Planned(plan))
    }
}

impl PlanExecutor for Failed {
    async fn apply(
        &self,
        _: Planned,
        steps: Vec<Step<&'static str>>,
        _: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        self.applied.lock().extend(steps.into_iter().map(|step| step.reason));
        Ok(LoopContinuation::Requeue(RequeueTime::OnChange))
    }

    fn settle(has_failed: &mut bool) -> bool {
        std::mem::take(has_failed)
    }
}

#[tokio::test]
async fn a_failure_cleared_without_steps_is_planned_for_at_once() {
    let (reconciler, states, key) =
        (Arc::new(Failed::default()), Arc::<ObjectStateMap<_>>::default(), Key::new("ns", "set"));
    states.update(&key, |has_failed| *has_failed = true);
    let queue = WorkQueue::new("test", QueuePacing::default());
    let it = ReconcileLoop::new(Arc::clone(&reconciler), queue, states, Arc::new(SystemClock));
    it.handle(&key).await.unwrap();
    assert_eq!(*reconciler.applied.lock(), ["it still shows the failure"]);
}
