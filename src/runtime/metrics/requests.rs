//! Metrics of API server requests, with client-go's names.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode, Uri};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use super::{CounterFamily, HistogramFamily, MetricDesc, TextExposition, series::SeriesGroup};
use crate::{
    limiter::is_watch,
    server_clock::{ServerClock, ServerClocks},
};

const TOTAL: MetricDesc<3> = MetricDesc::counter(
    "rest_client_requests_total",
    "Requests to an API server, by status code.",
    ["code", "method", "host"],
);
const LATENCY: MetricDesc<2> = MetricDesc::histogram(
    "rest_client_request_latency_seconds",
    "Duration of requests to an API server in seconds, including the wait for the client's own limits.",
    ["verb", "url"],
);
/// Label in place of a code, if there was no response.
const NO_ANSWER: &str = "<error>";
/// Host in the series of all servers together.
const ALL_HOSTS: &str = "*";

/// Observes the clients of API servers. Clones share the metrics.
#[derive(Clone, Debug, Default)]
pub struct RequestMetrics(Arc<RequestFamilies>);

#[derive(Debug)]
struct RequestFamilies {
    total: CounterFamily<3>,
    latency: HistogramFamily<2>,
    /// Of all servers since the start of the process. A sum of the series above would fall when a server leaves.
    total_of_all: CounterFamily<3>,
    latency_of_all: HistogramFamily<2>,
    /// Servers that have clients, by their base URL.
    servers: Mutex<HashMap<String, Weak<ServerSeries>>>,
    clocks: ServerClocks,
}

/// A server that has clients. Its series end with the last of them.
#[derive(Debug)]
struct ServerSeries {
    host: Arc<str>,
    base: String,
    all: Weak<RequestFamilies>,
}

impl Drop for ServerSeries {
    fn drop(&mut self) {
        let Some(all) = self.all.upgrade() else { return };
        let is_below =
            |url: &str, base: &str| url.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let mut servers = all.servers.lock();
        servers.retain(|_, server| server.strong_count() > 0);
        // Others, perhaps of the same host, or the same with a client that was made since.
        let is_others = |url: &str| servers.keys().any(|base| is_below(url, base));
        all.latency.retain(|[_, url]| !is_below(url, &self.base) || is_others(url));
        let is_of_host = |base: &String| base.split('/').nth(2) == Some(&*self.host);
        if !servers.keys().any(is_of_host) {
            all.total.retain(|[_, _, host]| **host != *self.host);
        }
    }
}

impl Default for RequestFamilies {
    fn default() -> Self {
        let latencies = || HistogramFamily::with_exponential_bounds(0.001, 2.0, 10);
        Self {
            total: CounterFamily::default(),
            latency: latencies(),
            total_of_all: CounterFamily::default(),
            latency_of_all: latencies(),
            servers: Mutex::default(),
            clocks: ServerClocks::default(),
        }
    }
}

impl RequestMetrics {
    /// A layer for the client of one API server.
    pub fn layer(&self, server: &Uri) -> RequestLayer {
        let host = host_of(server);
        let scheme = server.scheme_str().unwrap_or("https");
        let base = format!("{scheme}://{host}{}", server.path().trim_end_matches('/'));
        let mut servers = self.0.servers.lock();
        let known = servers.entry(base.clone()).or_default();
        let server = known.upgrade().unwrap_or_else(|| {
            let made = Arc::new(ServerSeries { host, base, all: Arc::downgrade(&self.0) });
            *known = Arc::downgrade(&made);
            made
        });
        RequestLayer { metrics: self.clone(), server }
    }

    /// The clock of an API server. The clients with its [`layer`](ServerClock::layer) measure it.
    pub fn clock(&self, server: &Uri) -> ServerClock {
        self.0.clocks.clock_for(&host_of(server))
    }

    /// The number of servers that have clients.
    pub(super) fn servers(&self) -> usize {
        self.0.servers.lock().values().filter(|server| server.strong_count() > 0).count()
    }

    pub(super) fn collect(&self, out: &mut TextExposition) {
        out.details(SeriesGroup::Clusters, |out| {
            self.0.total.collect(&TOTAL, out);
            self.0.latency.collect(&LATENCY, out);
        });
        if out.has_aggregates(SeriesGroup::Clusters) {
            self.0.total_of_all.collect(&TOTAL, out);
            self.0.latency_of_all.collect(&LATENCY, out);
        }
        self.0.clocks.collect(out);
    }
}

