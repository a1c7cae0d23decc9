use k8s_openapi::api::core::v1::Node;
use kube::{client::Body, core::response::StatusDetails};
use rstest::rstest;

use super::*;

#[test]
fn a_refusal_is_reported_once_in_the_words_of_the_api_server() {
    let status = Status::failure("the object has been modified", "Conflict").with_code(409);
    let error = ObjectWriteError::new("patch", "Node", Key::new("", "n"), kube::Error::Api(Box::new(status)));
    assert_eq!(error.text(), "patch of Node n failed: the object has been modified");
    assert_eq!(error.failure(), WriteFailure::Conflict);
}

#[rstest]
#[case::this_object("n", WriteFailure::Gone)]
#[case::another_object("default", WriteFailure::Unknown)]
#[case::the_whole_kind("", WriteFailure::Unknown)]
fn only_objects_named_by_the_api_server_count_as_deleted(#[case] name: &str, #[case] expected: WriteFailure) {
    let details: StatusDetails = serde_json::from_value(json!({ "name": name })).unwrap();
    let status = Status::failure("not found", "NotFound").with_code(404).with_details(details);
    let error = ObjectWriteError::new("patch", "Node", Key::new("", "n"), kube::Error::Api(Box::new(status)));
    assert_eq!(error.failure(), expected);
}

#[rstest]
#[case::it_is_there(200, "", Some(true), true)]
#[case::it_is_gone(404, "n", Some(false), false)]
#[case::its_kind_is_not_served(404, "", None, true)]
#[case::no_answer(503, "n", None, true)]
#[tokio::test]
async fn an_object_leaves_the_cache_only_if_the_api_server_does_not_find_it(
    #[case] code: u16,
    #[case] named: &str,
    #[case] found: Option<bool>,
    #[case] is_kept: bool,
) {
    let object =
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n", "uid": "u", "resourceVersion": "7" } });
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": if code == 404 { "NotFound" } else { "ServiceUnavailable" }, "details": { "name": named },
    });
    let body = if code == 200 { object.to_string() } else { status.to_string() };
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let answer = http::Response::builder().status(code).body(Body::from(body.clone().into_bytes())).unwrap();
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let cache = ObjectCache::<Node>::new(&[], |_| {});
    cache.wrote(serde_json::from_value(object).unwrap());
    let nodes = CachedApi::cluster_wide(&cache, &Client::new(service, "default"));
    let read = nodes.read_again(&Key::new("", "n")).await;
    assert_eq!(read.ok().map(|node| node.is_some()), found);
    assert_eq!(cache.get(&Key::new("", "n")).is_some(), is_kept);
}

#[test]
fn a_patch_carries_the_version_it_was_made_for() {
    let seen = ObjectMeta { resource_version: Some("7".into()), ..ObjectMeta::default() };
    let patch = with_precondition(&json!({"metadata": {"labels": {"a": "b"}}}), &seen);
    assert_eq!(patch, json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}}));
}

/// An API server that records its requests and responds as configured.
#[derive(Clone, Default)]
struct Recorder(Arc<parking_lot::Mutex<Vec<(String, Value)>>>);

impl Recorder {
    fn objects(&self, cache: &Arc<ObjectCache<Node>>, code: u16, answer: Value) -> CachedApi<Node> {
        let recorder = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (recorder, answer) = (recorder.clone(), answer.clone());
            async move {
                let call = format!("{} {}", request.method(), request.uri().path());
                let sent = request.into_body().collect_bytes().await.unwrap();
                recorder.0.lock().push((call, serde_json::from_slice(&sent).unwrap_or_default()));
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(http::Response::builder().status(code).body(answer).unwrap())
            }
        });
        CachedApi::cluster_wide(cache, &Client::new(service, "default"))
    }

    fn sent(&self) -> (String, Value) {
        let mut calls = self.0.lock();
        assert_eq!(calls.len(), 1, "one call: {calls:?}");
        calls.remove(0)
    }
}

