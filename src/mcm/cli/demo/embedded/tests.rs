use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::EvictParams};
use serde_json::{Value, json};

use super::actors::take_steps;
use mcm_fake_api::{
    ApiServer, BUDGETS, DEFINITIONS, EVENTS, LEASES, NAMESPACES, NODES, PODS, PerfectNetwork, ServerObject, WORKLOADS,
};
use mcm_runtime::clock::SystemClock;

fn server() -> ApiServer {
    let server = ApiServer::new(&SystemClock, Arc::new(PerfectNetwork));
    server.create(&NAMESPACES, json!({ "metadata": { "name": "demo" } })).unwrap();
    server
}

/// Carries out steps until no more are due.
fn settle(server: &ApiServer) {
    let rounds = (0..50).take_while(|_| take_steps(server, Timestamp::now()) > 0).count();
    assert!(rounds < 50, "the steps do not end");
}

fn node(name: &str, cpu: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "taints": [{ "key": "simulated.mcm/fake", "effect": "NoSchedule" }] },
        "status": { "allocatable": { "cpu": cpu }, "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}

fn workload(replicas: usize) -> Value {
    let container = json!({ "name": "main", "resources": { "requests": { "cpu": "500m" } } });
    let tolerations = json!([{ "key": "simulated.mcm/fake", "operator": "Exists" }]);
    json!({
        "metadata": { "name": "web", "namespace": "demo" },
        "spec": {
            "replicas": replicas,
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [container], "tolerations": tolerations, "terminationGracePeriodSeconds": 1 },
            },
        },
    })
}

/// The Nodes of the pods that run, in order.
fn places(server: &ApiServer) -> Vec<String> {
    let is_running = |pod: &Arc<ServerObject>| pod.value["status"]["phase"] == "Running";
    let pods = server.all(&PODS).into_iter().filter(is_running);
    let mut places: Vec<String> = pods.map(|pod| pod.value["spec"]["nodeName"].as_str().unwrap().to_owned()).collect();
    places.sort();
    places
}

#[test]
fn pods_run_on_the_nodes_that_are_open_and_have_room() {
    let server = server();
    server.create(&WORKLOADS, workload(6)).unwrap();
    let mut closed = [node("cordoned", "16"), node("tainted", "16"), node("dead", "16")];
    closed[0]["spec"]["unschedulable"] = json!(true);
    closed[1]["spec"]["taints"] = json!([{ "key": "other", "effect": "NoSchedule" }]);
    closed[2]["status"]["conditions"][0]["status"] = json!("Unknown");
    for node in closed.into_iter().chain([node("a", "1"), node("b", "4")]) {
        server.create(&NODES, node).unwrap();
    }
    settle(&server);
    assert_eq!(places(&server), ["a", "a", "b", "b", "b", "b"]);
    let web = server.get(&WORKLOADS, "demo", "web").unwrap();
    assert_eq!(web.value["status"]["availableReplicas"], 6);

    server.edit(&WORKLOADS, "demo", "web", |web| web["spec"]["replicas"] = json!(20)).unwrap();
    settle(&server);
    assert_eq!((server.all(&PODS).len(), places(&server).len()), (20, 10), "ten of them wait for room");
}

#[test]
fn objects_end_with_their_owners_and_pods_with_their_nodes() {
    let server = server();
    let node_uid = server.create(&NODES, node("a", "4")).unwrap().uid().to_owned();
    let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "a", "uid": node_uid });
    let lease = json!({ "metadata": { "name": "a", "namespace": "demo", "ownerReferences": [owner] } });
    server.create(&LEASES, lease).unwrap();
    let other = json!({ "apiVersion": "example.org/v1", "kind": "Unserved", "name": "x", "uid": "x" });
    let kept = json!({ "metadata": { "name": "kept", "namespace": "demo", "ownerReferences": [other] } });
    server.create(&LEASES, kept).unwrap();
    server.create(&WORKLOADS, workload(2)).unwrap();
    settle(&server);
    assert_eq!(places(&server), ["a", "a"]);

    server.delete(&NODES, "", "a").unwrap();
    settle(&server);
    assert_eq!(places(&server), [""; 0]);
    let leases: Vec<String> = server.all(&LEASES).iter().map(|lease| lease.name().to_owned()).collect();
    assert_eq!(leases, ["kept"], "an owner of a kind that is not served is not missed");

    server.delete(&WORKLOADS, "demo", "web").unwrap();
    settle(&server);
    assert_eq!(server.all(&PODS).len(), 0);
}