/// Host and port. The user part of an address may be a password.
fn host_of(server: &Uri) -> Arc<str> {
    let host = server.authority().map(|all| all.as_str().rsplit('@').next().unwrap_or_default());
    host.unwrap_or_default().into()
}

/// See [`RequestMetrics::layer`].
#[derive(Clone, Debug)]
pub struct RequestLayer {
    metrics: RequestMetrics,
    server: Arc<ServerSeries>,
}

impl RequestLayer {
    fn answered(&self, method: &str, code: &str, took: Option<(String, Duration)>) {
        let RequestFamilies { total, latency, total_of_all, latency_of_all, .. } = &*self.metrics.0;
        let ServerSeries { host, base, .. } = &*self.server;
        total.add([code, method, host], 1.0);
        total_of_all.add([code, method, ALL_HOSTS], 1.0);
        if let Some((path, duration)) = took {
            latency.observe([method, &format!("{base}{path}")], duration.as_secs_f64());
            latency_of_all.observe([method, &format!("https://{ALL_HOSTS}{path}")], duration.as_secs_f64());
        }
    }
}

impl<S> Layer<S> for RequestLayer {
    type Service = RequestService<S>;

    fn layer(&self, inner: S) -> RequestService<S> {
        RequestService { inner, observer: self.clone() }
    }
}

/// A client that is observed.
#[derive(Clone, Debug)]
pub struct RequestService<S> {
    inner: S,
    observer: RequestLayer,
}

impl<S, B, R> Service<Request<B>> for RequestService<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<R>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let observer = self.observer.clone();
        let method = request.method().clone();
        // A watch has no latency.
        let path = (!is_watch(request.uri())).then(|| template(request.uri()));
        let began = Instant::now();
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            let status = answer.as_ref().ok().map(Response::status);
            let code = status.as_ref().map_or(NO_ANSWER, StatusCode::as_str);
            observer.answered(method.as_str(), code, path.map(|path| (path, began.elapsed())));
            answer
        }
        .boxed()
    }
}

