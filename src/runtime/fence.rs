//! The right of a role to act. It ends with its Lease: a reconcile that is under way then takes no further step and sends
//! no further write.
//!
//! Tasks of a process that was stopped for a while continue in any order, and a reconcile may run before the renewal of the
//! Lease. Each step and each write therefore checks the time as well.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use futures::{
    FutureExt,
    future::{BoxFuture, poll_fn, select_all},
};
use http::{Method, Request};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Layer, Service, ServiceExt};

use super::clock::TimeSource;

tokio::task_local! {
    static FENCE: LeaseFence;
}

/// A kind of call that is sent only while its task may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencedCall {
    /// A write to an API server.
    Write,
    /// A call of a driver that changes something in a cloud.
    Cloud,
}

/// Calls of this process that were not sent.
static REFUSED_WRITES: AtomicU64 = AtomicU64::new(0);
static REFUSED_CLOUD_CALLS: AtomicU64 = AtomicU64::new(0);

impl FencedCall {
    /// All kinds.
    pub(crate) const ALL: [Self; 2] = [Self::Write, Self::Cloud];

    /// The value of a label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Cloud => "cloud",
        }
    }

    /// The number of such calls that were not sent.
    pub(crate) fn refused(self) -> u64 {
        self.count().load(Ordering::Relaxed)
    }

    fn count(self) -> &'static AtomicU64 {
        match self {
            Self::Write => &REFUSED_WRITES,
            Self::Cloud => &REFUSED_CLOUD_CALLS,
        }
    }
}

/// The right of a task to act, from a Lease or several of them. Clones share it.
#[derive(Clone, Debug)]
pub struct LeaseFence(Vec<Arc<FencePart>>);

#[derive(Debug, Default)]
struct FencePart {
    state: Mutex<FenceState>,
    closed: CancellationToken,
    /// A second clock that bounds it: the monotonic clock stops while a VM is paused.
    wall: Option<Arc<dyn TimeSource>>,
}

#[derive(Clone, Copy, Debug, Default)]
enum FenceState {
    /// The role needs no Lease.
    #[default]
    Unbounded,
    /// Until then by both clocks, if it is not renewed.
    Until(Instant, Timestamp),
    /// The Lease is lost.
    Closed,
}

/// The role has lost its Lease, so the write was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent, because this process is no longer the leader")]
pub(crate) struct NoLongerLeader;

impl Default for LeaseFence {
    fn default() -> Self {
        Self(vec![Arc::default()])
    }
}

impl FencePart {
    fn is_open(&self) -> bool {
        match *self.state.lock() {
            FenceState::Unbounded => true,
            FenceState::Until(end, wall_end) => {
                Instant::now() < end && self.wall.as_ref().is_none_or(|wall| wall.now() < wall_end)
            }
            FenceState::Closed => false,
        }
    }
}

impl LeaseFence {
    /// A fence that is bounded by the wall clock as well, and not open before it is extended.
    pub fn of_two_clocks(wall: Arc<dyn TimeSource>) -> Self {
        let state = Mutex::new(FenceState::Until(Instant::now(), Timestamp::MIN));
        Self(vec![Arc::new(FencePart { state, closed: CancellationToken::new(), wall: Some(wall) })])
    }

    /// The Lease lasts until then. A lost Lease stays lost.
    pub fn extend(&self, until: Instant) {
        self.extend_both(until, Timestamp::MAX);
    }

    /// The Lease lasts until the first of both times, each by its clock. A lost Lease stays lost.
    pub fn extend_both(&self, until: Instant, wall_until: Timestamp) {
        for part in &self.0 {
            let mut state = part.state.lock();
            if !matches!(*state, FenceState::Closed) {
                *state = FenceState::Until(until, wall_until);
            }
        }
    }

    /// The Lease is lost.
    pub fn close(&self) {
        for part in &self.0 {
            *part.state.lock() = FenceState::Closed;
            part.closed.cancel();
        }
    }

    /// Closed when the result is dropped.
    pub(crate) fn closed_on_drop(self) -> ClosingFence {
        ClosingFence(self)
    }

