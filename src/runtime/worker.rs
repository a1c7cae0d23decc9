//! Workers that take keys from a queue and reconcile them, several at the same time.
//!
//! kube-rs has a `Controller` for this. Here, keys of deleted objects are reconciled too, waiting keys keep their
//! order, and a waiting key needs no task.

use std::{collections::HashMap, fmt::Display, future::Future, hash::Hash, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    clock::TimeSource,
    fence,
    objects::{ObjectWriteError, WriteFailure, chain},
    panics::{self, CaughtPanic, PanicPlace},
    queue::WorkQueue,
};
use mcm_api::backoff::Backoff;

/// When to reconcile an object again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequeueTime {
    /// After a change.
    OnChange,
    /// At this time, or after a change.
    At(Timestamp),
    /// After a duration, or after a change.
    After(Duration),
}

impl From<Option<Timestamp>> for RequeueTime {
    fn from(at: Option<Timestamp>) -> Self {
        at.map_or(Self::OnChange, Self::At)
    }
}

/// A failed reconcile.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A write failed.
    #[error(transparent)]
    Write(#[from] ObjectWriteError),
    /// A live read failed.
    #[error("read of {what} failed")]
    Read {
        /// The object that was read.
        what: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A plan that does not converge.
    #[error("the plan for {key} does not converge (last step: {step}): please report this as a bug")]
    NotConverging {
        /// The object.
        key: String,
        /// The last step.
        step: String,
        /// When its waits end: a plan that does not converge must not delay the others.
        due: Option<Timestamp>,
    },
    /// It panicked.
    #[error(transparent)]
    Panicked(#[from] CaughtPanic),
    /// A plan that would break a bound and was not executed.
    #[error("the plan for {key} was not executed, because {violation}: please report this as a bug")]
    Refused {
        /// The object.
        key: String,
        /// The bound that it would break.
        violation: String,
    },
}

impl ReconcileError {
    /// A read of `what` failed.
    pub fn read(what: impl Display, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Read { what: what.to_string(), source: Box::new(source) }
    }

    /// The defect of the plan, if the error is a bug in the planner.
    fn flaw(&self) -> Option<&'static str> {
        match self {
            Self::Refused { .. } => Some("bound"),
            Self::NotConverging { .. } => Some("not_converging"),
            Self::Write(_) | Self::Read { .. } | Self::Panicked(_) => None,
        }
    }

    /// Another client wrote or deleted the object first.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Write(error) if matches!(error.failure(), WriteFailure::Conflict | WriteFailure::Gone))
    }
}

/// Reconciles the object of a key.
pub trait KeyReconciler: Send + Sync + 'static {
    /// Key of an object.
    type Key: Clone + Eq + Hash + std::fmt::Debug + Display + Send + Sync + 'static;

    /// Reconciles one object; returns when to requeue it.
    fn handle(&self, key: &Self::Key) -> impl Future<Output = Result<RequeueTime, ReconcileError>> + Send;

    /// The object was deleted.
    fn forget(&self, key: &Self::Key) {
        let _ = key;
    }
}

/// First and longest pause before a failed reconcile is retried.
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60));
/// The same after a conflict, which the watch resolves soon.
const CONFLICT_RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

/// The workers of one controller.
pub struct WorkerPool<H: KeyReconciler> {
    handler: Arc<H>,
    queue: Arc<WorkQueue<H::Key>>,
    clock: Arc<dyn TimeSource>,
    limit: usize,
    /// Consecutive failures, by key.
    failures: Arc<Mutex<HashMap<H::Key, u32>>>,
}

impl<H: KeyReconciler> WorkerPool<H> {
    /// At most `limit` reconciles at once.
    pub fn new(handler: Arc<H>, queue: Arc<WorkQueue<H::Key>>, clock: Arc<dyn TimeSource>, limit: usize) -> Self {
        Self { handler, queue, clock, limit: limit.max(1), failures: Arc::default() }
    }