/// A path without names and values, so that there are few series. Empty for a path that is not a resource.
fn template(uri: &Uri) -> String {
    let mut segments: Vec<&str> = uri.path().split('/').skip(1).collect();
    let resource = match segments.first().copied() {
        Some("api") => 2,
        Some("apis") => 3,
        _ if segments.len() < 2 => return uri.path().to_owned(),
        _ => return "/%7Bprefix%7D".to_owned(),
    };
    let is_part = |part: Option<&&str>| matches!(part, Some(&"status" | &"finalize"));
    let below = segments.len().saturating_sub(resource);
    let (namespace, name) = match below {
        0 | 1 => (None, None),
        2 => (None, Some(1)),
        3 if is_part(segments.get(resource + 2)) => (None, Some(1)),
        3 => (Some(1), None),
        _ if is_part(segments.get(resource + 3)) => (Some(1), None),
        _ => (Some(1), Some(3)),
    };
    for (place, text) in [(namespace, "%7Bnamespace%7D"), (name, "%7Bname%7D")] {
        if let Some(segment) = place.and_then(|place| segments.get_mut(resource + place)) {
            *segment = text;
        }
    }
    let mut keys: Vec<&str> =
        uri.query().into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.split('=').next()).collect();
    keys.retain(|key| !key.is_empty());
    keys.sort_unstable();
    keys.dedup();
    let values: Vec<String> = keys.into_iter().map(|key| format!("{key}=%7Bvalue%7D")).collect();
    let question = if values.is_empty() { "" } else { "?" };
    format!("/{}{question}{}", segments.join("/"), values.join("&"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tower::{ServiceExt, service_fn};

    use super::*;

    #[rstest]
    #[case("/version", "/version")]
    #[case("/api/v1/nodes", "/api/v1/nodes")]
    #[case("/api/v1/nodes/n1?", "/api/v1/nodes/%7Bname%7D")]
    #[case("/api/v1/nodes/n1/status", "/api/v1/nodes/%7Bname%7D/status")]
    #[case(
        "/api/v1/namespaces/a/secrets?limit=500&fieldSelector=x%3Dy",
        "/api/v1/namespaces/%7Bnamespace%7D/secrets?fieldSelector=%7Bvalue%7D&limit=%7Bvalue%7D"
    )]
    #[case(
        "/apis/machine.sapcloud.io/v1alpha1/namespaces/a/machines/m/status",
        "/apis/machine.sapcloud.io/v1alpha1/namespaces/%7Bnamespace%7D/machines/%7Bname%7D/status"
    )]
    #[case("/livez/ping/etcd", "/%7Bprefix%7D")]
    fn urls_carry_no_names(#[case] uri: &str, #[case] expected: &str) {
        assert_eq!(template(&uri.parse().unwrap()), expected);
    }

    #[tokio::test]
    async fn series_of_a_server_end_with_its_last_client() {
        let metrics = RequestMetrics::default();
        let client = |url: &str| {
            let answer = |_: Request<()>| async { Ok::<_, BoxError>(Response::new(())) };
            metrics.layer(&url.parse().unwrap()).layer(service_fn(answer))
        };
        let text = || {
            let mut out = TextExposition::default();
            metrics.collect(&mut out);
            out.finish()
        };
        let clients = ["https://one", "https://one", "https://one/clusters/a", "https://one.two"].map(client);
        for client in &clients {
            client.clone().oneshot(Request::get("/api/v1/pods").body(()).unwrap()).await.unwrap();
        }
        let [one, again, below, other] = clients;
        drop(one);
        assert!(text().contains(r#"rest_client_requests_total{code="200",method="GET",host="one"} 3"#), "{}", text());
        drop((again, below));
        assert!(!text().contains("host=\"one\"") && !text().contains("https://one/"), "{}", text());
        assert!(text().contains("host=\"one.two\"") && text().contains("https://one.two/api/v1/pods"), "{}", text());
        drop(other);
        assert_eq!(text(), "");
    }

    #[tokio::test]
    async fn with_many_clusters_the_servers_are_counted_together_and_the_count_never_falls() {
        let metrics = RequestMetrics::default();
        let servers = ["https://one", "https://two/clusters/a"].map(|url| {
            let answer = |_: Request<()>| async { Ok::<_, BoxError>(Response::new(())) };
            metrics.layer(&url.parse().unwrap()).layer(service_fn(answer))
        });
        for server in &servers {
            server.clone().oneshot(Request::get("/api/v1/nodes").body(()).unwrap()).await.unwrap();
        }
        let collected = || {
            let mut out = TextExposition::aggregating([SeriesGroup::Clusters]);
            metrics.collect(&mut out);
            let omitted: Vec<_> = out.omitted().collect();
            (omitted, out.finish())
        };
        let (omitted, text) = collected();
        // Of each server a counter and a histogram with eleven buckets, a sum and a count.
        assert_eq!((metrics.servers(), omitted), (2, vec![(SeriesGroup::Clusters, 28)]));
        drop(servers);
        assert_eq!(collected(), (vec![(SeriesGroup::Clusters, 0)], text.clone()));
        for line in [
            r#"rest_client_requests_total{code="200",method="GET",host="*"} 2"#,
            r#"rest_client_request_latency_seconds_count{verb="GET",url="https://*/api/v1/nodes"} 2"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("one") && !text.contains("two"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn answers_failures_and_watches_are_told_apart() {
        let metrics = RequestMetrics::default();
        let client = metrics.layer(&"https://api.example:6443/".parse().unwrap()).layer(service_fn(
            |request: Request<()>| async move {
                tokio::time::sleep(Duration::from_millis(3)).await;
                match request.uri().path() {
                    "/api/v1/pods" => Ok(Response::new(())),
                    _ => Err(BoxError::from("broken")),
                }
            },
        ));
        for uri in ["/api/v1/pods", "/api/v1/pods?watch=true", "/api/v1/nodes"] {
            let _ = client.clone().oneshot(Request::get(uri).body(()).unwrap()).await;
        }

        let mut out = TextExposition::default();
        metrics.collect(&mut out);
        let text = out.finish();
        for line in [
            r#"rest_client_requests_total{code="200",method="GET",host="api.example:6443"} 2"#,
            r#"rest_client_requests_total{code="<error>",method="GET",host="api.example:6443"} 1"#,
            r#"rest_client_request_latency_seconds_bucket{verb="GET",url="https://api.example:6443/api/v1/pods",le="0.004"} 1"#,
            r#"rest_client_request_latency_seconds_count{verb="GET",url="https://api.example:6443/api/v1/pods"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
