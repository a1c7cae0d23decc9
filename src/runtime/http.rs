//! The HTTP endpoints: `/healthz`, `/readyz`, `/metrics`, `/explain`, `/configz` and a stub for `/debug/pprof`. Plain HTTP,
//! for probes and scrapers inside the cluster; or TLS, for users that the API server authorizes. Any pod can reach
//! them, so the number and duration of connections is limited, and only callers on the loopback address get texts.

mod access;
mod certificate;
mod explain;
mod listener;
mod local;
mod secured;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{FromRef, State},
    http::{
        HeaderValue, StatusCode, Uri,
        header::{CONNECTION, CONTENT_TYPE},
    },
    middleware::{from_fn, from_fn_with_state, map_response},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::Value;
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    acceptor::TlsEndpoint,
    activity::ControllerActivity,
    cells::CellRegistry,
    metrics::{self, MetricsRegistry},
    shutdown,
};
pub use access::AccessReviewer;
pub use certificate::{CertificateError, CertificateFiles};
use listener::{ConnectionLimits, LimitedListener};
use local::PeerAddress;
use secured::TlsListener;

/// The end of the name of a part that shows whether a cell runs.
const RUN: &str = ": run";

/// Concurrent responses to `/metrics`; others wait.
const SCRAPES: usize = 2;

/// The data that the endpoints serve.
#[derive(Clone, Debug)]
pub struct HttpEndpoints {
    /// Served at `/metrics`.
    pub metrics: MetricsRegistry,
    /// Served at `/readyz`.
    pub readiness: ProcessReadiness,
    /// Makes `/healthz` fail once it is cancelled.
    pub shutdown: CancellationToken,
    /// Makes `/healthz` fail while the controllers run no tasks.
    pub activity: ControllerActivity,
    /// `/metrics`, `/explain` and `/configz` are served beside health and readiness.
    pub diagnostics: bool,
    /// Served at `/explain`.
    pub cells: Arc<CellRegistry>,
    /// Served at `/configz`.
    pub config: Arc<Value>,
    /// The callers that may read these two.
    pub readers: DiagnosticReaders,
    /// `/debug/pprof` is served (`--profiling`).
    pub profiling: bool,
}

/// The callers that may read `/explain` and `/configz`. The texts name objects and quote messages of clouds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiagnosticReaders {
    /// Callers on the loopback address.
    Local,
    /// Every caller.
    All,
}

/// The endpoints cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: choose another address, or stop the process that uses it")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// No certificate can be used.
    #[error("serve over TLS")]
    Certificate(#[from] CertificateError),
}

/// A server that listens. Connections are accepted and are served after [`Self::serve`].
#[derive(Debug)]
pub struct EndpointServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl EndpointServer {
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

    /// The address that is bound.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves in a background task until it is stopped.
    pub fn serve(self, endpoints: HttpEndpoints) -> RunningServer {
        self.serve_within(endpoints, ConnectionLimits::default())
    }

    fn serve_within(self, endpoints: HttpEndpoints, limits: ConnectionLimits) -> RunningServer {
        let stop = CancellationToken::new();
        let until = stop.clone().cancelled_owned();
        info!(address = %self.address, "serving endpoints");
        let task = tokio::spawn(async move {
            let listener = LimitedListener::new(self.listener, limits);
            let service = router(endpoints).into_make_service_with_connect_info::<PeerAddress>();
            if let Err(error) = axum::serve(listener, service).with_graceful_shutdown(until).await {
                warn!(%error, "endpoints stopped");
            }
        });
        RunningServer { stop, task }
    }

    /// Serves with TLS in a background task until it is stopped, and only users that the API server authorizes.
    ///
    /// # Errors
    /// The files of the certificate cannot be used.
    pub fn serve_secured(
        self,
        endpoints: HttpEndpoints,
        files: Option<CertificateFiles>,
        access: AccessReviewer,
    ) -> Result<RunningServer, HttpError> {
        self.serve_with(endpoints, certificate::endpoint(files, certificate::LOOK)?, access)
    }

    /// Serves a router over TLS in a background task until it is stopped. Its requests may last as long as watches do.
    ///
    /// # Errors
    /// The files of the certificate cannot be used.
    pub fn serve_router(self, router: Router, files: CertificateFiles) -> Result<RunningServer, HttpError> {
        let certificate = certificate::endpoint(Some(files), certificate::LOOK)?;
        self.serve_tls(router, certificate, ConnectionLimits::WATCHES)
    }

