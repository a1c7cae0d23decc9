use std::sync::Arc;

use axum::body::to_bytes;
use http::header::ACCEPT;
use rstest::rstest;
use tower::ServiceExt;

use super::*;
use crate::{clock::VirtualClock, network::PerfectNetwork};

const TOKEN: &str = "t0ken";

fn api() -> ApiServer {
    let server = ApiServer::new(&VirtualClock::new(), Arc::new(PerfectNetwork));
    server.create(&NAMESPACES, json!({ "metadata": { "name": "demo" } })).unwrap();
    server
}

async fn send(server: &ApiServer, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> (u16, Value) {
    let mut request = http::Request::builder().method(method).uri(path);
    request = request.header(AUTHORIZATION, format!("Bearer {TOKEN}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let response = router(server, TOKEN).oneshot(request.body(body).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let body = to_bytes(response.into_body(), LARGEST_BODY).await.unwrap();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

const POOLS: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/demo/machinedeployments";
const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");
const APPLY: (&str, &str) = ("content-type", "application/apply-patch+yaml");

fn pool() -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": { "name": "pool", "namespace": "demo" }, "spec": { "replicas": 3 },
    })
}

#[rstest]
#[case::none("", 401)]
#[case::another("Bearer t0kem", 401)]
#[case::a_part("Bearer t0ke", 401)]
#[case::the_token("Bearer t0ken", 200)]
#[tokio::test]
async fn only_callers_with_the_token_are_served(#[case] given: &str, #[case] expected: u16) {
    let request = http::Request::get("/version").header(AUTHORIZATION, given).body(Body::empty()).unwrap();
    let response = router(&api(), TOKEN).oneshot(request).await.unwrap();
    assert_eq!(response.status(), expected);
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused() {
    let mut large = pool();
    large["metadata"]["annotations"] = json!({ "a": "x".repeat(LARGEST_BODY) });
    let (code, status) = send(&api(), "POST", POOLS, &[], large).await;
    assert_eq!((code, status["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
}

#[tokio::test]
async fn every_kind_is_discovered_with_its_subresources_and_has_a_schema() {
    let server = api();
    let (_, groups) = send(&server, "GET", "/apis", &[], Value::Null).await;
    let versions = groups["groups"].as_array().unwrap().iter();
    let mut roots: Vec<String> =
        versions.map(|group| format!("apis/{}", group["preferredVersion"]["groupVersion"].as_str().unwrap())).collect();
    roots.push("api/v1".to_owned());
    let mut found = Vec::new();
    let (_, index) = send(&server, "GET", "/openapi/v3", &[], Value::Null).await;
    for root in roots {
        let (_, list) = send(&server, "GET", &format!("/{root}"), &[], Value::Null).await;
        let names =
            list["resources"].as_array().unwrap().iter().map(|resource| resource["name"].as_str().unwrap().to_owned());
        found.extend(names);
        let url = index["paths"][&root]["serverRelativeURL"].as_str().unwrap();
        let (code, document) = send(&server, "GET", url, &[], Value::Null).await;
        assert_eq!(code, 200, "{url}");
        let patches = document["paths"].as_object().unwrap().values().filter_map(|path| path.get("patch"));
        for patch in patches {
            let parameters = patch["parameters"].as_array().unwrap();
            assert!(parameters.iter().any(|parameter| parameter["name"] == "fieldValidation"), "{patch}");
        }
    }
    for kind in crate::kinds::ALL {
        assert!(found.contains(&kind.plural.to_owned()), "{} is not discovered", kind.plural);
    }
    for name in ["machines/status", "machinedeployments/scale", "pods/eviction"] {
        assert!(found.contains(&name.to_owned()), "{name} is not discovered");
    }
}

#[tokio::test]
async fn a_list_as_a_table_has_columns_and_rows() {
    let server = api();
    send(&server, "POST", POOLS, &[], pool()).await;
    let accept = (ACCEPT.as_str(), "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    let (_, table) = send(&server, "GET", POOLS, &[accept], Value::Null).await;
    let names: Vec<&Value> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
    assert_eq!(json!(names), json!(["Name", "Ready", "Desired", "Up-to-date", "Available", "Age"]));
    assert_eq!(table["rows"][0]["cells"], json!(["pool", null, 3, null, null, "0s"]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn an_apply_creates_merges_and_removes_what_the_same_applier_leaves_out() {
    let server = api();
    let path = format!("{POOLS}/pool?fieldManager=kubectl&fieldValidation=Strict");
    let mut first = pool();
    first["spec"]["minReadySeconds"] = json!(5);
    first["metadata"]["labels"] = json!({ "a": "1" });
    assert_eq!(send(&server, "PATCH", &path, &[APPLY], first).await.0, 201);
    let other = json!({ "spec": { "paused": true } });
    assert_eq!(send(&server, "PATCH", &format!("{POOLS}/pool"), &[MERGE], other).await.0, 200);
    let mut second = pool();
    second["spec"]["replicas"] = json!(4);
    let (code, after) = send(&server, "PATCH", &path, &[APPLY], second).await;
    assert_eq!((code, &after["spec"]), (200, &json!({ "replicas": 4, "paused": true })));
    assert!(after["metadata"].get("labels").is_none(), "{after}");
}

#[tokio::test]
async fn a_dry_run_answers_with_the_object_and_stores_nothing() {
    let server = api();
    let path = format!("{POOLS}/pool?fieldManager=kubectl&dryRun=All");
    let (code, made) = send(&server, "PATCH", &path, &[APPLY], pool()).await;
    assert_eq!((code, &made["spec"]["replicas"]), (201, &json!(3)));
    assert_eq!(send(&server, "GET", &format!("{POOLS}/pool"), &[], Value::Null).await.0, 404);
    send(&server, "POST", POOLS, &[], pool()).await;
    let (code, _) = send(&server, "DELETE", &format!("{POOLS}/pool?dryRun=All"), &[], Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(send(&server, "GET", &format!("{POOLS}/pool"), &[], Value::Null).await.0, 200);
}

#[rstest]
#[case::unknown(json!({ "spec": { "replica": 3 } }), "?fieldValidation=Strict", 400, "unknown field \"spec.replica\"")]
#[case::unknown_in_a_list(
    json!({ "spec": { "selector": { "matchExpressions": [{ "key": "a", "operator": "Exists", "value": "x" }] } } }),
    "?fieldValidation=Strict", 400, "unknown field \"spec.selector.matchExpressions[0].value\""
)]
#[case::of_another_type(json!({ "spec": { "replicas": "3" } }), "", 422, "spec.replicas: Invalid value: \"3\"")]
#[case::above_the_limit(json!({ "spec": { "replicas": 2_000_000 } }), "", 422, "must be at most 1000000")]
#[tokio::test]
async fn a_field_that_the_definition_does_not_allow_is_refused(
    #[case] body: Value,
    #[case] query: &str,
    #[case] expected: u16,
    #[case] text: &str,
) {
    let server = api();
    send(&server, "POST", POOLS, &[], pool()).await;
    let (code, status) = send(&server, "PATCH", &format!("{POOLS}/pool{query}"), &[MERGE], body).await;
    assert_eq!(code, expected, "{status}");
    assert!(status["message"].as_str().unwrap().contains(text), "{status}");
}

#[tokio::test]
async fn an_unknown_field_is_left_out_where_validation_is_not_strict() {
    let server = api();
    let mut body = pool();
    body["spec"]["replica"] = json!(3);
    let (code, made) = send(&server, "POST", POOLS, &[], body).await;
    assert_eq!((code, &made["spec"]), (201, &json!({ "replicas": 3 })));
}

#[tokio::test]
async fn the_scale_of_a_deployment_is_read_and_written() {
    let server = api();
    send(&server, "POST", POOLS, &[], pool()).await;
    let path = format!("{POOLS}/pool/scale");
    let (_, scale) = send(&server, "GET", &path, &[], Value::Null).await;
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
    let (code, scale) = send(&server, "PATCH", &path, &[MERGE], json!({ "spec": { "replicas": 2 } })).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(2)));
    let (_, after) = send(&server, "GET", &format!("{POOLS}/pool"), &[], Value::Null).await;
    assert_eq!(after["spec"]["replicas"], 2);
    let (code, _) = send(&server, "PATCH", &path, &[MERGE], json!({ "spec": { "replicas": -1 } })).await;
    assert_eq!(code, 422);
}

#[tokio::test]
async fn a_json_patch_is_carried_out_as_a_whole_or_not() {
    let server = api();
    send(&server, "POST", POOLS, &[], pool()).await;
    let path = format!("{POOLS}/pool");
    let json_patch = ("content-type", "application/json-patch+json");
    let patch = json!([
        { "op": "test", "path": "/spec/replicas", "value": 3 },
        { "op": "replace", "path": "/spec/replicas", "value": 1 },
        { "op": "add", "path": "/spec/paused", "value": true },
    ]);
    let (code, after) = send(&server, "PATCH", &path, &[json_patch], patch).await;
    assert_eq!((code, &after["spec"]), (200, &json!({ "replicas": 1, "paused": true })));
    let wrong = json!([{ "op": "remove", "path": "/spec/paused" }, { "op": "remove", "path": "/spec/absent" }]);
    assert_eq!(send(&server, "PATCH", &path, &[json_patch], wrong).await.0, 422);
    let (_, after) = send(&server, "GET", &path, &[], Value::Null).await;
    assert_eq!(after["spec"], json!({ "replicas": 1, "paused": true }));
}

#[tokio::test]
async fn objects_are_created_in_namespaces_that_exist() {
    let other = POOLS.replace("demo", "other");
    let (code, status) = send(&api(), "POST", &other, &[], pool()).await;
    assert_eq!((code, status["message"].as_str()), (404, Some("namespaces \"other\" not found")));
}

#[tokio::test]
async fn the_texts_of_a_secret_are_stored_as_data() {
    let server = api();
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "userData": "a" } });
    let path = "/api/v1/namespaces/demo/secrets";
    let (_, made) = send(&server, "POST", path, &[], secret).await;
    assert_eq!((&made["data"]["userData"], made.get("stringData")), (&json!("YQ=="), None));
}

#[tokio::test(start_paused = true)]
async fn a_watch_in_place_of_a_list_begins_with_the_objects_and_a_bookmark() {
    let server = api();
    send(&server, "POST", POOLS, &[], pool()).await;
    let path = format!("{POOLS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1");
    let request =
        http::Request::get(path).header(AUTHORIZATION, format!("Bearer {TOKEN}")).body(Body::empty()).unwrap();
    let response = router(&server, TOKEN).oneshot(request).await.unwrap();
    let text = to_bytes(response.into_body(), LARGEST_BODY).await.unwrap();
    let events: Vec<Value> = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!((&events[0]["type"], &events[0]["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("pool")));
    assert_eq!(events[1]["type"], "BOOKMARK");
    assert_eq!(events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn every_access_is_allowed_and_other_media_types_are_refused() {
    let server = api();
    let review = json!({ "kind": "SelfSubjectAccessReview", "spec": { "resourceAttributes": { "verb": "delete" } } });
    let protobuf = ("content-type", "application/vnd.kubernetes.protobuf");
    for headers in [&[][..], &[protobuf]] {
        let (code, review) = send(&server, "POST", ACCESS_REVIEWS, headers, review.clone()).await;
        assert_eq!((code, &review["status"]["allowed"]), (201, &json!(true)));
    }
    assert_eq!(send(&server, "POST", POOLS, &[protobuf], pool()).await.0, 415);
}
