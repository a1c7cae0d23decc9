//! The endpoints: `/healthz`, `/readyz`, `/metrics`, `/configz` and the place of `/debug/pprof`. Plain HTTP, for probes and
//! scrapers inside the cluster.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::metrics::{self, Metrics};

/// How long open connections may hold up the end.
const GRACE: Duration = Duration::from_secs(5);

/// What the endpoints speak of.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// Printed at `/metrics`.
    pub metrics: Metrics,
    /// Answers `/readyz`.
    pub readiness: Readiness,
    /// Makes `/healthz` fail once it is cancelled.
    pub shutdown: CancellationToken,
    /// Whether `/debug/pprof` is there (`--profiling`).
    pub profiling: bool,
}

/// The endpoints could not be offered.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: choose another --address or --port, or end the process that holds it")]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

/// A server that listens. Connections are accepted, and answered once it serves.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Takes an address. With port 0 the operating system chooses one.
    ///
    /// # Errors
    /// The address cannot be had; the process must not go on, because nobody could probe it.
    pub async fn bind(address: SocketAddr) -> Result<Self, HttpError> {
        let bind = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        bind.await.map_err(|source| HttpError::Bind { address, source })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers from now on, in a task of its own, until it is stopped.
    pub fn serve(self, endpoints: Endpoints) -> Serving {
        let stop = CancellationToken::new();
        let until = stop.clone().cancelled_owned();
        info!(address = %self.address, "serving endpoints");
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(self.listener, router(endpoints)).with_graceful_shutdown(until).await {
                warn!(%error, "endpoints ended");
            }
        });
        Serving { stop, task }
    }
}

/// A server that answers.
#[derive(Debug)]
pub struct Serving {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Serving {
    /// Ends it: nothing new is accepted, open answers are finished, within five seconds.
    pub async fn stop(self) {
        self.stop.cancel();
        if timeout(GRACE, self.task).await.is_err() {
            warn!("connections were still open at the end");
        }
    }
}

/// What must be there before work can be done: caches, the lease, API servers. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<String, Option<String>>>>);

impl Readiness {
    /// Names a part that is not there yet.
    pub fn expect(&self, name: impl Into<String>) -> Part {
        let part = Part { name: name.into(), all: self.clone() };
        part.missing("not yet there");
        part
    }

    /// What is missing, and why.
    pub fn missing(&self) -> Vec<String> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().filter_map(|(name, why)| why.as_ref().map(|why| format!("{name}: {why}"))).collect()
    }
}

/// One thing that must be there. It stays known when this handle is dropped.
#[derive(Clone, Debug)]
pub struct Part {
    name: String,
    all: Readiness,
}

impl Part {
    /// It is there.
    pub fn ready(&self) {
        self.set(None);
    }

    /// It is not, or no longer. The reason is shown to anybody who asks: no secrets.
    pub fn missing(&self, why: impl Into<String>) {
        self.set(Some(why.into()));
    }

    fn set(&self, why: Option<String>) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).insert(self.name.clone(), why);
    }
}

fn router(endpoints: Endpoints) -> Router {
    let mut router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .route("/configz", get(configz));
    if endpoints.profiling {
        router = router.route("/debug/pprof", get(pprof)).route("/debug/pprof/", get(pprof));
        router = router.route("/debug/pprof/{*profile}", get(pprof));
    }
    router.with_state(endpoints)
}

async fn healthz(State(endpoints): State<Endpoints>) -> (StatusCode, &'static str) {
    if endpoints.shutdown.is_cancelled() {
        (StatusCode::INTERNAL_SERVER_ERROR, "Unhealthy")
    } else {
        (StatusCode::OK, "OK")
    }
}

async fn readyz(State(endpoints): State<Endpoints>) -> (StatusCode, String) {
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

async fn scrape(State(endpoints): State<Endpoints>) -> Response {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], endpoints.metrics.render()).into_response()
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
    use rstest::rstest;

    use super::*;

    struct Running {
        url: String,
        endpoints: Endpoints,
        serving: Serving,
    }

    async fn run(profiling: bool) -> Running {
        let endpoints = Endpoints {
            metrics: Metrics::new(),
            readiness: Readiness::default(),
            shutdown: CancellationToken::new(),
            profiling,
        };
        let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let url = format!("http://{}", server.address());
        Running { url, endpoints: endpoints.clone(), serving: server.serve(endpoints) }
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
        assert_eq!(running.get("/readyz").await, (503, "lease machine-controller: not yet there\n".to_owned()));
        lease.ready();
        assert_eq!(running.get("/readyz").await, (200, "OK".to_owned()));
        cache.missing("no watch for 2m");
        assert_eq!(running.get("/readyz").await, (503, "machine cache: no watch for 2m\n".to_owned()));
    }

    #[tokio::test]
    async fn metrics_have_the_media_type_that_old_scrapers_expect() {
        let running = run(false).await;
        let answer = reqwest::get(format!("{}/metrics", running.url)).await.unwrap();
        assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        assert!(answer.text().await.unwrap().contains("\nmcm_machine_stale_machines_total 0\n"));
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
