//! Limits of one client: requests per second and requests in flight.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode, Uri, header::RETRY_AFTER};
use http_body::{Body, Frame, SizeHint};
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep, sleep_until, timeout, timeout_at},
};
use tower::{BoxError, Layer, Service, ServiceExt};

/// Rate limit of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestRate {
    /// Requests per second on average. Zero or less: no limit.
    pub qps: f64,
    /// Requests that may be made at once after a pause. Zero means 10, as in client-go.
    pub burst: u32,
}

impl RequestRate {
    /// Default burst of client-go.
    const DEFAULT_BURST: u32 = 10;
}

/// A request opens a watch. A watch lasts for minutes, so the limits do not apply to it.
pub fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch")))
}

/// A token bucket that serves waiters in order.
#[derive(Debug)]
pub struct TokenBucket {
    interval: Duration,
    /// How far `next` may be in the past: the unused burst.
    savings: Duration,
    /// Time of the next token. Advances by one interval per request, however late a waiter wakes, so that a coarse
    /// timer does not lower the rate.
    next: Mutex<Instant>,
}

impl TokenBucket {
    /// Longest time between two requests.
    const SLOWEST: Duration = Duration::from_secs(3600);

    /// A full bucket; `None` without a limit.
    pub fn new(rate: RequestRate) -> Option<Self> {
        if rate.qps.is_nan() || rate.qps <= 0.0 {
            return None;
        }
        let burst = if rate.burst == 0 { RequestRate::DEFAULT_BURST } else { rate.burst };
        let interval = Duration::try_from_secs_f64(rate.qps.recip()).unwrap_or(Self::SLOWEST).min(Self::SLOWEST);
        let savings = interval.saturating_mul(burst.saturating_sub(1));
        let now = Instant::now();
        Some(Self { interval, savings, next: Mutex::new(now.checked_sub(savings).unwrap_or(now)) })
    }

    /// Waits for a token and takes it. A waiter that is dropped takes none.
    pub async fn take(&self) {
        let came = Instant::now();
        let mut next = self.next.lock().await;
        let slot = (*next).max(came.checked_sub(self.savings).unwrap_or(came));
        if slot > Instant::now() {
            sleep_until(slot).await;
        }
        *next = slot + self.interval;
    }
}

/// Limits requests to a [`Rate`]. Watches are exempt: there are few, and a cache is stale while its watch waits.
#[derive(Clone, Debug)]
pub struct RateLimitLayer(Option<Arc<TokenBucket>>);

impl RateLimitLayer {
    /// One bucket for all services created by this layer.
    pub fn new(rate: RequestRate) -> Self {
        Self(TokenBucket::new(rate).map(Arc::new))
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> RateLimited<S> {
        RateLimited { inner, bucket: self.0.clone() }
    }
}

/// See [`RateLimitLayer`].
#[derive(Clone, Debug)]
pub struct RateLimited<S> {
    inner: S,
    bucket: Option<Arc<TokenBucket>>,
}

impl<S, B> Service<Request<B>> for RateLimited<S>
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
        // Waiting here would delay watches behind a request.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        let bucket = self.bucket.clone().filter(|_| !is_watch(request.uri()));
        async move {
            if let Some(bucket) = bucket {
                bucket.take().await;
            }
            inner.oneshot(request).await
        }
        .boxed()
    }
}

/// Bounds the requests in flight and the duration of a request. Of a watch only the time until the response begins is bounded.
#[derive(Clone, Debug)]
pub struct InFlightLayer {
    slots: Arc<Semaphore>,
    patience: Duration,
}

impl InFlightLayer {
    /// At most `slots` requests in flight (at least one), each with a complete response within `patience`.
    pub fn new(slots: usize, patience: Duration) -> Self {
        Self { slots: Arc::new(Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS))), patience }
    }
}

impl<S> Layer<S> for InFlightLayer {
    type Service = InFlightService<S>;

    fn layer(&self, inner: S) -> InFlightService<S> {
        InFlightService { inner, limits: self.clone() }
    }
}

/// See [`InFlightLayer`].
#[derive(Clone, Debug)]
pub struct InFlightService<S> {
    inner: S,
    limits: InFlightLayer,
}

/// The API server did not respond in time. The outcome of the request is unknown.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no complete response from the API server within {}s", .0.as_secs())]
pub struct UnansweredRequest(pub Duration);

impl<S, B, R> Service<Request<B>> for InFlightService<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: 'static,
{
    type Response = Response<HeldBody<R>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        let InFlightLayer { slots, patience } = self.limits.clone();
        async move {
            if is_watch(request.uri()) {
                let opening = timeout(patience, inner.oneshot(request)).await;
                let response = opening.map_err(|_| UnansweredRequest(patience))??;
                return Ok(response.map(|body| HeldBody { body, hold: None }));
            }
            let slot = slots.acquire_owned().await?;
            let deadline = Instant::now() + patience;
            let response =
                timeout_at(deadline, inner.oneshot(request)).await.map_err(|_| UnansweredRequest(patience))??;
            let hold = InFlightSlot { _slot: slot, deadline: Box::pin(sleep_until(deadline)), patience };
            Ok(response.map(|body| HeldBody { body, hold: Some(hold) }))
        }
        .boxed()
    }
}

