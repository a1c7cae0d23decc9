//! The HTTP endpoints: `/healthz`, `/readyz`, `/metrics`, `/configz` and a stub for `/debug/pprof`. Plain HTTP, for
//! probes and scrapers inside the cluster. Anybody in the cluster can reach them, so the number and duration of
//! connections is limited.

mod listener;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Json, Router,
    extract::State,
    http::{
        HeaderValue, StatusCode,
        header::{CONNECTION, CONTENT_TYPE},
    },
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    metrics::{self, Metrics},
    shutdown,
};
use listener::{Bounded, Limits};

/// Concurrent responses to `/metrics`; others wait.
const SCRAPES: usize = 2;

/// The data that the endpoints serve.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// Served at `/metrics`.
    pub metrics: Metrics,
    /// Served at `/readyz`.
    pub readiness: Readiness,
    /// Makes `/healthz` fail once it is cancelled.
    pub shutdown: CancellationToken,
    /// Whether `/metrics` and `/configz` are served beside health and readiness.
    pub diagnostics: bool,
    /// Whether `/debug/pprof` is served (`--profiling`).
    pub profiling: bool,
}

/// The endpoints cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: choose another --address or --port, or stop the process that uses it")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// A server that listens. Connections are accepted and are served after [`Self::serve`].
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Binds an address. With port 0 the operating system chooses a port.
    ///
    /// # Errors
    /// The address cannot be bound. The process must not continue, because it could not be probed.
    pub async fn bind(address: SocketAddr) -> Result<Self, HttpError> {
        let bind = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        bind.await.map_err(|source| HttpError::Bind { address, source })
    }

    #[cfg(test)]
    const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves in a task of its own until it is stopped.
    pub fn serve(self, endpoints: Endpoints) -> Serving {
        self.serve_within(endpoints, Limits::default())
    }

    fn serve_within(self, endpoints: Endpoints, limits: Limits) -> Serving {
        let stop = CancellationToken::new();
        let until = stop.clone().cancelled_owned();
        info!(address = %self.address, "serving endpoints");
        let task = tokio::spawn(async move {
            let listener = Bounded::new(self.listener, limits);
            if let Err(error) = axum::serve(listener, router(endpoints)).with_graceful_shutdown(until).await {
                warn!(%error, "endpoints stopped");
            }
        });
        Serving { stop, task }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Serving {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Serving {
    /// Stops it: accepts no new connections, and gives open requests a moment.
    pub async fn stop(self) {
        self.stop.cancel();
        if timeout(shutdown::ENDPOINTS, self.task).await.is_err() {
            warn!("connections still open after the shutdown period");
        }
    }
}

/// The readiness of the process: caches, Lease, API servers. Clones share it.
#[derive(Clone, Default)]
pub struct Readiness(Arc<Checks>);

#[derive(Default)]
struct Checks {
    parts: Mutex<BTreeMap<String, Option<String>>>,
    questions: Mutex<Vec<Question>>,
}

type Question = Box<dyn Fn() -> Vec<String> + Send + Sync>;

impl Readiness {
    /// Adds a part that is not ready yet.
    pub fn expect(&self, name: impl Into<String>) -> Part {
        let part = Part { name: name.into(), all: self.clone() };
        part.missing("not ready yet");
        part
    }

    /// Adds a check that runs at each request, so that readiness can be lost again.
    pub fn ask(&self, problems: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        self.0.questions.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(problems));
    }

    /// Drops the parts whose name has this prefix, when their cell ends.
    pub fn forget(&self, prefix: &str) {
        let mut parts = self.0.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|name, _| !name.starts_with(prefix));
    }

    /// The parts that are not ready, with their reasons.
    pub fn missing(&self) -> Vec<String> {
        let parts = self.0.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = parts.iter().filter_map(|(name, why)| why.as_ref().map(|why| format!("{name}: {why}")));
        let questions = self.0.questions.lock().unwrap_or_else(PoisonError::into_inner);
        missing.chain(questions.iter().flat_map(|problems| problems())).collect()
    }
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Readiness").field(&self.missing()).finish()
    }
}

/// One part of the readiness. It stays registered when this handle is dropped.
#[derive(Clone, Debug)]
pub struct Part {
    name: String,
    all: Readiness,
}

impl Part {
    /// The part is ready.
    pub fn ready(&self) {
        self.set(None);
    }

    /// The part is not ready, or no longer. `/readyz` shows the reason to anybody, so it must not contain secrets.
    pub fn missing(&self, why: impl Into<String>) {
        self.set(Some(why.into()));
    }

    fn set(&self, why: Option<String>) {
        self.all.0.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(self.name.clone(), why);
    }
}