    /// Serves a router over TLS in a background task until it is stopped, with the limits of the endpoints: one request a connection.
    ///
    /// # Errors
    /// The files of the certificate cannot be used.
    pub fn serve_requests(self, router: Router, files: CertificateFiles) -> Result<RunningServer, HttpError> {
        let certificate = certificate::endpoint(Some(files), certificate::LOOK)?;
        info!(address = %self.address, "serving requests with TLS");
        self.serve_tls(router.layer(map_response(last_answer)), certificate, ConnectionLimits::default())
    }

    fn serve_with(
        self,
        endpoints: HttpEndpoints,
        certificate: TlsEndpoint,
        access: AccessReviewer,
    ) -> Result<RunningServer, HttpError> {
        info!(address = %self.address, "serving endpoints with TLS");
        // The API server authorizes every caller.
        let endpoints = HttpEndpoints { readers: DiagnosticReaders::All, ..endpoints };
        let router =
            router(endpoints).layer(from_fn_with_state(access, access::guard)).layer(map_response(last_answer));
        self.serve_tls(router, certificate, ConnectionLimits::default())
    }

    fn serve_tls(
        self,
        router: Router,
        certificate: TlsEndpoint,
        limits: ConnectionLimits,
    ) -> Result<RunningServer, HttpError> {
        let address = self.address;
        let listener = TlsListener::new(LimitedListener::new(self.listener, limits), certificate)
            .map_err(|source| HttpError::Bind { address, source })?;
        let stop = CancellationToken::new();
        let until = stop.clone().cancelled_owned();
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(until).await {
                warn!(%error, "endpoints stopped");
            }
        });
        Ok(RunningServer { stop, task })
    }
}

/// A running server.
#[derive(Debug)]
pub struct RunningServer {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RunningServer {
    /// Stops it: accepts no new connections, and gives open requests a moment.
    pub async fn stop(self) {
        self.stop.cancel();
        if timeout(shutdown::ENDPOINTS, self.task).await.is_err() {
            warn!("connections still open at the end of the shutdown period");
        }
    }
}

/// The readiness of the process: caches, Lease, API servers. Clones share it.
#[derive(Clone, Default)]
pub struct ProcessReadiness(Arc<ReadinessState>);

#[derive(Default)]
struct ReadinessState {
    /// The process has many cells, and works while one of them runs.
    is_of_cells: bool,
    parts: Mutex<BTreeMap<String, Option<String>>>,
    questions: Mutex<Vec<ReadinessCheck>>,
}

type ReadinessCheck = Box<dyn Fn() -> Vec<String> + Send + Sync>;

impl ProcessReadiness {
    /// The readiness of a process with many cells: one of them runs, or there are none.
    pub fn of_cells() -> Self {
        Self(Arc::new(ReadinessState { is_of_cells: true, ..ReadinessState::default() }))
    }

    /// The process is ready.
    pub fn is_ready(&self) -> bool {
        if self.0.is_of_cells { self.runs_a_cell() } else { self.missing().is_empty() }
    }

    fn runs_a_cell(&self) -> bool {
        let parts = self.0.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut runs = parts.iter().filter(|(name, _)| name.ends_with(RUN)).map(|(_, why)| why.is_none()).peekable();
        runs.peek().is_none() || runs.any(|runs| runs)
    }

    /// The name of the part that shows whether a cell runs.
    pub fn run_of_cell(cell: &str) -> String {
        format!("cell {cell}{RUN}")
    }

    /// The names of the parts that are not ready.
    pub fn missing_parts(&self) -> Vec<String> {
        let parts = self.0.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().filter(|(_, why)| why.is_some()).map(|(name, _)| name.clone()).collect()
    }

    /// Adds a part that is not ready yet.
    pub fn expect(&self, name: impl Into<String>) -> ReadinessPart {
        let part = ReadinessPart { name: name.into(), all: self.clone() };
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

impl std::fmt::Debug for ProcessReadiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Readiness").field(&self.missing()).finish()
    }
}

/// One part of the readiness. It stays registered when this handle is dropped.
#[derive(Clone, Debug)]
pub struct ReadinessPart {
    name: String,
    all: ProcessReadiness,
}

impl ReadinessPart {
    /// The part is ready.
    pub fn ready(&self) {
        self.set(None);
    }