/// A response body that keeps its slot until it is read or dropped.
#[derive(Debug)]
pub struct HeldBody<B> {
    body: B,
    hold: Option<InFlightSlot>,
}

#[derive(Debug)]
struct InFlightSlot {
    _slot: OwnedSemaphorePermit,
    deadline: Pin<Box<Sleep>>,
    patience: Duration,
}

impl<B> Body for HeldBody<B>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into);
        let Some(hold) = &mut self.hold else { return frame };
        match frame {
            Poll::Pending => match hold.deadline.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Some(Err(UnansweredRequest(hold.patience).into()))),
                Poll::Pending => Poll::Pending,
            },
            Poll::Ready(None) => {
                self.hold = None;
                Poll::Ready(None)
            }
            Poll::Ready(Some(frame)) => Poll::Ready(Some(frame)),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Retries requests that an overloaded API server rejected: 429 with `Retry-After`. Such a request had no effect, so
/// any may be retried. All other failures are left to the caller, and so are evictions, whose 429 means a disruption
/// budget.
#[derive(Clone, Copy, Debug)]
pub struct RepeatRefused {
    left: u32,
}

impl RepeatRefused {
    /// Upper bound of the pause from `Retry-After`.
    const LONGEST_PAUSE: Duration = Duration::from_secs(10);

    /// At most `times` retries of a request.
    pub const fn at_most(times: u32) -> Self {
        Self { left: times }
    }
}

impl<R> tower::retry::Policy<Request<kube::client::Body>, Response<R>, BoxError> for RepeatRefused {
    type Future = Sleep;

