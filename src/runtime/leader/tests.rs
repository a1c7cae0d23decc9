use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Mutex, MutexGuard},
};

use axum::body::Body as Answer;
use futures::channel::mpsc;
use http::{Method, Request, Response};
use jiff::Timestamp;
use kube::client::Body;
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tower::service_fn;

use super::*;
use crate::freeze::FreezeCause;
use crate::{clock::SystemClock, http::ProcessReadiness, metrics::MetricsRegistry, separate::SeparateRuntime};

/// An API server that holds one Lease, and may be slow, deaf or mute.
#[derive(Clone)]
struct Server(Arc<Mutex<State>>);

struct State {
    lease: Option<Value>,
    version: u64,
    watchers: Vec<mpsc::UnboundedSender<Result<String, Infallible>>>,
    verbs: BTreeSet<&'static str>,
    events: Vec<String>,
    faults: Faults,
    /// The namespace is being deleted.
    is_terminating: bool,
    /// The namespace does not exist.
    is_missing: bool,
    /// Objects with finalizers, by `plural/name`.
    objects: BTreeMap<String, Value>,
}

struct Faults {
    rng: StdRng,
    /// Longest latency of a request, and of its answer, in milliseconds.
    latency: u64,
    /// Share of requests that never arrive, and of responses that are lost.
    loss: f64,
    /// The responses of all writes are lost.
    is_mute: bool,
}

impl Server {
    fn new() -> Self {
        Self::with_faults(0, 0, 0.0)
    }