    /// Open while both are.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).map(Arc::clone).collect())
    }

    /// A task may act now.
    pub fn is_open(&self) -> bool {
        self.0.iter().all(|part| part.is_open())
    }

    /// Waits until it is closed. A Lease that is not renewed is closed by its election.
    pub async fn closed(&self) {
        let _ = select_all(self.0.iter().map(|part| part.closed.cancelled().boxed())).await;
    }
}

/// Closes a fence when it is dropped.
#[derive(Debug)]
pub(crate) struct ClosingFence(LeaseFence);

impl Drop for ClosingFence {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Does work under a Lease. Tasks that it spawns get the fence by [`current`].
pub async fn within<F: Future>(fence: LeaseFence, work: F) -> F::Output {
    FENCE.scope(fence, work).await
}

/// Does work until the current task may no longer act; `None` if that came first. The work is dropped then. Each of its parts
/// checks the time: after a stop of the process it may continue before the renewal of the Lease.
pub async fn while_open<F: Future>(work: F) -> Option<F::Output> {
    let fence = current();
    let closed = fence.closed();
    let mut work = pin!(work);
    let timed = poll_fn(|context| match fence.is_open() {
        true => work.as_mut().poll(context).map(Some),
        false => Poll::Ready(None),
    });
    tokio::select! {
        biased;
        () = closed => None,
        done = timed => done,
    }
}

/// The fence of the current task.
pub fn current() -> LeaseFence {
    FENCE.try_with(LeaseFence::clone).unwrap_or_default()
}

/// True while the current task may act. Work without a Lease may.
pub fn may_act() -> bool {
    FENCE.try_with(LeaseFence::is_open).unwrap_or(true)
}

/// True while the current task may act. Otherwise its call must not be sent, and is counted.
pub fn may_send(call: FencedCall) -> bool {
    let may = may_act();
    if !may {
        call.count().fetch_add(1, Ordering::Relaxed);
    }
    may
}

/// Rejects writes of tasks that may no longer act. No layer below it may delay a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FenceLayer;

impl<S> Layer<S> for FenceLayer {
    type Service = FencedRequests<S>;

    fn layer(&self, inner: S) -> FencedRequests<S> {
        FencedRequests { inner }
    }
}

/// See [`FenceLayer`].
#[derive(Clone, Debug)]
pub(crate) struct FencedRequests<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for FencedRequests<S>
where
    S: Service<Request<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: 'static,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        // The service is called in a task of the client, and its future is polled by the task that sends the request.
        async move {
            if request.method() != Method::GET && !may_send(FencedCall::Write) {
                return Err(NoLongerLeader.into());
            }
            inner.oneshot(request).await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, time::Duration};