fn node(version: &str) -> Node {
    let metadata = json!({ "name": "n", "uid": "u", "resourceVersion": version });
    serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata })).unwrap()
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    let details = json!({ "name": "n", "kind": "nodes" });
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message, "details": details,
    })
}

#[derive(Clone, Copy, Debug)]
enum Write {
    Create,
    Patch,
    PatchStatus,
    PatchStrategically,
    PatchStatusStrategically,
    Delete,
}

impl Write {
    async fn send(self, nodes: &CachedApi<Node>) -> Result<(), ObjectWriteError> {
        let seen = node("7").metadata;
        let patch = json!({ "metadata": { "labels": { "a": "b" } } });
        match self {
            Self::Create => nodes.create(&node("")).await.map(drop),
            Self::Patch => nodes.patch(&seen, &patch).await.map(drop),
            Self::PatchStatus => nodes.patch_status(&seen, &patch).await.map(drop),
            Self::PatchStrategically => nodes.patch_strategically(&seen, &patch).await.map(drop),
            Self::PatchStatusStrategically => nodes.patch_status_strategically(&seen, &patch).await.map(drop),
            Self::Delete => nodes.delete(&seen).await,
        }
    }
}

#[rstest]
#[case(Write::Patch, "PATCH /api/v1/nodes/n", json!({ "resourceVersion": "7", "labels": { "a": "b" } }))]
#[case(Write::PatchStatus, "PATCH /api/v1/nodes/n/status", json!({ "resourceVersion": "7", "labels": { "a": "b" } }))]
#[case(Write::PatchStrategically, "PATCH /api/v1/nodes/n", json!({ "uid": "u", "labels": { "a": "b" } }))]
#[case(Write::PatchStatusStrategically, "PATCH /api/v1/nodes/n/status", json!({ "uid": "u", "labels": { "a": "b" } }))]
#[tokio::test]
async fn a_patch_names_its_purpose(#[case] write: Write, #[case] call: &str, #[case] metadata: Value) {
    let (cache, recorder) = (ObjectCache::<Node>::new(&[], |_| {}), Recorder::default());
    let nodes = recorder.objects(&cache, 200, serde_json::to_value(node("8")).unwrap());
    write.send(&nodes).await.unwrap();
    let (sent_to, sent) = recorder.sent();
    assert_eq!((sent_to.as_str(), &sent["metadata"]), (call, &metadata));
    let held = cache.get(&Key::new("", "n")).unwrap();
    assert_eq!(held.metadata.resource_version.as_deref(), Some("8"), "the answer is what is planned with next");
}

#[tokio::test]
async fn a_delete_is_of_this_very_object_and_in_the_background() {
    let (cache, recorder) = (ObjectCache::<Node>::new(&[], |_| {}), Recorder::default());
    cache.wrote(node("7"));
    let success = json!({ "kind": "Status", "apiVersion": "v1", "status": "Success", "details": { "name": "n" } });
    Write::Delete.send(&recorder.objects(&cache, 200, success)).await.unwrap();
    let (call, sent) = recorder.sent();
    assert_eq!(call, "DELETE /api/v1/nodes/n");
    assert_eq!(sent["preconditions"], json!({ "uid": "u" }));
    assert_eq!(sent["propagationPolicy"], "Background");
    assert_eq!(cache.get(&Key::new("", "n")), None);
}

#[tokio::test]
async fn a_delete_that_waits_for_finalizers_leaves_the_object_with_its_timestamp() {
    let (cache, recorder) = (ObjectCache::<Node>::new(&[], |_| {}), Recorder::default());
    cache.wrote(node("7"));
    let mut going = serde_json::to_value(node("8")).unwrap();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    going["metadata"]["finalizers"] = json!(["x"]);
    Write::Delete.send(&recorder.objects(&cache, 200, going)).await.unwrap();
    assert!(cache.get(&Key::new("", "n")).unwrap().metadata.deletion_timestamp.is_some());
}