    fn with_faults(seed: u64, latency: u64, loss: f64) -> Self {
        let faults = Faults { rng: StdRng::seed_from_u64(seed), latency, loss, is_mute: false };
        let (watchers, verbs, events, is_terminating, is_missing, objects) = Default::default();
        let state =
            State { lease: None, version: 0, watchers, verbs, events, faults, is_terminating, is_missing, objects };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn client(&self) -> Client {
        let server = self.clone();
        Client::new(service_fn(move |request| server.clone().serve(request)), "shoot")
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Answer>, Infallible> {
        self.travel().await;
        let (parts, body) = request.into_parts();
        let bytes = axum::body::to_bytes(Answer::new(body), usize::MAX).await.unwrap();
        let sent: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let answer = self.state().answer(&parts.method, &parts.uri, sent);
        let is_mute = self.state().faults.is_mute;
        if is_mute && parts.method != Method::GET {
            std::future::pending::<()>().await;
        }
        self.travel().await;
        Ok(answer)
    }

    async fn travel(&self) {
        let (time, lost) = {
            let Faults { rng, latency, loss, .. } = &mut self.state().faults;
            (rng.random_range(0..=*latency), rng.random_bool(*loss))
        };
        sleep(Duration::from_millis(time)).await;
        if lost {
            std::future::pending::<()>().await;
        }
    }

    fn lease(&self) -> Option<Value> {
        self.state().lease.clone()
    }

    /// The version of the last write.
    fn stored_version(&self) -> u64 {
        self.state().version
    }

    /// Writes the Lease as another client.
    fn put(&self, lease: Value) {
        self.state().store(Some(lease));
    }

    fn election(&self, identity: &str) -> LeaderElection {
        self.election_with(identity, LeaseTiming::default())
    }

    fn election_with(&self, identity: &str, timing: LeaseTiming) -> LeaderElection {
        let config = LeaseConfig {
            namespace: "shoot".to_owned(),
            name: "machine-controller".to_owned(),
            identity: identity.to_owned(),
            timing,
        };
        LeaderElection::new(self.client(), config, Arc::new(TokioClock(Instant::now()))).unwrap()
    }
}

impl State {
    fn answer(&mut self, method: &Method, uri: &http::Uri, sent: Value) -> Response<Answer> {
        const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/shoot/leases";
        let query = uri.query().unwrap_or_default();
        if uri.path().ends_with("/events") {
            self.events.push(sent["message"].as_str().unwrap_or_default().to_owned());
            return respond(201, &sent);
        }
        if let Some(path) = uri.path().strip_prefix("/apis/machine.sapcloud.io/v1alpha1/namespaces/shoot/") {
            return self.answer_of_machines(method, path, &sent);
        }
        let of_object = uri.path() == format!("{LEASES}/machine-controller");
        let verb = match (method.as_str(), of_object) {
            ("GET", true) => "get",
            ("GET", false)
                if query.contains("watch=true")
                    && query.contains("fieldSelector=metadata.name%3Dmachine-controller") =>
            {
                "watch"
            }
            ("GET", false) => "list",
            ("POST", false) if uri.path() == LEASES => "create",
            ("PUT", true) => "update",
            _ => "something else",
        };
        self.verbs.insert(verb);
        match verb {
            "get" => match &self.lease {
                Some(lease) => respond(200, lease),
                None => fail(404, "NotFound"),
            },
            "create" if self.is_missing => {
                let details = json!({"name": "shoot", "kind": "namespaces"});
                let body = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
                    "message": "namespaces \"shoot\" not found", "details": details});
                respond(404, &body)
            }
            "create" if self.is_terminating => {
                let causes = [json!({"reason": "NamespaceTerminating", "message": "", "field": "metadata.namespace"})];
                let body = json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
                    "message": "unable to create new content in namespace shoot because it is being terminated",
                    "details": {"name": "machine-controller", "kind": "leases", "causes": causes}});
                respond(403, &body)
            }
            "create" if self.lease.is_some() => fail(409, "AlreadyExists"),
            "update" if self.lease.is_none() => fail(404, "NotFound"),
            "update" if self.stored_version() != sent["metadata"]["resourceVersion"].as_str() => fail(409, "Conflict"),
            "create" | "update" => {
                self.store(Some(sent));
                respond(200, self.lease.as_ref().unwrap())
            }
            "watch" => self.watch(query),
            _ => fail(403, "Forbidden"),
        }
    }

    fn answer_of_machines(&mut self, method: &Method, path: &str, sent: &Value) -> Response<Answer> {
        if *method == Method::GET {
            let of_kind = self.objects.iter().filter(|(key, _)| key.starts_with(&format!("{path}/")));
            let items: Vec<&Value> = of_kind.map(|(_, object)| object).collect();
            return respond(200, &json!({"metadata": {}, "items": items}));
        }
        assert_eq!(*method, Method::PATCH);
        let Some(object) = self.objects.get_mut(path) else { return fail(404, "NotFound") };
        if object["metadata"]["resourceVersion"] != sent["metadata"]["resourceVersion"] {
            return fail(409, "Conflict");
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        for (name, value) in sent["metadata"]["annotations"].as_object().unwrap() {
            match value {
                Value::Null => drop(object["metadata"]["annotations"].as_object_mut().unwrap().remove(name)),
                value => object["metadata"]["annotations"][name] = value.clone(),
            }
        }
        respond(200, object)
    }

    /// Deletes the namespace: its Lease is removed, objects with finalizers stay.
    fn terminate(&mut self, left: &[&str]) {
        self.is_terminating = true;
        if self.lease.is_some() {
            self.store(None);
        }
        for key in left {
            self.version += 1;
            let name = key.rsplit('/').next().unwrap();
            let object = json!({"metadata": {
                "name": name, "uid": key, "resourceVersion": self.version.to_string(), "finalizers": ["f"],
                "annotations": {},
            }});
            self.objects.insert((*key).to_owned(), object);
        }
    }

    /// Another program writes an annotation of the first object.
    fn touch(&mut self, value: u32) {
        self.version += 1;
        let Some(object) = self.objects.values_mut().next() else { return };
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["annotations"]["machine.mcm/leader-of.machine-controller-manager"] =
            json!(format!("host_9 {value}"));
    }

    /// Holders of claims, with the objects that carry them.
    fn claims(&self) -> Vec<(String, String)> {
        let of = |(key, object): (&String, &Value)| {
            let text = object["metadata"]["annotations"]["machine.mcm/leader-of.machine-controller"].as_str()?;
            Some((key.clone(), text.split_once(' ')?.0.to_owned()))
        };
        self.objects.iter().filter_map(of).collect()
    }

    fn stored_version(&self) -> Option<&str> {
        self.lease.as_ref()?["metadata"]["resourceVersion"].as_str()
    }

    fn store(&mut self, lease: Option<Value>) {
        self.version += 1;
        let (kind, object) = match lease {
            Some(mut lease) => {
                lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
                self.lease = Some(lease.clone());
                ("MODIFIED", lease)
            }
            None => ("DELETED", self.lease.take().unwrap()),
        };
        let line = event(kind, &object);
        self.watchers.retain(|watcher| watcher.unbounded_send(Ok(line.clone())).is_ok());
    }

    fn watch(&mut self, query: &str) -> Response<Answer> {
        let (sender, lines) = mpsc::unbounded();
        if !query.ends_with(&format!("resourceVersion={}", self.version))
            && let Some(lease) = &self.lease
        {
            let line = event("MODIFIED", lease);
            sender.unbounded_send(Ok(line)).unwrap();
        }
        self.watchers.push(sender);
        Response::new(Answer::from_stream(lines))
    }
}