    /// Runs until `stop`, then waits for the reconciles in flight. Dropping the future aborts them.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut in_flight = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = in_flight.join_next(), if !in_flight.is_empty() => {}
                (key, meter) = self.queue.take(), if in_flight.len() < self.limit => {
                    let workers = Arc::clone(&self);
                    let work = panics::of_current_cell(async move {
                        let _meter = meter;
                        workers.work(&key).await;
                    });
                    in_flight.spawn(fence::within(fence::current(), work));
                }
            }
        }
        while in_flight.join_next().await.is_some() {}
    }

    async fn work(&self, key: &H::Key) {
        // A reconcile that is aborted must not leave its key in flight.
        let mut turn = WorkerTurn { queue: &self.queue, key, requeue_at: Some(Instant::now() + RETRY.longest()) };
        let what = || format!("{} {key}", self.queue.name());
        let outcome = panics::caught(PanicPlace::Reconcile, what, async { self.handler.handle(key).await }).await;
        turn.requeue_at = match outcome.unwrap_or_else(|panicked| Err(panicked.into())) {
            Ok(requeue) => {
                self.failures.lock().remove(key);
                self.time_of(requeue)
            }
            Err(error) => Some(Instant::now() + self.failed(key, &error)),
        };
    }

    fn time_of(&self, requeue: RequeueTime) -> Option<Instant> {
        let delay = match requeue {
            RequeueTime::OnChange => return None,
            RequeueTime::After(delay) => delay,
            RequeueTime::At(at) => Duration::try_from(at.duration_since(self.clock.now())).unwrap_or_default(),
        };
        Some(Instant::now() + delay)
    }

    fn failed(&self, key: &H::Key, error: &ReconcileError) -> Duration {
        let attempt = {
            let mut failures = self.failures.lock();
            let count = failures.entry(key.clone()).or_default();
            *count = count.saturating_add(1);
            *count - 1
        };
        self.queue.retried();
        error.flaw().into_iter().for_each(|flaw| self.queue.flawed(flaw));
        let (controller, text) = (self.queue.name(), chain(error));
        if error.is_conflict() {
            tracing::debug!(controller, object = %key, error = %text, "conflict, requeued");
            return CONFLICT_RETRY.pause(attempt);
        }
        let retry_in = self.until_due(error).map_or(RETRY.pause(attempt), |due| due.min(RETRY.pause(attempt)));
        tracing::warn!(controller, object = %key, error = %text, ?retry_in, "reconcile failed");
        retry_in
    }

    /// Time left until the waits of a plan that does not converge end; `None` if there are none, or they are over.
    fn until_due(&self, error: &ReconcileError) -> Option<Duration> {
        let ReconcileError::NotConverging { due: Some(due), .. } = error else { return None };
        let left = due.duration_since(self.clock.now());
        left.is_positive().then(|| left.unsigned_abs())
    }

    /// An object was deleted: drops its failures.
    pub fn forget(&self, key: &H::Key) {
        self.failures.lock().remove(key);
        self.handler.forget(key);
        self.queue.forget(key);
    }
}

struct WorkerTurn<'a, T: Clone + Eq + Hash + std::fmt::Debug> {
    queue: &'a WorkQueue<T>,
    key: &'a T,
    requeue_at: Option<Instant>,
}