    /// The part is not ready, or no longer. `/readyz` shows the reason without authentication, so it must not contain
    /// secrets.
    pub fn missing(&self, why: impl Into<String>) {
        self.set(Some(why.into()));
    }

    fn set(&self, why: Option<String>) {
        self.all.0.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(self.name.clone(), why);
    }
}

fn router(endpoints: HttpEndpoints) -> Router {
    let mut router = Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz));
    if endpoints.diagnostics {
        router = router.route("/metrics", get(scrape)).merge(texts(endpoints.readers));
    }
    if endpoints.profiling {
        router = router.route("/debug/pprof", get(pprof)).route("/debug/pprof/", get(pprof));
        router = router.route("/debug/pprof/{*profile}", get(pprof));
    }
    let scrapes = Arc::new(Semaphore::new(SCRAPES));
    router.layer(map_response(last_answer)).with_state(ServedEndpoints { endpoints, scrapes })
}

fn texts(readers: DiagnosticReaders) -> Router<ServedEndpoints> {
    let router = Router::new()
        .route("/configz", get(configz))
        .route("/explain", get(explain::all))
        .route("/explain/{kind}/{namespace}/{name}", get(explain::one));
    match readers {
        DiagnosticReaders::Local => router.layer(from_fn(local::guard)),
        DiagnosticReaders::All => router,
    }
}

impl FromRef<ServedEndpoints> for Arc<CellRegistry> {
    fn from_ref(served: &ServedEndpoints) -> Self {
        Self::clone(&served.endpoints.cells)
    }
}

#[derive(Clone)]
struct ServedEndpoints {
    endpoints: HttpEndpoints,
    scrapes: Arc<Semaphore>,
}

/// Limits the connections to a page for a browser on this computer, so that other programs do not keep it away. Its responses have
/// to pass [`last_answer`].
pub fn for_browser(listener: TcpListener) -> LimitedListener {
    let limits = ConnectionLimits {
        connections: 32,
        per_peer: 32,
        lifetime: Duration::from_secs(30),
        ..ConnectionLimits::default()
    };
    LimitedListener::new(listener, limits)
}

/// Connections are limited, so none is kept open for a later request.
pub async fn last_answer(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn healthz(State(ServedEndpoints { endpoints, .. }): State<ServedEndpoints>) -> (StatusCode, Cow<'static, str>) {
    if endpoints.shutdown.is_cancelled() {
        return (StatusCode::INTERNAL_SERVER_ERROR, "Unhealthy".into());
    }
    match endpoints.activity.stalled() {
        Some(silence) => {
            let text = format!("the controllers have run no task for {} s", silence.as_secs());
            (StatusCode::INTERNAL_SERVER_ERROR, text.into())
        }
        None => (StatusCode::OK, "OK".into()),
    }
}

/// With `?verbose` also the problems of cells.
async fn readyz(State(ServedEndpoints { endpoints, .. }): State<ServedEndpoints>, uri: Uri) -> (StatusCode, String) {
    let is_verbose = uri.query().is_some_and(|query| query.split('&').any(|key| key.starts_with("verbose")));
    let mut missing = endpoints.readiness.missing();
    let is_ready = endpoints.readiness.is_ready() && !endpoints.shutdown.is_cancelled();
    if endpoints.shutdown.is_cancelled() {
        missing.insert(0, "shutting down".to_owned());
    }
    let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    match missing.is_empty() || is_ready && !is_verbose {
        true => (code, "OK".to_owned()),
        false => (code, missing.join("\n") + "\n"),
    }
}

/// With thousands of machines this takes a while, so it runs outside the workers of the reconciles.
async fn scrape(State(ServedEndpoints { endpoints, scrapes }): State<ServedEndpoints>) -> Response {
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

/// The settings, and the names of this process in Leases: a reader compares them with the holder of the Lease.
async fn configz(State(ServedEndpoints { endpoints, .. }): State<ServedEndpoints>) -> Json<Value> {
    let mut config = Value::clone(&endpoints.config);
    if let Some(own) = config.get_mut("mcm").and_then(Value::as_object_mut) {
        own.insert("identities".to_owned(), endpoints.cells.identities().into());
    }
    Json(config)
}

async fn pprof() -> (StatusCode, &'static str) {
    (StatusCode::NOT_IMPLEMENTED, "this program serves no pprof profiles; record them with `perf record -g -p PID`\n")
}
