//! Runs the reconciles of one kind on a kube-rs `Controller`: never two at once for one object, woken by its queue.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use kube::runtime::{Config, Controller, controller::Action};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::context::Context;
use crate::runtime::{
    cache::{Cache, Cached, Key},
    metrics::Working,
    objects::{WriteError, WriteFailure, chain},
    queue::Queue,
};

/// When to look at an object again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Only a change can matter.
    OnChange,
    /// At this time, or on a change.
    At(Timestamp),
    /// After a while, or on a change.
    After(Duration),
}

impl From<Option<Timestamp>> for Wake {
    fn from(at: Option<Timestamp>) -> Self {
        at.map_or(Self::OnChange, Self::At)
    }
}

/// A pass that could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A write failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A read failed; nothing was concluded from it.
    #[error("{what} cannot be read")]
    Read {
        /// What was read.
        what: String,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A plan that never comes to rest.
    #[error("the plan for {key} does not come to rest (last step: {step}): please report this")]
    Restless {
        /// The object.
        key: Key,
        /// The last step.
        step: String,
    },
}

impl ReconcileError {
    /// Somebody else wrote the object first, or deleted it.
    fn is_overtaken(&self) -> bool {
        matches!(self, Self::Write(error) if matches!(error.failure(), WriteFailure::Conflict | WriteFailure::Gone))
    }
}

fn backoff(first: Duration, attempt: u32, last: Duration) -> Duration {
    first.saturating_mul(2u32.saturating_pow(attempt)).min(last)
}

/// The status of one set or deployment is not written more often.
const STATUS_INTERVAL: SignedDuration = SignedDuration::from_millis(250);

/// A status that alone has changed can wait a moment for what changes next. Answers until when.
pub fn hold_status(written_at: Option<Timestamp>, now: Timestamp) -> Option<Wake> {
    let next_at = written_at?.checked_add(STATUS_INTERVAL).ok()?;
    (next_at > now).then_some(Wake::At(next_at))
}

/// How often one pass plans anew before it yields.
pub const ROUNDS: usize = 16;

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// After a conflict: the watch brings the newer state any moment.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const LAST_LOOK: Duration = Duration::from_secs(5);

/// Runs at most `limit` passes at once until `stop`, then lets running passes finish.
pub async fn run<K, F>(
    cache: &Cache<K>,
    queue: Arc<Queue<Key>>,
    context: Arc<Context>,
    reconcile: impl Fn(Key, Arc<Context>) -> F + Clone + Send + Sync + 'static,
    limit: usize,
    stop: CancellationToken,
) where
    K: Cached,
    F: Future<Output = Result<Wake, ReconcileError>> + Send + 'static,
{
    let name = queue.name();
    let attempts = Arc::new(Mutex::new(HashMap::<Key, u32>::new()));
    let failures = Arc::clone(&attempts);
    let working = Arc::new(Mutex::new(HashMap::<Key, Working>::new()));
    let begun = Arc::clone(&working);
    let (gone_attempts, gone_working) = (Arc::clone(&attempts), Arc::clone(&working));
    cache.on_change(move |change| {
        if change.gone {
            gone_attempts.lock().remove(&change.key);
            gone_working.lock().remove(&change.key);
        }
    });
    queue.measure(&context.metrics);
    let keys = queue.stream().map(move |(key, meter)| {
        let reference = key.reference::<K>();
        begun.lock().extend(meter.map(|meter| (key, meter)));
        reference
    });
    Controller::for_stream(futures::stream::pending(), cache.store())
        .with_config(Config::default().concurrency(u16::try_from(limit).unwrap_or(u16::MAX)))
        .reconcile_on(keys)
        .graceful_shutdown_on(async move { stop.cancelled().await })
        .run(
            move |object, context| {
                let key = Key::of(object.meta());
                let attempts = Arc::clone(&attempts);
                let meter = working.lock().remove(&key);
                let pass = reconcile(key.clone(), Arc::clone(&context));
                async move {
                    let _meter = meter;
                    let wake = pass.await?;
                    attempts.lock().remove(&key);
                    Ok(match wake {
                        Wake::OnChange => Action::await_change(),
                        Wake::After(delay) => Action::requeue(delay),
                        Wake::At(at) => {
                            let delay = at.duration_since(context.now());
                            Action::requeue(Duration::try_from(delay).unwrap_or_default())
                        }
                    })
                }
            },
            move |object, error: &ReconcileError, _| {
                let key = Key::of(object.meta());
                let attempt = {
                    let mut failures = failures.lock();
                    let attempt = failures.entry(key.clone()).or_default();
                    *attempt += 1;
                    *attempt - 1
                };
                let error_text = chain(error);
                if error.is_overtaken() {
                    tracing::debug!(controller = name, object = %key, error = %error_text, "looking again");
                    return Action::requeue(backoff(FIRST_LOOK, attempt, LAST_LOOK));
                }
                let delay = backoff(FIRST_RETRY, attempt, LAST_RETRY);
                tracing::warn!(controller = name, object = %key, error = %error_text, retry_in = ?delay, "pass failed");
                Action::requeue(delay)
            },
            context,
        )
        .for_each(|_| std::future::ready(()))
        .await;
}
