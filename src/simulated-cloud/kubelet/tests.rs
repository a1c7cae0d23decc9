//! The loop against an API server that serves only Nodes and Leases.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, patch, post},
};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::keep_nodes;
use crate::{CloudSimulator, CreateVm, KillMode, KillRequest, SimulationSettings, VmSelector};

/// Nodes by name, and every write in order.
#[derive(Default)]
struct Api {
    nodes: Mutex<BTreeMap<String, Value>>,
    writes: Mutex<Vec<String>>,
}

impl Api {
    fn log(&self, write: String) {
        self.writes.lock().unwrap().push(write);
    }

    fn writes(&self) -> Vec<String> {
        self.writes.lock().unwrap().clone()
    }

    fn node(&self, name: &str) -> Option<Value> {
        self.nodes.lock().unwrap().get(name).cloned()
    }
}

fn status(code: StatusCode, reason: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code.as_u16(), "message": reason});
    (code, Json(body)).into_response()
}

async fn create_node(State(api): State<Arc<Api>>, Json(mut node): Json<Value>) -> Response {
    let name = node["metadata"]["name"].as_str().unwrap().to_owned();
    let mut nodes = api.nodes.lock().unwrap();
    if nodes.contains_key(&name) {
        return status(StatusCode::CONFLICT, "AlreadyExists");
    }
    node["metadata"]["uid"] = json!(format!("uid-{}", api.writes().len()));
    nodes.insert(name.clone(), node.clone());
    api.log(format!("create {name}"));
    (StatusCode::CREATED, Json(node)).into_response()
}

async fn get_node(State(api): State<Arc<Api>>, Path(name): Path<String>) -> Response {
    api.node(&name).map_or_else(|| status(StatusCode::NOT_FOUND, "NotFound"), |node| Json(node).into_response())
}

async fn delete_node(State(api): State<Arc<Api>>, Path(name): Path<String>, body: Bytes) -> Response {
    let wanted: Value = serde_json::from_slice(&body).unwrap();
    let mut nodes = api.nodes.lock().unwrap();
    match nodes.get(&name) {
        None => status(StatusCode::NOT_FOUND, "NotFound"),
        Some(node) if node["metadata"]["uid"] != wanted["preconditions"]["uid"] => {
            status(StatusCode::CONFLICT, "Conflict")
        }
        Some(_) => {
            api.log(format!("delete {name}"));
            Json(nodes.remove(&name)).into_response()
        }
    }
}

async fn patch_status(State(api): State<Arc<Api>>, Path(name): Path<String>, Json(patch): Json<Value>) -> Response {
    let Some(node) = api.node(&name) else { return status(StatusCode::NOT_FOUND, "NotFound") };
    let ready = patch["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Ready").unwrap();
    api.log(format!("status {name} {}", ready["status"].as_str().unwrap()));
    Json(node).into_response()
}

async fn patch_lease(State(api): State<Arc<Api>>, Path(name): Path<String>) -> Response {
    let known = api.writes().contains(&format!("lease {name}"));
    if !known {
        return status(StatusCode::NOT_FOUND, "NotFound");
    }
    api.log(format!("renew {name}"));
    Json(json!({"metadata": {"name": name}})).into_response()
}

async fn create_lease(State(api): State<Arc<Api>>, Json(lease): Json<Value>) -> Response {
    api.log(format!("lease {}", lease["metadata"]["name"].as_str().unwrap()));
    Json(lease).into_response()
}

fn start() -> (Arc<Api>, Client) {
    let api = Arc::new(Api::default());
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let router = Router::new()
        .route("/api/v1/nodes", post(create_node))
        .route("/api/v1/nodes/{name}", get(get_node).delete(delete_node))
        .route("/api/v1/nodes/{name}/status", patch(patch_status))
        .route(leases, post(create_lease))
        .route(&format!("{leases}/{{name}}"), patch(patch_lease).delete(|| async { Json(json!({"metadata": {}})) }))
        .with_state(Arc::clone(&api));
    // Without a socket nothing waits for anything but the clock, which the tests have stopped.
    let client = Client::new(router, "default");
    (api, client)
}

/// Short delays, and no heartbeats unless a test needs them.
fn control() -> SimulationSettings {
    let nodes = json!({"heartbeatPeriod": "0s", "removalDelay": "10ms", "monitorGrace": "20ms"});
    SimulationSettings::replaced(&SimulationSettings::default(), json!({ "nodes": nodes })).unwrap()
}

fn keep(cloud: &Arc<CloudSimulator>, client: &Client) -> JoinHandle<()> {
    tokio::spawn(keep_nodes(Arc::clone(cloud), client.clone(), CancellationToken::new()))
}

fn vm(name: &str) -> CreateVm {
    CreateVm { machine_name: name.into(), namespace: "ns".into(), token: name.into(), ..CreateVm::default() }
}

fn named(name: &str) -> VmSelector {
    VmSelector { machine: Some(name.into()), ..VmSelector::default() }
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap_or_else(|_| panic!("waited in vain: {what}"));
}