#[tokio::test]
async fn a_budget_limits_evictions_until_its_pods_are_replaced() {
    let server = server();
    server.create(&NODES, node("a", "16")).unwrap();
    server.create(&WORKLOADS, workload(4)).unwrap();
    for (name, field, value) in [("b", "maxUnavailable", json!("50%")), ("c", "minAvailable", json!(3))] {
        server
            .create(
                &BUDGETS,
                json!({
                    "metadata": { "name": name, "namespace": "demo" },
                    "spec": { field: value, "selector": { "matchLabels": { "app": "web" } } },
                }),
            )
            .unwrap();
    }
    settle(&server);
    let allowed =
        |name: &str| server.get(&BUDGETS, "demo", name).unwrap().value["status"]["disruptionsAllowed"].clone();
    assert_eq!((allowed("b"), allowed("c")), (json!(2), json!(1)));

    server.delete(&BUDGETS, "demo", "b").unwrap();
    let pods: Api<Pod> = Api::namespaced(server.client("test"), "demo");
    let names: Vec<String> = server.all(&PODS).iter().map(|pod| pod.name().to_owned()).collect();
    pods.evict(&names[0], &EvictParams::default()).await.unwrap();
    assert!(pods.evict(&names[1], &EvictParams::default()).await.is_err(), "the first one is not replaced yet");
    settle(&server);
    assert!(server.get(&PODS, "demo", &names[0]).is_none());
    assert_eq!((places(&server).len(), allowed("c")), (4, json!(1)));
    pods.evict(&names[1], &EvictParams::default()).await.unwrap();
}

#[test]
fn a_namespace_is_emptied_before_it_is_removed() {
    let server = server();
    settle(&server);
    server.create(&LEASES, json!({ "metadata": { "name": "l", "namespace": "demo", "finalizers": ["f/g"] } })).unwrap();
    server.delete(&NAMESPACES, "", "demo").unwrap();
    settle(&server);
    let namespace = server.get(&NAMESPACES, "", "demo").unwrap();
    assert_eq!(namespace.value["status"]["phase"], "Terminating");
    server.edit(&LEASES, "demo", "l", |lease| lease["metadata"]["finalizers"] = json!([])).unwrap();
    settle(&server);
    assert!(server.all(&LEASES).is_empty() && server.all(&NAMESPACES).is_empty());
}

#[test]
fn definitions_are_established_and_old_events_removed() {
    let server = server();
    let names = json!({ "kind": "Machine", "plural": "machines" });
    let versions = json!([{ "name": "v1", "storage": true }]);
    let definition = json!({ "metadata": { "name": "machines" }, "spec": { "names": names, "versions": versions } });
    server.create(&DEFINITIONS, definition).unwrap();
    let event = json!({
        "metadata": { "name": "e", "namespace": "demo" }, "lastTimestamp": Timestamp::now().to_string(),
    });
    server.create(&EVENTS, event).unwrap();
    settle(&server);
    let status = server.get(&DEFINITIONS, "", "machines").unwrap().value["status"].clone();
    assert_eq!(status["storedVersions"], json!(["v1"]));
    assert_eq!(
        (&status["conditions"][1]["type"], &status["conditions"][1]["status"]),
        (&json!("Established"), &json!("True"))
    );
    assert_eq!(server.all(&EVENTS).len(), 1);
    take_steps(&server, Timestamp::now() + SignedDuration::from_mins(61));
    assert_eq!(server.all(&EVENTS).len(), 0);
}