#[rstest]
#[case::gone(failure(404, "NotFound", "no"), None, false)]
#[case::another_has_its_name(
    failure(
        409,
        "Conflict",
        "Operation cannot be fulfilled: Precondition failed: UID in precondition: u, UID in object meta: v"
    ),
    None,
    false
)]
#[case::refused_by_a_webhook(
    failure(409, "Conflict", "admission webhook denied it"),
    Some(WriteFailure::Conflict),
    true
)]
#[case::lost(failure(504, "Timeout", "x"), Some(WriteFailure::Unknown), true)]
#[tokio::test]
async fn a_delete_ends_an_object_only_if_it_is_certainly_deleted(
    #[case] answer: Value,
    #[case] expected: Option<WriteFailure>,
    #[case] is_kept: bool,
) {
    let (cache, recorder) = (ObjectCache::<Node>::new(&[], |_| {}), Recorder::default());
    cache.wrote(node("7"));
    let code = u16::try_from(answer["code"].as_u64().unwrap()).unwrap();
    let failed = Write::Delete.send(&recorder.objects(&cache, code, answer)).await.err();
    assert_eq!(failed.map(|error| error.failure()), expected);
    assert_eq!(cache.get(&Key::new("", "n")).is_some(), is_kept);
    assert_eq!(cache.wrote(node("9")).metadata.resource_version.as_deref(), Some("9"));
    assert_eq!(cache.get(&Key::new("", "n")).is_some(), is_kept, "what is gone is not revived by a late answer");
}

#[rstest]
#[case(500, "InternalError", WriteFailure::Unknown)]
#[case(502, "BadGateway", WriteFailure::Unknown)]
#[case(503, "ServiceUnavailable", WriteFailure::Unknown)]
#[case(504, "Timeout", WriteFailure::Unknown)]
#[case(429, "TooManyRequests", WriteFailure::Throttled)]
#[case(400, "BadRequest", WriteFailure::Refused)]
#[case(403, "Forbidden", WriteFailure::Refused)]
#[case(422, "Invalid", WriteFailure::Refused)]
#[case(409, "AlreadyExists", WriteFailure::AlreadyExists)]
#[case(409, "Conflict", WriteFailure::Conflict)]
#[tokio::test]
async fn only_calls_that_were_certainly_not_executed_count_as_refused(
    #[case] code: u16,
    #[case] reason: &str,
    #[case] expected: WriteFailure,
    #[values(
        Write::Create,
        Write::Patch,
        Write::PatchStatus,
        Write::PatchStrategically,
        Write::PatchStatusStrategically
    )]
    write: Write,
) {
    let (cache, recorder) = (ObjectCache::<Node>::new(&[], |_| {}), Recorder::default());
    cache.wrote(node("7"));
    let nodes = recorder.objects(&cache, code, failure(code, reason, "no"));
    assert_eq!(write.send(&nodes).await.unwrap_err().failure(), expected);
    assert!(cache.get(&Key::new("", "n")).is_some());
}

#[rstest]
#[case(Write::Patch)]
#[case(Write::PatchStatus)]
#[case(Write::PatchStrategically)]
#[case(Write::PatchStatusStrategically)]
#[tokio::test]
async fn a_patch_of_a_deleted_or_replaced_object_drops_it(#[case] write: Write, #[values(404, 422)] code: u16) {
    let (cache, recorder) = (ObjectCache::<Node>::new(&[], |_| {}), Recorder::default());
    cache.wrote(node("7"));
    let mut answer = failure(code, if code == 404 { "NotFound" } else { "Invalid" }, "no");
    if code == 422 {
        answer["details"]["causes"] =
            json!([{ "field": "metadata.uid", "reason": "FieldValueInvalid", "message": "immutable" }]);
    }
    let error = write.send(&recorder.objects(&cache, code, answer)).await.unwrap_err();
    assert_eq!(error.failure(), WriteFailure::Gone);
    assert_eq!(cache.get(&Key::new("", "n")), None);
}