#[tokio::test(start_paused = true)]
async fn a_node_is_created_and_deleted_with_its_vm_in_one_write_each() {
    let (api, client) = start();
    let cloud = Arc::new(CloudSimulator::new(1, control()));
    let _keeper = keep(&cloud, &client);
    let made = cloud.create(&vm("a")).await.unwrap();
    until("registration", || cloud.stats().nodes_registered == 1).await;
    assert_eq!(api.node("a").unwrap()["spec"]["providerID"], json!(made.provider_id));
    cloud.delete(&named("a")).await.unwrap();
    until("removal", || cloud.stats().nodes_removed == 1).await;
    assert_eq!(api.writes(), ["create a", "delete a"]);
    assert_eq!(cloud.state(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn heartbeats_go_to_a_lease_that_is_made_once() {
    let (api, client) = start();
    let cloud = Arc::new(CloudSimulator::new(1, control()));
    cloud.patch_control(json!({"nodes": {"heartbeatPeriod": "5ms"}})).unwrap();
    let _keeper = keep(&cloud, &client);
    cloud.create(&vm("a")).await.unwrap();
    until("a refreshed status", || api.writes().contains(&"status a True".to_owned())).await;
    let count = |write: &str| api.writes().iter().filter(|one| *one == write).count();
    assert_eq!(count("lease a"), 1);
    assert!(count("renew a") >= 29);
}

#[tokio::test(start_paused = true)]
async fn the_node_of_a_dead_vm_is_marked_and_of_a_vanished_one_removed() {
    let (api, client) = start();
    let cloud = Arc::new(CloudSimulator::new(1, control()));
    let _keeper = keep(&cloud, &client);
    for (name, mode) in [("s", KillMode::Stop), ("v", KillMode::Vanish), ("u", KillMode::Unregister)] {
        let made = cloud.create(&vm(name)).await.unwrap();
        until("registration", || cloud.state().vms.iter().any(|vm| vm.id == made.id && vm.joined)).await;
        cloud.kill(&made.id, KillRequest { mode }).unwrap();
        let last = match mode {
            KillMode::Stop => "status s Unknown".to_owned(),
            KillMode::Vanish | KillMode::Unregister => format!("delete {name}"),
        };
        until(&last, || api.writes().contains(&last)).await;
    }
    let expected = ["create s", "status s Unknown", "create v", "status v Unknown", "delete v", "create u", "delete u"];
    assert_eq!(api.writes(), expected);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_nodes_are_found_and_not_made_again() {
    let (api, client) = start();
    let dir = tempfile::tempdir().unwrap();
    let open = || Arc::new(CloudSimulator::open(&dir.path().join("state"), 1, control()).unwrap());
    let cloud = open();
    let keeper = keep(&cloud, &client);
    for name in ["stays", "goes", "lost"] {
        cloud.create(&vm(name)).await.unwrap();
    }
    until("registration", || cloud.stats().nodes_registered == 3).await;
    keeper.abort();
    cloud.delete(&named("goes")).await.unwrap();
    api.nodes.lock().unwrap().remove("lost");
    cloud.create(&vm("new")).await.unwrap();

    let cloud = open();
    let _keeper = keep(&cloud, &client);
    until("removal", || cloud.stats().nodes_removed == 1).await;
    until("registration", || cloud.stats().nodes_registered == 1).await;
    let writes = api.writes();
    let after: Vec<&str> = writes.iter().skip(3).map(String::as_str).collect();
    assert_eq!(after.len(), 2, "{after:?}");
    assert!(after.contains(&"create new") && after.contains(&"delete goes"), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_registration_with_an_unknown_outcome_finds_its_node() {
    let (api, client) = start();
    let cloud = Arc::new(CloudSimulator::new(1, control()));
    let made = cloud.create(&vm("a")).await.unwrap();
    let node = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"providerID": made.provider_id}});
    api.nodes.lock().unwrap().insert("a".into(), node);
    let _keeper = keep(&cloud, &client);
    until("adoption", || cloud.stats().nodes_registered == 1).await;
    cloud.delete(&named("a")).await.unwrap();
    until("removal", || api.node("a").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn the_node_of_another_vm_is_waited_out_and_never_removed() {
    let (api, client) = start();
    let foreign = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"providerID": "simulated:///z/other"}});
    api.nodes.lock().unwrap().insert("a".into(), foreign);
    let cloud = Arc::new(CloudSimulator::new(1, control()));
    let _keeper = keep(&cloud, &client);
    cloud.create(&vm("a")).await.unwrap();
    cloud.create(&vm("b")).await.unwrap();
    until("the other", || cloud.stats().nodes_registered == 1).await;
    cloud.delete(&named("a")).await.unwrap();
    until("forgetting", || cloud.state().departed.is_empty()).await;
    assert_eq!(api.node("a").unwrap()["metadata"]["uid"], "u");

    cloud.create(&vm("a")).await.unwrap();
    api.nodes.lock().unwrap().remove("a");
    until("registration", || cloud.stats().nodes_registered == 2).await;
}