fn router(endpoints: Endpoints) -> Router {
    let mut router = Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz));
    if endpoints.diagnostics {
        router = router.route("/metrics", get(scrape)).route("/configz", get(configz));
    }
    if endpoints.profiling {
        router = router.route("/debug/pprof", get(pprof)).route("/debug/pprof/", get(pprof));
        router = router.route("/debug/pprof/{*profile}", get(pprof));
    }
    let scrapes = Arc::new(Semaphore::new(SCRAPES));
    router.layer(map_response(last_answer)).with_state(Served { endpoints, scrapes })
}

#[derive(Clone)]
struct Served {
    endpoints: Endpoints,
    scrapes: Arc<Semaphore>,
}

/// Connections are limited, so none is kept open for a later request.
async fn last_answer(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn healthz(State(Served { endpoints, .. }): State<Served>) -> (StatusCode, &'static str) {
    if endpoints.shutdown.is_cancelled() {
        (StatusCode::INTERNAL_SERVER_ERROR, "Unhealthy")
    } else {
        (StatusCode::OK, "OK")
    }
}

async fn readyz(State(Served { endpoints, .. }): State<Served>) -> (StatusCode, String) {
    let mut missing = endpoints.readiness.missing();
    if endpoints.shutdown.is_cancelled() {
        missing.insert(0, "shutting down".to_owned());
    }
    if missing.is_empty() {
        (StatusCode::OK, "OK".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, missing.join("\n") + "\n")
    }
}

/// With thousands of machines this takes a while, so it runs outside the workers of the reconciles.
async fn scrape(State(Served { endpoints, scrapes }): State<Served>) -> Response {
    let Ok(one) = scrapes.acquire_owned().await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    // The work continues after the client disconnects, so it holds its slot until it ends.
    let render = move || {
        let text = endpoints.metrics.render();
        drop(one);
        text
    };
    match spawn_blocking(render).await {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn configz() -> Json<Value> {
    Json(json!({}))
}

async fn pprof() -> (StatusCode, &'static str) {
    (
        StatusCode::NOT_IMPLEMENTED,
        "this program has no pprof profiles; take them from outside with `perf record -g -p PID`\n",
    )
}

#[cfg(test)]
mod tests {
    use std::{sync::Condvar, time::Duration};

    use rstest::rstest;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;
    use crate::runtime::metrics::{Collect, Exposition};

    struct Running {
        url: String,
        endpoints: Endpoints,
        serving: Serving,
    }

    async fn run(profiling: bool) -> Running {
        run_within(profiling, Limits::default()).await
    }

    async fn run_within(profiling: bool, limits: Limits) -> Running {
        let endpoints = Endpoints {
            metrics: Metrics::new(),
            readiness: Readiness::default(),
            shutdown: CancellationToken::new(),
            diagnostics: true,
            profiling,
        };
        let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let url = format!("http://{}", server.address());
        Running { url, endpoints: endpoints.clone(), serving: server.serve_within(endpoints, limits) }
    }

    impl Running {
        async fn get(&self, path: &str) -> (u16, String) {
            let answer = reqwest::get(format!("{}{path}", self.url)).await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        }
    }

    #[tokio::test]
    async fn health_is_ok_until_the_shutdown() {
        let running = run(false).await;
        assert_eq!(running.get("/healthz").await, (200, "OK".to_owned()));
        running.endpoints.shutdown.cancel();
        assert_eq!(running.get("/healthz").await, (500, "Unhealthy".to_owned()));
        assert_eq!(running.get("/readyz").await.0, 503);
        running.serving.stop().await;
    }

    #[tokio::test]
    async fn readiness_names_what_is_missing() {
        let running = run(false).await;
        let cache = running.endpoints.readiness.expect("machine cache");
        let lease = running.endpoints.readiness.expect("lease machine-controller");
        cache.ready();
        assert_eq!(running.get("/readyz").await, (503, "lease machine-controller: not ready yet\n".to_owned()));
        lease.ready();
        assert_eq!(running.get("/readyz").await, (200, "OK".to_owned()));
        cache.missing("no watch for 2m");
        assert_eq!(running.get("/readyz").await, (503, "machine cache: no watch for 2m\n".to_owned()));
    }

    #[tokio::test]
    async fn readiness_is_taken_back_when_the_answer_to_a_question_changes() {
        let running = run(false).await;
        let age = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let asked = Arc::clone(&age);
        running.endpoints.readiness.ask(move || {
            let age = asked.load(std::sync::atomic::Ordering::SeqCst);
            (age > 45).then(|| format!("nodes of target: silent for {age} s")).into_iter().collect()
        });
        assert_eq!(running.get("/readyz").await, (200, "OK".to_owned()));
        age.store(50, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(running.get("/readyz").await, (503, "nodes of target: silent for 50 s\n".to_owned()));
        age.store(1, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(running.get("/readyz").await, (200, "OK".to_owned()));
    }

    #[tokio::test]
    async fn idle_connections_are_few_and_end_so_that_probes_come_through() {
        let limits = Limits { connections: 2, lifetime: Duration::from_millis(300) };
        let running = run_within(false, limits).await;
        let address = running.url.trim_start_matches("http://").to_owned();
        let mut idle = Vec::new();
        for _ in 0..5 {
            idle.push(tokio::net::TcpStream::connect(&address).await.unwrap());
        }
        assert_eq!(running.get("/healthz").await, (200, "OK".to_owned()));
        let mut rest = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut idle.remove(0), &mut rest).await.unwrap();
        assert!(rest.is_empty(), "the server has closed it");
    }

    #[tokio::test]
    async fn metrics_have_the_media_type_that_old_scrapers_expect() {
        let running = run(false).await;
        running.endpoints.metrics.event_dropped();
        let answer = reqwest::get(format!("{}/metrics", running.url)).await.unwrap();
        assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        assert!(answer.text().await.unwrap().contains("\nmcm_events_dropped_total 1\n"));
    }

    /// Holds up every scrape that reads it, until it is opened.
    #[derive(Default)]
    struct Gate {
        state: Mutex<Held>,
        changed: Condvar,
    }

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Held {
        now: usize,
        most: usize,
        is_open: bool,
    }

    impl Collect for Gate {
        fn collect(&self, _: &mut Exposition) {
            let mut state = self.state.lock().unwrap();
            state.now += 1;
            state.most = state.most.max(state.now);
            while !state.is_open {
                state = self.changed.wait(state).unwrap();
            }
            state.now -= 1;
        }
    }

    /// The gate of a running server; opened at last, for the runtime waits for what is held up.
    struct Keeper(Arc<Gate>);

    impl Keeper {
        fn of(running: &Running) -> Self {
            let gate = Arc::default();
            running.endpoints.metrics.attach(&gate);
            Self(gate)
        }

        fn held(&self) -> Held {
            *self.0.state.lock().unwrap()
        }

        fn open(&self) {
            self.0.state.lock().unwrap().is_open = true;
            self.0.changed.notify_all();
        }
    }

    impl Drop for Keeper {
        fn drop(&mut self) {
            self.open();
        }
    }

    impl Running {
        async fn begin_scrape(&self) -> TcpStream {
            let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).await.unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
            stream
        }

        /// Until as many scrapes are held up, and then for as long as it takes to answer to others.
        async fn until_held(&self, gate: &Keeper, count: usize) {
            while gate.held().now < count {
                self.get("/healthz").await;
            }
            for _ in 0..20 {
                assert_eq!(self.get("/healthz").await.0, 200);
            }
        }
    }

    async fn answer(mut stream: TcpStream) -> String {
        let mut text = String::new();
        let read = timeout(Duration::from_secs(20), stream.read_to_string(&mut text)).await;
        // A connection that breaks off may end with an error.
        let _ = read.expect("an answer, or an end");
        text
    }

    #[tokio::test]
    async fn few_scrapes_are_made_at_once_also_for_those_who_do_not_wait_for_them() {
        let running = run(false).await;
        let gate = Keeper::of(&running);
        let impatient = [running.begin_scrape().await, running.begin_scrape().await];
        running.until_held(&gate, SCRAPES).await;
        let patient = [running.begin_scrape().await, running.begin_scrape().await, running.begin_scrape().await];
        running.until_held(&gate, SCRAPES).await;
        drop(impatient);
        running.until_held(&gate, SCRAPES).await;
        assert_eq!(gate.held(), Held { now: SCRAPES, most: SCRAPES, is_open: false });
        gate.open();
        for stream in patient {
            assert!(answer(stream).await.starts_with("HTTP/1.1 200 OK"), "it has waited");
        }
        assert_eq!(gate.held().most, SCRAPES);
    }

    #[tokio::test]
    async fn a_scrape_that_takes_too_long_breaks_off() {
        let limits = Limits { lifetime: Duration::from_millis(300), ..Limits::default() };
        let running = run_within(false, limits).await;
        let gate = Keeper::of(&running);
        assert_eq!(answer(running.begin_scrape().await).await, "");
        gate.open();
        assert!(answer(running.begin_scrape().await).await.starts_with("HTTP/1.1 200 OK"));
    }

    #[rstest]
    #[case(false, 404)]
    #[case(true, 501)]
    #[tokio::test]
    async fn profiles_are_refused_where_they_were_asked_for(#[case] profiling: bool, #[case] status: u16) {
        let running = run(profiling).await;
        for path in ["/debug/pprof/", "/debug/pprof/heap"] {
            assert_eq!(running.get(path).await.0, status);
        }
        assert_eq!(running.get("/configz").await, (200, "{}".to_owned()));
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let first = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let error = Server::bind(first.address()).await.unwrap_err();
        assert!(error.to_string().contains(&first.address().to_string()), "{error}");
    }
}