const FAR: &str = "9999-12-31T23:59:59Z";

fn with_far_dates() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "n", "uid": "u", "resourceVersion": "8", "managedFields": [{ "manager": "m", "time": FAR }] },
        "status": { "conditions": [{ "type": "Ready", "status": "Unknown", "lastTransitionTime": FAR }] },
    })
}

#[tokio::test]
async fn responses_with_dates_that_cannot_be_represented_are_stored() {
    let seen: ObjectMeta = serde_json::from_value(json!({ "name": "n", "uid": "u", "resourceVersion": "7" })).unwrap();
    let cache = ObjectCache::<Node>::new(&[], |_| {});
    let nodes = Recorder::default().objects(&cache, 200, with_far_dates());
    nodes.patch(&seen, &json!({})).await.unwrap();
    let stored = cache.get(&Key::new("", "n")).unwrap();
    assert_eq!(stored.status.as_ref().unwrap().conditions.as_ref().unwrap()[0].status, "Unknown");
    assert!(nodes.read_again(&Key::new("", "n")).await.unwrap().is_some());
}

/// A Node that cannot be decoded, because its managed fields are nested too deep.
fn deep(version: &str, finalizers: &Value) -> Value {
    let nested = (0..200).fold(json!(1), |inner, _| json!({ "f:a": inner }));
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": {
        "name": "n", "uid": "u", "resourceVersion": version, "finalizers": finalizers,
        "deletionTimestamp": "2026-11-28T00:00:00Z", "managedFields": [{ "manager": "m", "fieldsV1": nested }],
    } })
}

#[rstest]
#[case::other_finalizers_are_left(json!(["x"]), Some("8"))]
#[case::it_is_deleted(json!([]), None)]
#[tokio::test]
async fn an_object_that_cannot_be_decoded_can_be_patched(#[case] finalizers: Value, #[case] version: Option<&str>) {
    let cache = ObjectCache::<Node>::new(&[], |_| {});
    let stored = serde_json::from_str::<GuardedObject<Node>>(&deep("7", &json!(["x", "y"])).to_string()).unwrap();
    cache.observe(kube::runtime::watcher::Event::Apply(stored));
    let key = Key::new("", "n");
    let seen = cache.metadata_of_unreadable(&key).unwrap();
    let recorder = Recorder::default();
    let nodes = recorder.objects(&cache, 200, deep("8", &finalizers));
    nodes.patch_any(&seen, &json!({ "metadata": { "finalizers": finalizers } })).await.unwrap();
    let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": "7" } });
    assert_eq!(recorder.sent(), ("PATCH /api/v1/nodes/n".to_owned(), patch));
    let left = cache.metadata_of_unreadable(&key);
    assert_eq!(left.and_then(|meta| meta.resource_version).as_deref(), version);
}

/// Errors of other modules wrap those of kube in different ways.
#[test]
fn the_text_of_a_refusal_is_its_message_however_it_is_wrapped() {
    #[derive(Debug, thiserror::Error)]
    enum Wrapped {
        #[error(transparent)]
        Transparent(kube::Error),
        #[error("event not written")]
        Named(#[source] kube::Error),
        #[error("event not written")]
        Boxed(#[source] Box<kube::Error>),
    }
    let error = || {
        let status = kube::core::Status::failure("namespaces \"n\" not found", "NotFound").with_code(404);
        kube::Error::Api(Box::new(status))
    };
    assert_eq!(chain(&Wrapped::Transparent(error())), "namespaces \"n\" not found");
    let named = "event not written: namespaces \"n\" not found";
    assert_eq!(chain(&Wrapped::Named(error())), named);
    assert_eq!(chain(&Wrapped::Boxed(Box::new(error()))), named);
}