    use axum::{Json, Router, routing::any};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        Api, Config,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    };
    use serde_json::json;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::{
        body::ResponseLimits, client, clock::ManualClock, kubeconfig::ClusterConfig, limiter::RequestRate,
        metrics::MetricsRegistry, objects::chain,
    };

    #[tokio::test(start_paused = true)]
    async fn the_right_to_act_ends_with_the_lease() {
        assert!(may_act(), "work without a Lease");
        let fence = LeaseFence::default();
        within(fence.clone(), async {
            assert!(may_act());
            fence.extend(Instant::now() + Duration::from_secs(10));
            assert!(may_act());
            tokio::time::advance(Duration::from_secs(10)).await;
            assert!(!may_act(), "nothing has noticed yet that it was not renewed");
            fence.extend(Instant::now() + Duration::from_secs(10));
            assert!(may_act());
            fence.close();
            fence.extend(Instant::now() + Duration::from_secs(10));
            assert!(!may_act(), "another process may lead");
            let spawned = tokio::spawn(within(current(), async { may_act() }));
            assert!(!spawned.await.unwrap());
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_of_two_clocks_ends_the_right_to_act() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let seconds = Duration::from_secs;
        let wall = ManualClock::at(start);
        let fence = LeaseFence::of_two_clocks(Arc::new(wall.clone()));
        assert!(!fence.is_open(), "it was not renewed yet");
        let renew = || fence.extend_both(Instant::now() + seconds(10), wall.now() + seconds(10));
        renew();
        wall.advance(jiff::SignedDuration::from_millis(9_999));
        assert!(fence.is_open());
        wall.advance(jiff::SignedDuration::from_millis(1));
        assert!(!fence.is_open(), "the computer was suspended");
        renew();
        wall.advance(jiff::SignedDuration::from_hours(-1));
        tokio::time::advance(seconds(9)).await;
        assert!(fence.is_open());
        tokio::time::advance(seconds(1)).await;
        assert!(!fence.is_open(), "the wall clock was set back");
        fence.close();
        renew();
        assert!(!fence.is_open());
    }

    /// The tasks of a process that was stopped continue in any order.
    #[tokio::test(start_paused = true)]
    async fn work_under_a_lease_that_ran_out_goes_no_further_although_nothing_has_closed_it() {
        let (fence, steps) = (LeaseFence::default(), AtomicUsize::new(0));
        fence.extend(Instant::now() + Duration::from_secs(10));
        let work = async {
            for _ in 0..3 {
                steps.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(6)).await;
            }
        };
        assert_eq!(within(fence, while_open(work)).await, None);
        assert_eq!(steps.load(Ordering::Relaxed), 2, "at 0 s and at 6 s");
    }

    #[tokio::test(start_paused = true)]
    async fn the_right_to_act_under_two_leases_ends_with_the_first_of_them() {
        for closed in 0..2 {
            let fences = [LeaseFence::default(), LeaseFence::default()];
            let both = fences[0].and(&fences[1]);
            fences.iter().for_each(|fence| fence.extend(Instant::now() + Duration::from_secs(10)));
            within(both, async {
                assert_eq!(while_open(async { may_act() }).await, Some(true));
                let close = async {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    fences[closed].close();
                };
                let (work, ()) = tokio::join!(while_open(std::future::pending::<()>()), close);
                assert_eq!((work, may_act()), (None, false));
            })
            .await;
            assert!(fences[1 - closed].is_open());
        }
    }

    #[tokio::test]
    async fn a_role_without_its_lease_sends_no_write() {
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&writes);
        let answer = move |method: Method| {
            counted.fetch_add(usize::from(method != Method::GET), Ordering::Relaxed);
            async { Json(json!({ "metadata": { "name": "a", "namespace": "n" } })) }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(any(answer));
        let _server = AbortOnDropHandle::new(tokio::spawn(axum::serve(listener, router).into_future()));
        let cluster = ClusterConfig::from(Config::new(url.parse().unwrap()));
        let rate = RequestRate { qps: 100.0, burst: 100 };
        let connections = client::connections(&cluster).unwrap();
        let metrics = MetricsRegistry::new();
        let client =
            client::client(&connections, "mcm", ResponseLimits::CONTROL, rate, None, metrics.requests()).unwrap();
        let maps = Api::<ConfigMap>::namespaced(client, "n");
        let send_all = async || {
            let (post, map, patch) = (PostParams::default(), ConfigMap::default(), Patch::Merge(json!({})));
            [
                maps.create(&post, &map).await.map(drop),
                maps.replace("a", &post, &map).await.map(drop),
                maps.patch("a", &PatchParams::default(), &patch).await.map(drop),
                maps.delete("a", &DeleteParams::default()).await.map(drop),
            ]
        };
        let fence = LeaseFence::default();
        within(fence.clone(), async {
            assert!(send_all().await.iter().all(Result::is_ok));
            assert_eq!(writes.load(Ordering::Relaxed), 4);
            fence.close();
            let refused = FencedCall::Write.refused();
            for answer in send_all().await {
                let error = chain(&answer.unwrap_err());
                assert!(error.contains("no longer the leader"), "{error}");
            }
            assert!(FencedCall::Write.refused() >= refused + 4);
            maps.get("a").await.unwrap();
        })
        .await;
        assert_eq!(writes.load(Ordering::Relaxed), 4);
        assert!(send_all().await.iter().all(Result::is_ok), "the fence of one role does not stop another");
    }
}