impl<T: Clone + Eq + Hash + std::fmt::Debug> Drop for WorkerTurn<'_, T> {
    fn drop(&mut self) {
        self.queue.done(self.key, self.requeue_at);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::core::Status;
    use rstest::rstest;
    use serde_json::json;
    use tokio::sync::Notify;

    use super::*;
    use crate::{cache::Key, clock::SystemClock, metrics::MetricsRegistry, queue::QueuePacing};

    /// Returns the given results in turn, then none.
    struct Scripted {
        answers: Mutex<Vec<Result<RequeueTime, ReconcileError>>>,
        handled: Mutex<Vec<(&'static str, Instant)>>,
        changed: Notify,
    }

    impl KeyReconciler for Scripted {
        type Key = &'static str;

        async fn handle(&self, key: &&'static str) -> Result<RequeueTime, ReconcileError> {
            self.handled.lock().push((key, Instant::now()));
            self.changed.notify_one();
            self.answers.lock().pop().unwrap_or(Ok(RequeueTime::OnChange))
        }
    }

    fn refused(code: u16) -> ReconcileError {
        let reason = match code {
            404 => "NotFound",
            409 => "Conflict",
            _ => "Forbidden",
        };
        let details = serde_json::from_value(json!({"name": "a", "kind": "machines"})).unwrap();
        let status = Status::failure("no", reason).with_code(code).with_details(details);
        ObjectWriteError::new("patch", "Machine", Key::new("n", "a"), kube::Error::Api(Box::new(status))).into()
    }

    async fn pauses(answers: Vec<Result<RequeueTime, ReconcileError>>) -> Vec<u64> {
        pauses_measured(answers, &MetricsRegistry::new()).await
    }

    async fn pauses_measured(
        mut answers: Vec<Result<RequeueTime, ReconcileError>>,
        metrics: &MetricsRegistry,
    ) -> Vec<u64> {
        answers.reverse();
        let count = answers.len() + 1;
        let handler =
            Arc::new(Scripted { answers: Mutex::new(answers), handled: Mutex::default(), changed: Notify::new() });
        let queue = WorkQueue::new("test", QueuePacing::default());
        queue.measure(metrics);
        queue.add("a");
        let stop = CancellationToken::new();
        let workers = Arc::new(WorkerPool::new(Arc::clone(&handler), queue, Arc::new(SystemClock), 1));
        let running = tokio::spawn(workers.run(stop.clone()));
        while handler.handled.lock().len() < count {
            handler.changed.notified().await;
        }
        stop.cancel();
        running.await.unwrap();
        let times: Vec<Instant> = handler.handled.lock().iter().map(|(_, at)| *at).collect();
        times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis() as u64).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_a_success_starts_anew() {
        let soon = || Ok(RequeueTime::After(Duration::from_millis(7)));
        let answers = vec![Err(refused(403)), Err(refused(403)), soon(), Err(refused(403)), soon()];
        assert_eq!(pauses(answers).await, [200, 400, 7, 200, 7]);
    }

    /// Covers an object that another client deleted (404).
    #[rstest]
    #[case(409)]
    #[case(404)]
    #[tokio::test(start_paused = true)]
    async fn a_conflict_is_reconciled_again_soon_and_one_that_remains_backs_off(#[case] code: u16) {
        let answers = (0..9).map(|_| Err(refused(code))).collect();
        assert_eq!(pauses(answers).await, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_and_conflicts_count_as_retries_and_requeues_do_not() {
        let metrics = MetricsRegistry::new();
        let soon = || Ok(RequeueTime::After(Duration::from_millis(7)));
        let answers = vec![soon(), Err(refused(403)), Err(refused(409)), soon(), Err(refused(403)), soon()];
        pauses_measured(answers, &metrics).await;
        let text = metrics.render();
        assert!(text.contains("\nmcm_workqueue_retries_total{name=\"test\"} 3\n"), "{text}");
        assert!(text.contains("\nmcm_workqueue_adds_total{name=\"test\"} 7\n"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn flawed_plans_are_counted_by_reason() {
        let metrics = MetricsRegistry::new();
        let (key, violation, step) = ("pool".to_owned(), "of a bound".to_owned(), "create".to_owned());
        let bound = ReconcileError::Refused { key: key.clone(), violation };
        let answers = vec![Err(bound), Err(refused(403)), Err(ReconcileError::NotConverging { key, step, due: None })];
        pauses_measured(answers, &metrics).await;
        let text = metrics.render();
        for reason in ["bound", "not_converging"] {
            let line = format!("\nmcm_plans_flawed_total{{name=\"test\",reason=\"{reason}\"}} 1\n");
            assert!(text.contains(&line), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_plan_that_does_not_converge_is_repeated_when_its_waits_end() {
        let soon = Timestamp::now().checked_add(Duration::from_secs(3)).unwrap();
        let not_converging =
            |due| Err(ReconcileError::NotConverging { key: "m".to_owned(), step: "patch".to_owned(), due });
        let answers = (0..5)
            .map(|_| not_converging(None))
            .chain([not_converging(Some(soon)), not_converging(Some(Timestamp::UNIX_EPOCH))]);
        let pauses = pauses(answers.collect()).await;
        assert_eq!(pauses[..5], [200, 400, 800, 1600, 3200]);
        assert!((2_000..=3_000).contains(&pauses[5]), "{pauses:?}");
        assert_eq!(pauses[6], 12_800, "a time that has passed is no reason to hurry");
    }

    /// Counts how many run at once.
    #[derive(Default)]
    struct Counting {
        now: AtomicUsize,
        most: AtomicUsize,
        total: AtomicUsize,
    }

    impl KeyReconciler for Counting {
        type Key = usize;

        async fn handle(&self, _: &usize) -> Result<RequeueTime, ReconcileError> {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.now.fetch_sub(1, Ordering::SeqCst);
            self.total.fetch_add(1, Ordering::SeqCst);
            Ok(RequeueTime::OnChange)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_the_limit_run_at_once_and_those_in_flight_end_before_it_stops() {
        let handler = Arc::new(Counting::default());
        let queue = WorkQueue::new("test", QueuePacing::default());
        (0..20).for_each(|key| queue.add(key));
        let stop = CancellationToken::new();
        let workers = Arc::new(WorkerPool::new(Arc::clone(&handler), queue, Arc::new(SystemClock), 3));
        let running = tokio::spawn(workers.run(stop.clone()));
        tokio::time::sleep(Duration::from_millis(25)).await;
        stop.cancel();
        running.await.unwrap();
        assert_eq!(handler.most.load(Ordering::SeqCst), 3);
        assert_eq!(handler.total.load(Ordering::SeqCst), 9, "the third batch was in flight");
    }

    /// One object is poisoned.
    struct Panicking {
        start: Instant,
        handled: Mutex<Vec<(&'static str, Duration)>>,
    }

    impl KeyReconciler for Panicking {
        type Key = &'static str;

        async fn handle(&self, key: &&'static str) -> Result<RequeueTime, ReconcileError> {
            self.handled.lock().push((key, self.start.elapsed()));
            tokio::task::yield_now().await;
            assert_ne!(*key, "poisoned", "a bug");
            Ok(RequeueTime::After(Duration::from_secs(1)))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_whose_reconcile_panics_is_retried_with_a_backoff_and_delays_no_other() {
        let handler = Arc::new(Panicking { start: Instant::now(), handled: Mutex::default() });
        let queue = WorkQueue::new("test", QueuePacing::default());
        ["poisoned", "good"].into_iter().for_each(|key| queue.add(key));
        let stop = CancellationToken::new();
        let workers = Arc::new(WorkerPool::new(Arc::clone(&handler), queue, Arc::new(SystemClock), 1));
        let running = tokio::spawn(panics::of_cell("workers".into(), workers.run(stop.clone())));
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        stop.cancel();
        running.await.unwrap();
        let of = |key| -> Vec<u128> {
            let handled = handler.handled.lock();
            handled.iter().filter(|(of, _)| *of == key).map(|(_, at)| at.as_millis()).collect()
        };
        assert_eq!(of("poisoned"), [0, 200, 600, 1_400, 3_000]);
        assert_eq!(of("good"), [0, 1_000, 2_000, 3_000]);
        assert_eq!(panics::counted(PanicPlace::Reconcile, "workers"), 5);
    }
}