/// An event with `type` as its first field, as API servers send it.
fn event(kind: &str, object: &Value) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn respond(code: u16, body: &Value) -> Response<Answer> {
    Response::builder().status(code).body(Answer::from(body.to_string())).unwrap()
}

fn fail(code: u16, reason: &str) -> Response<Answer> {
    respond(code, &json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason }))
}

/// Follows the virtual time of the test.
#[derive(Debug)]
struct TokioClock(Instant);

impl TimeSource for TokioClock {
    fn now(&self) -> Timestamp {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + self.0.elapsed()
    }
}

fn held_by(identity: &str, renewed: &str) -> Value {
    json!({
        "metadata": {"name": "machine-controller", "namespace": "shoot", "labels": {"kept": "yes"}},
        "spec": {
            "holderIdentity": identity, "leaseDurationSeconds": 15, "leaseTransitions": 6,
            "acquireTime": "2025-01-01T00:00:00.000000Z", "renewTime": renewed,
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_renewed_and_written_as_client_go_writes_it() {
    let server = Server::new();
    let leadership = server.election("host_1").acquire().await;
    let spec = |lease: Option<Value>| lease.unwrap()["spec"].clone();
    let first = spec(server.lease());
    assert_eq!(
        first,
        json!({
            "holderIdentity": "host_1", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        })
    );

    sleep(Duration::from_secs(5)).await;
    let renewed = spec(server.lease());
    assert!(renewed["renewTime"].as_str() > Some("2026-01-01T00:00:03"), "{renewed}");
    assert_eq!(
        (&renewed["acquireTime"], &renewed["leaseTransitions"]),
        (&first["acquireTime"], &first["leaseTransitions"])
    );

    leadership.release().await;
    let released = spec(server.lease());
    assert_eq!((&released["holderIdentity"], &released["leaseDurationSeconds"]), (&json!(""), &json!(1)));
}

/// A response that takes long to decode must not cost the leadership.
#[tokio::test]
async fn a_leader_renews_in_a_separate_runtime_while_the_thread_of_the_controllers_is_busy() {
    let (server, separate) = (Server::new(), SeparateRuntime::start("elections").unwrap());
    let timing = LeaseTiming {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(30),
        retry_period: Duration::from_millis(20),
    };
    let election = separate.within(|| server.election_with("host_1", timing));
    let leadership = election.within(separate.handle().clone()).acquire().await;
    let first = server.stored_version();
    let began = std::time::Instant::now();
    // The only thread of this runtime is busy.
    while server.stored_version() < first + 5 {
        assert!(began.elapsed() < Duration::from_secs(30), "no renewals");
        std::thread::yield_now();
    }
    leadership.release().await;
    assert_eq!(server.lease().unwrap()["spec"]["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn a_lease_shows_since_when_and_why_machines_are_frozen() {
    let (server, notice) = (Server::new(), Arc::new(FreezeNotice::default()));
    let leadership = server.election("host_1").showing(Arc::clone(&notice)).acquire().await;
    let shown = || {
        let lease = server.lease().unwrap();
        let text = lease["metadata"]["annotations"]["machine.mcm/frozen"].as_str().map(str::to_owned);
        text.map(|text| serde_json::from_str::<Value>(&text).unwrap())
    };
    sleep(Duration::from_secs(5)).await;
    assert_eq!(shown(), None);
    let since = "2026-01-01T00:00:04Z";
    notice.set(Some(FreezeCause { since: since.parse().unwrap(), why: "no answer".to_owned() }));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(shown(), Some(json!({"identity": "host_1", "since": since, "why": "no answer"})));
    notice.set(None);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(shown(), None);
    leadership.release().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_verbs_that_the_role_grants_are_used() {
    let server = Server::new();
    let leader = server.election("host_1").acquire().await;
    let standby = tokio::spawn(server.election("host_2").acquire());
    sleep(Duration::from_secs(60)).await;
    server.state().store(None);
    sleep(Duration::from_secs(60)).await;
    drop(leader);
    standby.await.unwrap().release().await;
    assert_eq!(server.state().verbs, BTreeSet::from(["create", "get", "update", "watch"]));
}

#[tokio::test(start_paused = true)]
async fn after_a_release_a_standby_leads_within_a_second() {
    let server = Server::new();
    let leader = server.election("host_1").acquire().await;
    let standby = tokio::spawn(server.election("host_2").acquire());
    sleep(Duration::from_secs(31)).await;
    let token = leader.token();
    leader.release().await;
    assert!(token.is_cancelled(), "who released must not go on");

    let released = Instant::now();
    let _leadership = standby.await.unwrap();
    assert!(released.elapsed() < Duration::from_secs(1), "{:?}", released.elapsed());
    let spec = &server.lease().unwrap()["spec"];
    assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&json!("host_2"), &json!(1)));
}

#[rstest]
#[case::answered(false)]
#[case::lost(true)]
#[tokio::test(start_paused = true)]
async fn a_process_that_is_stopped_while_it_acquires_the_lease_leaves_no_name(#[case] is_mute: bool) {
    let server = Server::with_faults(7, 500, 0.0);
    server.state().faults.is_mute = is_mute;
    let (stop, read) = (CancellationToken::new(), server.clone());
    let standby = tokio::spawn({
        let stop = stop.clone();
        async move { server.election("host_1").acquire_until(&stop).await.is_some() }
    });
    while read.lease().is_none() {
        sleep(Duration::from_millis(1)).await;
    }
    stop.cancel();
    read.state().faults.is_mute = false;
    assert!(!standby.await.unwrap(), "it was stopped");
    assert_eq!(read.lease().unwrap()["spec"]["holderIdentity"], json!(""));
}

#[rstest]
#[case::clock_far_behind("1999-01-01T00:00:00.000000Z")]
#[case::clock_far_ahead("2099-01-01T00:00:00.000000Z")]
#[tokio::test(start_paused = true)]
async fn a_silent_leader_is_succeeded_after_the_time_that_we_saw_pass(#[case] renewed: &str) {
    let server = Server::new();
    server.put(held_by("go-host", renewed));
    let began = Instant::now();
    let _leadership = server.election("host_1").acquire().await;
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(15) && waited < Duration::from_secs(17), "{waited:?}");
    let lease = server.lease().unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], json!(7));
    assert_eq!(lease["metadata"]["labels"], json!({"kept": "yes"}));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_gives_up_before_others_take_over() {
    let server = Server::new();
    let leader = server.election("host_1").acquire().await;
    sleep(Duration::from_secs(3)).await;
    let standby = tokio::spawn(server.election("host_2").acquire());
    sleep(Duration::from_millis(500)).await;
    let began = Instant::now();
    server.state().faults.loss = 1.0;
    leader.lost().await;
    let held = began.elapsed();
    assert!(held >= Duration::from_secs(8) && held <= Duration::from_secs(10), "{held:?}");
    server.state().faults.loss = 0.0;
    let _leadership = standby.await.unwrap();
    assert!(began.elapsed() > held + Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_does_not_lengthen_the_term() {
    let server = Server::with_faults(7, 3_000, 0.0);
    let began = Instant::now();
    let timing = LeaseTiming { renew_deadline: Duration::from_secs(14), ..LeaseTiming::default() };
    let leader = server.election_with("host_1", timing).acquire().await;
    let acquired = began.elapsed();
    server.state().faults.loss = 1.0;
    leader.lost().await;
    let sent_at: Timestamp = server.lease().unwrap()["spec"]["renewTime"].as_str().unwrap().parse().unwrap();
    let sent = sent_at - "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap();
    let sent = Duration::try_from(sent).unwrap();
    assert!(acquired > sent + Duration::from_secs(1), "the answer was slow: {acquired:?} {sent:?}");
    assert!(began.elapsed() <= sent + Duration::from_millis(14_001), "{:?} {sent:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_stops_at_its_next_renewal() {
    let server = Server::new();
    let leader = server.election("host_1").acquire().await;
    server.put(held_by("go-host", "2026-01-01T00:00:00.000000Z"));
    tokio::time::timeout(Duration::from_secs(3), leader.lost()).await.unwrap();
    leader.release().await;
    assert_eq!(server.lease().unwrap()["spec"]["holderIdentity"], "go-host", "what is not ours is not released");
}

#[tokio::test(start_paused = true)]
async fn a_leader_survives_the_loss_of_its_lease_object_and_foreign_edits() {
    let server = Server::new();
    let leader = server.election("host_1").acquire().await;
    server.state().store(None);
    sleep(Duration::from_secs(5)).await;
    let mut edited = server.lease().unwrap();
    edited["metadata"]["labels"] = json!({"by": "hand"});
    server.put(edited);
    sleep(Duration::from_secs(20)).await;
    assert!(!leader.token().is_cancelled());
    assert_eq!(server.lease().unwrap()["metadata"]["labels"]["by"], "hand");
}

#[tokio::test(start_paused = true)]
async fn leadership_is_told_on_the_lease() {
    let server = Server::new();
    let events =
        EventRecorder::start(server.client(), "machine-controller", Arc::new(SystemClock), MetricsRegistry::new());
    let leader = server.election("host_1").recording(events.clone()).acquire().await;
    leader.release().await;
    assert!(events.flush(Duration::from_secs(5)).await);
    assert_eq!(server.state().events, ["host_1 became leader", "host_1 stopped leading"]);
}

#[tokio::test(start_paused = true)]
async fn a_standby_is_ready_once_it_knows_the_lease() {
    let server = Server::with_faults(1, 0, 1.0);
    let readiness = ProcessReadiness::default();
    let election = server.election("host_1").reporting(readiness.expect("lease machine-controller"));
    let standby = tokio::spawn(election.acquire());
    sleep(Duration::from_secs(11)).await;
    assert_eq!(readiness.missing(), ["lease machine-controller: no response within 5000ms"]);
    server.put(held_by("go-host", "2026-01-01T00:00:00.000000Z"));
    server.state().faults.loss = 0.0;
    sleep(Duration::from_secs(10)).await;
    assert!(readiness.missing().is_empty());
    standby.abort();
}

#[rstest]
#[case::a_go_program("go-host_2f1c9e3a-7b1d-4c59-9a52-0d7e5f3c1b11", true)]
#[case::a_replica("host_00000000000000000000000000000007", false)]
#[tokio::test(start_paused = true)]
async fn a_standby_shows_whether_another_program_holds_the_lease(#[case] holder: &str, #[case] expected: bool) {
    let (server, is_foreign) = (Server::new(), Arc::<AtomicBool>::default());
    server.put(held_by(holder, "2026-01-01T00:00:00.000000Z"));
    let standby = tokio::spawn(server.election("host_1").noticing(Arc::clone(&is_foreign)).acquire());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(is_foreign.load(Ordering::Relaxed), expected);
    let _leadership = standby.await.unwrap();
    assert!(!is_foreign.load(Ordering::Relaxed), "its Lease ran out");
}

#[tokio::test(start_paused = true)]
async fn an_idle_standby_makes_no_calls() {
    let server = Server::new();
    let _leader = server.election("host_1").acquire().await;
    let _standby = AbortOnDropHandle::new(tokio::spawn(server.election("host_2").acquire()));
    sleep(Duration::from_secs(10)).await;
    server.state().verbs.clear();
    sleep(Duration::from_secs(120)).await;
    assert_eq!(server.state().verbs, BTreeSet::from(["update"]), "the leader's renewals reach it by its watch");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_not_taken_before_the_term_of_its_holder_has_run_out() {
    let server = Server::new();
    server.put(held_by("go-host", "2026-01-01T00:00:00.000000Z"));
    let standby = tokio::spawn(server.election("host_1").acquire());
    sleep(Duration::from_secs(5)).await;
    server.state().store(None);
    let deleted = Instant::now();
    sleep(Duration::from_secs(9)).await;
    assert!(server.lease().is_none(), "go-host may lead for 15 s from when it was seen");
    let _leadership = standby.await.unwrap();
    assert!(deleted.elapsed() < Duration::from_secs(13), "{:?}", deleted.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_recreates_its_deleted_lease_stays_leader() {
    let server = Server::new();
    let leader = server.election("host_1").acquire().await;
    let standby = AbortOnDropHandle::new(tokio::spawn(server.election("host_2").acquire()));
    for _ in 0..5 {
        sleep(Duration::from_millis(6_100)).await;
        server.state().store(None);
    }
    sleep(Duration::from_secs(30)).await;
    assert!(!leader.token().is_cancelled() && !standby.is_finished());
    assert_eq!(server.lease().unwrap()["spec"]["holderIdentity"], "host_1");
}

#[tokio::test(start_paused = true)]
async fn the_lease_duration_of_the_holder_counts_not_ours() {
    let server = Server::new();
    let mut lease = held_by("go-host", "2026-01-01T00:00:00.000000Z");
    lease["spec"]["leaseDurationSeconds"] = json!(40);
    server.put(lease);
    let began = Instant::now();
    let _leadership = server.election("host_1").acquire().await;
    assert!(began.elapsed() >= Duration::from_secs(40), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_term_that_was_over_when_its_answer_came_is_not_used() {
    let server = Server::new();
    let state = server.clone();
    // This process is suspended between the write of the lease and the read of its response.
    let held_up = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let once = Arc::clone(&held_up);
    let client = Client::new(
        service_fn(move |request: Request<Body>| {
            let (server, once) = (state.clone(), Arc::clone(&once));
            async move {
                let is_write = request.method() != Method::GET;
                let answer = server.serve(request).await;
                if is_write && !once.swap(true, std::sync::atomic::Ordering::SeqCst) {
                    let _ = futures::poll!(std::pin::pin!(tokio::time::advance(Duration::from_secs(11))));
                }
                answer
            }
        }),
        "shoot",
    );
    let timing = LeaseTiming { renew_deadline: Duration::from_secs(10), ..LeaseTiming::default() };
    let config = server.election_with("host_1", timing).config;
    let began = Instant::now();
    let election = LeaderElection::new(client, config, Arc::new(TokioClock(Instant::now()))).unwrap();
    let leadership = election.acquire().await;
    assert!(held_up.load(std::sync::atomic::Ordering::SeqCst));
    let renewed: Timestamp = server.lease().unwrap()["spec"]["renewTime"].as_str().unwrap().parse().unwrap();
    let written = renewed - "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap();
    assert!(Duration::try_from(written).unwrap() >= Duration::from_secs(11), "the lease was claimed anew: {written}");
    assert!(began.elapsed() >= Duration::from_secs(11) && !leadership.token().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_lease_runs_out_instead_of_being_handed_over() {
    let server = Server::new();
    let leader = server.election("host_1").acquire().await;
    let standby = tokio::spawn(server.election("host_2").acquire());
    sleep(Duration::from_secs(3)).await;
    let token = leader.token();
    leader.abandon();
    sleep(Duration::from_millis(100)).await;
    assert!(token.is_cancelled());
    let abandoned = Instant::now();
    let _leadership = standby.await.unwrap();
    assert!(abandoned.elapsed() > Duration::from_secs(12), "{:?}", abandoned.elapsed());
}

#[tokio::test(start_paused = true)]
async fn in_a_terminating_namespace_a_leader_leads_by_an_annotation_until_its_objects_are_deleted() {
    let server = Server::new();
    let leader = server.election("host_1").acquire().await;
    let standby = tokio::spawn(server.election("host_2").acquire());
    sleep(Duration::from_secs(5)).await;
    server.state().terminate(&["machines/m", "machineclasses/c", "secrets/s"]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(server.state().claims(), [("machineclasses/c".to_owned(), "host_1".to_owned())]);
    server.state().objects.remove("machineclasses/c");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(server.state().claims(), [("machines/m".to_owned(), "host_1".to_owned())], "the claim moves");
    server.state().objects.clear();
    sleep(Duration::from_secs(60)).await;
    assert!(!leader.token().is_cancelled() && !standby.is_finished());

    // Another client recreates the namespace, and another process is faster.
    server.state().is_terminating = false;
    server.put(held_by("go-host", "2026-01-01T00:00:00.000000Z"));
    tokio::time::timeout(Duration::from_secs(3), leader.lost()).await.unwrap();
    assert_eq!(server.lease().unwrap()["spec"]["holderIdentity"], "go-host");
    standby.abort();
}

#[tokio::test(start_paused = true)]
async fn a_process_that_starts_in_a_namespace_that_is_being_deleted_leads_once_no_other_can() {
    let server = Server::new();
    let leader = server.election("host_1").acquire().await;
    server.state().terminate(&["machines/m", "machines/n"]);
    sleep(Duration::from_secs(10)).await;
    let begun = Instant::now();
    let restarted = tokio::spawn(server.election("host_2").acquire());
    sleep(Duration::from_secs(60)).await;
    assert!(!restarted.is_finished(), "the leader renews");
    let crashed = Instant::now();
    drop(leader);
    let leader = restarted.await.unwrap();
    assert!(crashed.elapsed() >= Duration::from_secs(12), "{:?}", crashed.elapsed());
    assert!(crashed.elapsed() <= Duration::from_secs(20), "{:?}", crashed.elapsed());
    assert_eq!(server.state().claims(), [("machines/m".to_owned(), "host_2".to_owned())]);

    // An orderly end lets the next one begin at once.
    let next = tokio::spawn(server.election("host_3").acquire());
    sleep(Duration::from_secs(30)).await;
    let released = Instant::now();
    leader.release().await;
    let leader = next.await.unwrap();
    assert!(released.elapsed() < Duration::from_secs(4), "{:?}", released.elapsed());
    assert!(!leader.token().is_cancelled() && begun.elapsed() > Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_acquired_is_reported_with_a_remedy() {
    let server = Server::new();
    server.state().terminate(&[]);
    let readiness = ProcessReadiness::default();
    let election = server.election("host_1").reporting(readiness.expect("lease"));
    let standby = AbortOnDropHandle::new(tokio::spawn(election.acquire()));
    sleep(Duration::from_secs(40)).await;
    let missing = readiness.missing();
    assert!(missing[0].starts_with("lease: the namespace shoot is being deleted"), "{missing:?}");
    assert!(!standby.is_finished(), "without objects that need a leader nothing is led");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_does_not_exist_is_named_with_its_server_and_awaited() {
    let server = Server::new();
    server.state().is_missing = true;
    let readiness = ProcessReadiness::default();
    let election = server.election("host_1").at("https://seed".to_owned()).reporting(readiness.expect("lease"));
    let standby = tokio::spawn(election.acquire());
    sleep(Duration::from_secs(90)).await;
    assert_eq!(readiness.missing(), ["lease: the namespace shoot does not exist on https://seed"]);
    server.state().is_missing = false;
    let _leadership = tokio::time::timeout(Duration::from_secs(5), standby).await.unwrap().unwrap();
    assert!(readiness.missing().is_empty());
}

#[test]
fn a_refusal_is_shown_without_the_status_object() {
    let status: Status = serde_json::from_value(json!({
        "status": "Failure", "code": 404, "reason": "NotFound", "message": "namespaces \"nope\" not found",
        "details": {"name": "nope", "kind": "namespaces"},
    }))
    .unwrap();
    assert!(matches!(LeaseCallError::from(kube::Error::Api(Box::new(status.clone()))), LeaseCallError::NoNamespace));
    let refusal =
        LeaseCallError::from(kube::Error::Api(Box::new(Status { code: 403, reason: "Forbidden".into(), ..status })));
    assert_eq!(refusal.to_string(), "it responded 403 Forbidden: namespaces \"nope\" not found");
}

#[rstest]
#[case(15, 10, 2, Ok(()))]
#[case(10, 10, 2, Err(InvalidTiming::Lease))]
#[case(0, 0, 0, Err(InvalidTiming::Lease))]
#[case(15, 2, 2, Err(InvalidTiming::Renew))]
#[case(15, 10, 0, Err(InvalidTiming::Retry))]
fn times_that_do_not_fit_are_refused(
    #[case] lease: u64,
    #[case] renew: u64,
    #[case] retry: u64,
    #[case] verdict: Result<(), InvalidTiming>,
) {
    let [lease_duration, renew_deadline, retry_period] = [lease, renew, retry].map(Duration::from_secs);
    assert_eq!(LeaseTiming { lease_duration, renew_deadline, retry_period }.validate(), verdict);
}

#[test]
fn two_processes_on_one_host_have_two_identities() {
    let (one, other) = (identity(), identity());
    assert_ne!(one, other);
    assert_eq!(one.rsplit_once('_').unwrap().0, other.rsplit_once('_').unwrap().0);
}

/// T26 of Cluster API: the Go programs are distinguished from ours by their identities.
#[test]
fn an_identity_of_a_go_program_is_not_of_our_form() {
    assert!(is_own_form(&identity()));
    for of_go in ["machine-controller-manager-7d9c5b8f6-x2x9k", "host_2f1c9e3a-7b1d-4c59-9a52-0d7e5f3c1b11", ""] {
        assert!(!is_own_form(of_go), "{of_go}");
    }
}

/// Simulates a process that leads for a while, and then releases, crashes or continues until it loses, repeatedly.
async fn live(server: Server, timing: LeaseTiming, id: usize, seed: u64, terms: Arc<Mutex<Vec<CancellationToken>>>) {
    let mut rng = StdRng::seed_from_u64(seed ^ (id as u64) << 32);
    for life in 0.. {
        let leadership = server.election_with(&format!("host-{id}_{life}"), timing).acquire().await;
        {
            let mut terms = terms.lock().unwrap();
            assert!(terms.iter().all(CancellationToken::is_cancelled), "host-{id} leads besides another");
            terms.push(leadership.token());
        }
        let term = Duration::from_millis(rng.random_range(0..60_000));
        tokio::select! {
            () = leadership.lost() => {}
            () = sleep(term) => if rng.random_bool(0.5) { leadership.release().await } else { drop(leadership) },
        }
        sleep(Duration::from_millis(rng.random_range(0..5_000))).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn never_two_lead_and_someone_does_when_the_faults_end(
        seed: u64, latency in 0u64..6_000, loss in 0.0..0.4, processes in 2usize..5, renew in 6u64..15,
        // When the namespace is deleted, in seconds; or never.
        deletion in proptest::option::of(0u64..600),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let server = Server::with_faults(seed, latency, loss);
            let timing = LeaseTiming { renew_deadline: Duration::from_secs(renew), ..LeaseTiming::default() };
            let terms = Arc::new(Mutex::new(Vec::new()));
            let mut lives = tokio::task::JoinSet::new();
            for id in 0..processes {
                lives.spawn(live(server.clone(), timing, id, seed, terms.clone()));
            }
            if let Some(deletion) = deletion {
                let server = server.clone();
                lives.spawn(async move {
                    sleep(Duration::from_secs(deletion)).await;
                    let keys: Vec<String> = (0..20).map(|number| format!("machines/m-{number:02}")).collect();
                    server.state().terminate(&keys.iter().map(String::as_str).collect::<Vec<_>>());
                    // The leader of the other Lease claims the same objects.
                    let renewals = server.clone();
                    tokio::spawn(async move {
                        for renewal in 0.. {
                            sleep(Duration::from_secs(2)).await;
                            renewals.state().touch(renewal);
                        }
                    });
                    // Its objects go one by one, and with them the claims.
                    for key in &keys[..19] {
                        sleep(Duration::from_secs(30)).await;
                        server.state().objects.remove(key.as_str());
                    }
                    std::future::pending::<()>().await;
                });
            }
            tokio::select! {
                died = lives.join_next() => panic!("{died:?}"),
                () = sleep(Duration::from_secs(600)) => {}
            }
            let before = terms.lock().unwrap().len();
            {
                let Faults { latency, loss, .. } = &mut server.state().faults;
                (*latency, *loss) = (20, 0.0);
            }
            tokio::select! {
                died = lives.join_next() => panic!("{died:?}"),
                () = sleep(Duration::from_secs(200)) => {}
            }
            assert!(terms.lock().unwrap().len() > before, "nobody leads");
        });
    }
}
