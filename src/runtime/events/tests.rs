use std::{collections::BTreeMap, sync::Mutex};

use http::{Request, Response};
use http_body::Body as _;
use jiff::SignedDuration;
use kube::client::Body;
use serde_json::Value;
use tower::service_fn;

use super::*;
use crate::clock::ManualClock;
use mcm_api::{machine::Machine, reasons::EventReason};

/// Records the calls; returns the sent object of each, or a code.
#[derive(Clone, Default)]
struct Server {
    calls: Arc<Mutex<Vec<(String, String, Value)>>>,
    refuse: Arc<Mutex<BTreeMap<&'static str, u16>>>,
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        Client::new(service_fn(move |request| server.clone().answer(request)), "default")
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<axum::body::Body>, std::convert::Infallible> {
        let (parts, body) = request.into_parts();
        assert!(body.size_hint().exact().is_some());
        let bytes = axum::body::to_bytes(axum::body::Body::new(body), usize::MAX).await.unwrap();
        let sent: Value = serde_json::from_slice(&bytes).unwrap();
        self.calls.lock().unwrap().push((parts.method.to_string(), parts.uri.path().to_owned(), sent.clone()));
        let refused = self.refuse.lock().unwrap().remove(parts.method.as_str());
        let (code, answer) = match refused {
            Some(code) => (code, json!({"kind": "Status", "status": "Failure", "code": code})),
            None if parts.method == "POST" => (201, sent),
            None => (200, json!({"metadata": {"name": "e"}, "involvedObject": {}})),
        };
        let response = Response::builder().status(code).header("content-type", "application/json");
        Ok(response.body(axum::body::Body::from(answer.to_string())).unwrap())
    }

    fn calls(&self) -> Vec<(String, String, Value)> {
        self.calls.lock().unwrap().clone()
    }
}

struct Bench {
    server: Server,
    clock: ManualClock,
    events: EventRecorder,
    metrics: MetricsRegistry,
}

fn bench() -> Bench {
    let server = Server::default();
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    let metrics = MetricsRegistry::new();
    let events = EventRecorder::start(server.client(), "machine-controller", Arc::new(clock.clone()), metrics.clone());
    Bench { server, clock, events, metrics }
}

fn machine() -> Machine {
    let mut machine = Machine::new("m-1", Default::default());
    machine.metadata.namespace = Some("shoot".to_owned());
    machine.metadata.uid = Some("uid-1".to_owned());
    machine
}

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn an_event_is_written_in_core_v1_and_a_repetition_counted_on() {
    let Bench { server, clock, events, .. } = bench();
    let event = Event::warning(EventReason::CreateFailed, "no stock");
    events.record(&machine(), &event);
    clock.advance(SignedDuration::from_secs(60));
    events.record(&machine(), &event);
    assert!(events.flush(LONG).await);

    let calls = server.calls();
    let [(post, path, first), (patch, patched, second)] = calls.as_slice() else { panic!("{calls:?}") };
    assert_eq!((post.as_str(), path.as_str()), ("POST", "/api/v1/namespaces/shoot/events"));
    let name = first["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        *first,
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "m-1.18867251edfa0000", "namespace": "shoot"},
            "involvedObject": {
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "name": "m-1", "namespace": "shoot", "uid": "uid-1",
            },
            "type": "Warning", "reason": "CreateFailed", "message": "no stock",
            "source": {"component": "machine-controller"}, "reportingComponent": "machine-controller",
            "count": 1, "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        })
    );
    assert_eq!((patch.as_str(), patched.clone()), ("PATCH", format!("{path}/{name}")));
    assert_eq!(*second, json!({"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z"}));
}

#[tokio::test]
async fn an_expired_event_is_written_again() {
    let Bench { server, events, .. } = bench();
    let event = Event::normal(EventReason::Created, "made");
    events.record(&machine(), &event);
    assert!(events.flush(LONG).await);
    server.refuse.lock().unwrap().insert("PATCH", 404);
    events.record(&machine(), &event);
    assert!(events.flush(LONG).await);
    let methods: Vec<_> = server.calls().into_iter().map(|(method, ..)| method).collect();
    assert_eq!(methods, ["POST", "PATCH", "POST"]);
}

#[tokio::test]
async fn a_failed_write_is_counted_and_not_repeated() {
    let Bench { server, events, metrics, .. } = bench();
    server.refuse.lock().unwrap().insert("POST", 500);
    events.record(&machine(), &Event::normal(EventReason::Created, "made"));
    assert!(events.flush(LONG).await);
    assert_eq!(server.calls().len(), 1);
    assert!(metrics.render().contains("\nmcm_events_dropped_total 1\n"));
}

#[tokio::test]
async fn recording_never_waits_and_dropped_events_are_counted() {
    let Bench { events, metrics, .. } = bench();
    // The writer has no turn before the first await.
    for number in 0..WAITING + 3 {
        events.record(&machine(), &Event::normal(EventReason::Created, number.to_string()));
    }
    assert!(metrics.render().contains("\nmcm_events_dropped_total 3\n"));
}

#[tokio::test]
async fn long_messages_are_cut_between_characters() {
    let Bench { server, events, .. } = bench();
    events.record(&machine(), &Event::normal(EventReason::Created, "x".to_owned() + &"é".repeat(1000)));
    assert!(events.flush(LONG).await);
    let calls = server.calls();
    let message = calls[0].2["message"].as_str().unwrap();
    assert_eq!(message, "x".to_owned() + &"é".repeat(511));
}

#[tokio::test]
async fn components_speak_in_their_own_name_and_cluster_objects_in_the_default_namespace() {
    let Bench { server, events, .. } = bench();
    let node = ObjectReference { kind: Some("Node".to_owned()), name: Some("node-1".to_owned()), ..Default::default() };
    events.with_component("machineset-controller").record_for(node, &Event::normal(EventReason::Created, "made"));
    assert!(events.flush(LONG).await);
    let (_, path, event) = &server.calls()[0];
    assert_eq!(path, "/api/v1/namespaces/default/events");
    assert_eq!(event["source"]["component"], "machineset-controller");
}