    fn retry(
        &mut self,
        _: &mut Request<kube::client::Body>,
        result: &mut Result<Response<R>, BoxError>,
    ) -> Option<Sleep> {
        let response = result.as_ref().ok().filter(|response| response.status() == StatusCode::TOO_MANY_REQUESTS)?;
        let pause = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)?;
        self.left = self.left.checked_sub(1)?;
        Some(sleep(pause.min(Self::LONGEST_PAUSE)))
    }

    fn clone_request(&mut self, request: &Request<kube::client::Body>) -> Option<Request<kube::client::Body>> {
        if request.uri().path().ends_with("/eviction") {
            return None;
        }
        let mut copy = Request::new(request.body().try_clone()?);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body as Answer;
    use rstest::rstest;
    use tower::service_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let bucket = TokenBucket::new(RequestRate { qps: 20.0, burst: 30 }).unwrap();
        let began = Instant::now();
        for _ in 0..30 {
            bucket.take().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..20 {
            bucket.take().await;
        }
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_saves_up_no_more_than_a_burst() {
        let bucket = TokenBucket::new(RequestRate { qps: 10.0, burst: 2 }).unwrap();
        sleep(Duration::from_secs(100)).await;
        let began = Instant::now();
        for _ in 0..4 {
            bucket.take().await;
        }
        assert_eq!(began.elapsed(), Duration::from_millis(200));
    }

    #[rstest]
    #[case(1)]
    #[case(30)]
    #[tokio::test(start_paused = true)]
    async fn a_timer_of_a_millisecond_does_not_slow_5000_calls_a_second(#[case] burst: u32) {
        let bucket = TokenBucket::new(RequestRate { qps: 5000.0, burst }).unwrap();
        let began = Instant::now();
        futures::future::join_all((0..2000).map(|_| bucket.take())).await;
        let rate = 2000.0 / began.elapsed().as_secs_f64();
        assert!(rate > 4900.0 && rate < 5100.0, "{rate}");
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_are_served_in_their_order_and_one_that_leaves_costs_nothing() {
        let bucket = Arc::new(TokenBucket::new(RequestRate { qps: 1.0, burst: 1 }).unwrap());
        bucket.take().await;
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let began = Instant::now();
        let tasks: Vec<_> = (0..4)
            .map(|number| {
                let (bucket, order) = (bucket.clone(), order.clone());
                tokio::spawn(async move {
                    bucket.take().await;
                    order.lock().unwrap().push((number, began.elapsed().as_secs()));
                })
            })
            .collect();
        tokio::task::yield_now().await;
        tasks[0].abort();
        tasks[2].abort();
        for task in tasks {
            let _ = task.await;
        }
        assert_eq!(*order.lock().unwrap(), [(1, 1), (3, 2)]);
    }

    #[rstest]
    #[case(0.0)]
    #[case(-1.0)]
    #[case(f64::NAN)]
    fn no_rate_is_no_limit(#[case] qps: f64) {
        assert!(TokenBucket::new(RequestRate { qps, burst: 5 }).is_none());
    }

    #[rstest]
    #[case("/api/v1/nodes?watch=true&resourceVersion=1", true)]
    #[case("/api/v1/nodes?fieldSelector=watch%3Dtrue", false)]
    #[case("/api/v1/nodes", false)]
    fn watches_are_recognised(#[case] uri: &str, #[case] expected: bool) {
        assert_eq!(is_watch(&uri.parse().unwrap()), expected);
    }

    fn request(uri: &str) -> Request<()> {
        Request::get(uri).body(()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn watches_do_not_wait_behind_calls() {
        let service = RateLimitLayer::new(RequestRate { qps: 0.001, burst: 1 })
            .layer(service_fn(|_: Request<()>| async { Ok::<_, BoxError>(()) }));
        service.clone().oneshot(request("/api/v1/pods")).await.unwrap();
        let began = Instant::now();
        service.clone().oneshot(request("/api/v1/pods?watch=true")).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
        service.oneshot(request("/api/v1/pods")).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_secs(1000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_holds_its_slot_until_its_answer_is_read_and_a_watch_holds_none() {
        let open = Arc::new(AtomicUsize::new(0));
        let opened = open.clone();
        let service = InFlightLayer::new(2, Duration::from_secs(60)).layer(service_fn(move |_: Request<()>| {
            opened.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, BoxError>(Response::new(Answer::from("answer"))) }
        }));
        let call = |uri| tokio::spawn(service.clone().oneshot(request(uri)));
        for _ in 0..5 {
            call("/api/v1/pods?watch=true").await.unwrap().unwrap();
        }
        let first = call("/api/v1/pods").await.unwrap().unwrap();
        let second = call("/api/v1/pods").await.unwrap().unwrap();
        let third = call("/api/v1/pods");
        tokio::task::yield_now().await;
        assert_eq!(open.load(Ordering::SeqCst), 7, "the third call waits");

        let text = axum::body::to_bytes(Answer::new(first.into_body()), 100).await.unwrap();
        assert_eq!(text, "answer");
        third.await.unwrap().unwrap();
        drop(second);
    }

    #[rstest]
    #[case::no_head(true)]
    #[case::no_body(false)]
    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_not_answered_in_full_ends_and_frees_its_slot(#[case] headless: bool) {
        let service =
            InFlightLayer::new(1, Duration::from_secs(60)).layer(service_fn(move |_: Request<()>| async move {
                if headless {
                    std::future::pending::<()>().await;
                }
                let never = futures::stream::pending::<Result<String, BoxError>>();
                Ok::<_, BoxError>(Response::new(Answer::from_stream(never)))
            }));
        for _ in 0..2 {
            let read = async {
                let response = service.clone().oneshot(request("/api/v1/pods")).await?;
                axum::body::to_bytes(Answer::new(response.into_body()), 100).await.map_err(axum::Error::into_inner)
            };
            let error = read.await.unwrap_err();
            assert!(error.to_string().contains("no complete response from the API server within 60s"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_accepted_and_never_answered_ends() {
        let service = InFlightLayer::new(1, Duration::from_secs(60)).layer(service_fn(|_: Request<()>| async {
            std::future::pending::<()>().await;
            Ok::<_, BoxError>(Response::new(Answer::empty()))
        }));
        let began = Instant::now();
        let error = service.oneshot(request("/api/v1/pods?watch=true")).await.unwrap_err();
        assert!(error.downcast_ref::<UnansweredRequest>().is_some(), "{error}");
        assert_eq!(began.elapsed(), Duration::from_secs(60));
    }

    #[rstest]
    #[case::refused("/api/v1/pods", 429, Some("1"), 3)]
    #[case::refused_for_no_time("/api/v1/pods", 429, None, 1)]
    #[case::unknown_outcome("/api/v1/pods", 504, Some("1"), 1)]
    #[case::disruption_budget("/api/v1/namespaces/n/pods/p/eviction", 429, Some("1"), 1)]
    #[tokio::test(start_paused = true)]
    async fn only_refused_requests_are_repeated(
        #[case] uri: &str,
        #[case] code: u16,
        #[case] retry_after: Option<&'static str>,
        #[case] calls: usize,
    ) {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = made.clone();
        let service = service_fn(move |_: Request<kube::client::Body>| {
            counter.fetch_add(1, Ordering::SeqCst);
            let mut answer = Response::builder().status(code);
            if let Some(seconds) = retry_after {
                answer = answer.header(RETRY_AFTER, seconds);
            }
            async move { Ok::<_, BoxError>(answer.body(()).unwrap()) }
        });
        let service = tower::retry::RetryLayer::new(RepeatRefused::at_most(2)).layer(service);
        let request = Request::post(uri).body(kube::client::Body::from(b"{}".to_vec())).unwrap();
        assert_eq!(service.oneshot(request).await.unwrap().status().as_u16(), code);
        assert_eq!(made.load(Ordering::SeqCst), calls);
    }
}
