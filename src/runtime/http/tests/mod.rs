//! Endpoints over plain HTTP.

mod secured;

use std::{sync::Condvar, time::Duration};

use rstest::rstest;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::*;
use crate::metrics::{MetricCollector, TextExposition};
use mcm_driver::tls::use_ring;

struct Running {
    url: String,
    endpoints: HttpEndpoints,
    serving: RunningServer,
}

async fn run(profiling: bool) -> Running {
    run_within(profiling, ConnectionLimits::default()).await
}

async fn run_within(profiling: bool, limits: ConnectionLimits) -> Running {
    let endpoints = HttpEndpoints {
        metrics: MetricsRegistry::new(),
        readiness: ProcessReadiness::default(),
        shutdown: CancellationToken::new(),
        activity: ControllerActivity::default(),
        diagnostics: true,
        cells: Arc::default(),
        config: Arc::new(json!({ "mcm": {} })),
        readers: DiagnosticReaders::Local,
        profiling,
    };
    let server = EndpointServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let url = format!("http://{}", server.address());
    Running { url, endpoints: endpoints.clone(), serving: server.serve_within(endpoints, limits) }
}

impl Running {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.url.trim_start_matches("http://")).await.unwrap()
    }

    async fn get(&self, path: &str) -> (u16, String) {
        use_ring();
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
async fn health_is_lost_while_the_controllers_run_no_tasks() {
    let mut endpoints = run(false).await.endpoints;
    endpoints.activity = ControllerActivity::silent_for(Duration::from_secs(90));
    let server = EndpointServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let url = format!("http://{}", server.address());
    let running = Running { url, endpoints: endpoints.clone(), serving: server.serve(endpoints) };
    assert_eq!(running.get("/healthz").await, (500, "the controllers have run no task for 90 s".to_owned()));
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
async fn a_process_with_many_cells_is_ready_while_one_of_them_runs_and_names_the_problems_of_cells_on_request() {
    let server = EndpointServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let url = format!("http://{}", server.address());
    let endpoints = HttpEndpoints {
        metrics: MetricsRegistry::new(),
        readiness: ProcessReadiness::of_cells(),
        shutdown: CancellationToken::new(),
        activity: ControllerActivity::default(),
        diagnostics: false,
        cells: Arc::default(),
        config: Arc::new(json!({ "mcm": {} })),
        readers: DiagnosticReaders::Local,
        profiling: false,
    };
    let running = Running { url, endpoints: endpoints.clone(), serving: server.serve(endpoints) };
    assert_eq!(running.get("/readyz?verbose").await, (200, "OK".to_owned()), "there are no cells");
    let [a, b] = ["a", "b"].map(|cell| running.endpoints.readiness.expect(ProcessReadiness::run_of_cell(cell)));
    a.missing("no such file");
    b.missing("not started: the limit of open files");
    let none = "cell a: run: no such file\ncell b: run: not started: the limit of open files\n";
    assert_eq!(running.get("/readyz").await, (503, none.to_owned()), "none runs");
    b.ready();
    assert_eq!(running.get("/readyz").await, (200, "OK".to_owned()));
    assert_eq!(running.get("/readyz?verbose").await, (200, "cell a: run: no such file\n".to_owned()));
    running.endpoints.shutdown.cancel();
    assert_eq!(running.get("/readyz").await, (503, "shutting down\ncell a: run: no such file\n".to_owned()));
}

/// True if the server closes a connection, after it sent this.
async fn closes(mut connection: TcpStream, sent: &str) -> bool {
    let (mut rest, limit) = (Vec::new(), Duration::from_secs(60));
    connection.write_all(sent.as_bytes()).await.unwrap();
    timeout(limit, connection.read_to_end(&mut rest)).await.is_ok() && rest.is_empty()
}

#[tokio::test]
async fn connections_without_a_request_end_so_that_probes_come_through() {
    // Idle connections outlast a probe: they end only to make room.
    let minute = Duration::from_secs(60);
    let limits = ConnectionLimits { headers: minute, lifetime: minute, ..ConnectionLimits::default() };
    let running = run_within(false, limits).await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(running.connect().await);
        if idle.len() % 50 == 0 {
            let probe = timeout(Duration::from_secs(30), running.get("/healthz")).await;
            assert_eq!(probe, Ok((200, "OK".to_owned())), "after {} connections", idle.len());
        }
    }
    // Only the limit of headers ends these.
    let limits = ConnectionLimits { lifetime: Duration::from_secs(600), ..ConnectionLimits::default() };
    let running = run_within(false, limits).await;
    for sent in ["", "GET /metrics HTTP/1.1\r\nHost: a\r\n"] {
        assert!(closes(running.connect().await, sent).await, "half a request is none");
    }
}

#[tokio::test]
async fn metrics_have_the_media_type_that_old_scrapers_expect() {
    let running = run(false).await;
    running.endpoints.metrics.event_dropped();
    use_ring();
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

impl MetricCollector for Gate {
    fn collect(&self, _: &mut TextExposition) {
        let mut state = self.state.lock().unwrap();
        state.now += 1;
        state.most = state.most.max(state.now);
        while !state.is_open {
            state = self.changed.wait(state).unwrap();
        }
        state.now -= 1;
    }
}

/// The gate of a running server; opened in the end, because the runtime waits for blocked requests.
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
        let mut stream = self.connect().await;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
        stream
    }

    /// Waits until as many scrapes are blocked, and then as long as other requests take.
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
async fn concurrent_scrapes_are_bounded_even_for_clients_that_disconnect() {
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
    let limits = ConnectionLimits { lifetime: Duration::from_millis(300), ..ConnectionLimits::default() };
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
    assert_eq!(running.get("/configz").await, (200, r#"{"mcm":{"identities":[]}}"#.to_owned()));
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let first = EndpointServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let error = EndpointServer::bind(first.address()).await.unwrap_err();
    assert!(error.to_string().contains(&first.address().to_string()), "{error}");
}

/// Gets a path from an address of this host, with a header.
async fn get_from(running: &Running, from: [u8; 4], path: &str, (name, value): (&str, &str)) -> (u16, String) {
    use_ring();
    let client = reqwest::Client::builder().local_address(std::net::IpAddr::from(from)).build().unwrap();
    let answer = client.get(format!("{}{path}", running.url)).header(name, value).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[rstest]
#[case::direct([127, 0, 0, 1], ("host", "localhost:10258"), 200)]
#[case::an_address([127, 0, 0, 1], ("host", "127.0.0.1"), 200)]
#[case::another_address_as_of_a_pod([127, 0, 0, 6], ("host", "localhost"), 403)]
#[case::a_name_bound_to_the_loopback_address([127, 0, 0, 1], ("host", "evil.example:10258"), 403)]
#[case::a_proxy_beside_the_container([127, 0, 0, 1], ("x-forwarded-for", "10.1.2.3"), 403)]
#[tokio::test]
async fn texts_are_served_to_callers_on_the_loopback_address(
    #[case] from: [u8; 4],
    #[case] header: (&str, &str),
    #[case] expected: u16,
) {
    let running = run(false).await;
    for path in ["/configz", "/explain", "/explain?namespace=a&limit=1"] {
        assert_eq!(get_from(&running, from, path, header).await.0, expected, "{path}");
    }
    assert_eq!(get_from(&running, from, "/metrics", header).await.0, 200);
    let (status, text) = get_from(&running, from, "/explain/machine/shoot/m", header).await;
    let expected = if expected == 200 { (404, "is it the leader?") } else { (403, "kubectl port-forward") };
    assert!(status == expected.0 && text.contains(expected.1), "{status} {text}");
}
