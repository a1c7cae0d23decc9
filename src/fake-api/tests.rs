use std::{sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::{
    Api, ResourceExt,
    api::{
        DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams,
    },
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{clock::VirtualClock, *};
use mcm_api::machine::{Machine, MachineStatus};

fn server() -> ApiServer {
    ApiServer::new(&VirtualClock::new(), Arc::new(PerfectNetwork))
}

fn machine(name: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "shoot" }, "spec": { "class": { "name": "a" } } })
}

fn code(error: &kube::Error) -> u16 {
    let kube::Error::Api(status) = error else { panic!("{error}") };
    status.code
}

fn machines(server: &ApiServer) -> Api<Machine> {
    Api::namespaced(server.client("test"), "shoot")
}

#[tokio::test(start_paused = true)]
async fn an_object_gets_what_only_a_server_can_give() {
    let server = server();
    let mut wanted: Machine = serde_json::from_value(machine("m")).unwrap();
    wanted.status = Some(MachineStatus::default());
    let made = machines(&server).create(&PostParams::default(), &wanted).await.unwrap();
    assert!(made.uid().is_some() && made.resource_version().is_some() && made.creation_timestamp().is_some());
    assert_eq!(made.metadata.generation, Some(1));
    assert_eq!(made.status, None, "status is written through its subresource only");
    let error = machines(&server).create(&PostParams::default(), &wanted).await.unwrap_err();
    assert_eq!(code(&error), 409);
}

#[tokio::test(start_paused = true)]
async fn a_patch_of_another_version_or_uid_is_a_conflict() {
    let server = server();
    let made = server.create(&MACHINES, machine("m")).unwrap();
    let api = machines(&server);
    for (meta, expected) in [
        (json!({ "resourceVersion": "77" }), Err(409)),
        (json!({ "uid": "another" }), Err(409)),
        (json!({ "resourceVersion": made.version.to_string(), "uid": made.uid() }), Ok(())),
    ] {
        let patch = Patch::Merge(json!({ "metadata": meta, "spec": { "providerID": "x" } }));
        let answer = api.patch("m", &PatchParams::default(), &patch).await;
        assert_eq!(answer.map(drop).map_err(|error| code(&error)), expected);
    }
    assert_eq!(api.get("m").await.unwrap().metadata.generation, Some(2), "one patch was carried out");
}

#[tokio::test(start_paused = true)]
async fn object_and_status_are_written_apart() {
    let server = server();
    server.create(&MACHINES, machine("m")).unwrap();
    let api = machines(&server);
    let both = Patch::Merge(json!({
        "metadata": { "labels": { "a": "b" } },
        "spec": { "providerID": "x" },
        "status": { "lastKnownState": "kept" },
    }));
    let machine = api.patch_status("m", &PatchParams::default(), &both).await.unwrap();
    assert!(machine.labels().is_empty() && machine.spec.provider_id.is_empty());
    assert_eq!((machine.status.unwrap().last_known_state.as_str(), machine.metadata.generation), ("kept", Some(1)));
    let other = Patch::Merge(json!({ "spec": { "providerID": "x" }, "status": { "lastKnownState": "lost" } }));
    let machine = api.patch("m", &PatchParams::default(), &other).await.unwrap();
    assert_eq!((machine.status.unwrap().last_known_state.as_str(), machine.metadata.generation), ("kept", Some(2)));
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_holds_an_object_until_it_is_removed() {
    let server = server();
    let mut wanted = machine("m");
    wanted["metadata"]["finalizers"] = json!(["f"]);
    let made = server.create(&MACHINES, wanted).unwrap();
    let api = machines(&server);
    let of = |uid: &str| DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    assert_eq!(code(&api.delete("m", &of("another")).await.unwrap_err()), 409);
    let going = api.delete("m", &of(made.uid())).await.unwrap().left().unwrap();
    assert!(going.metadata.deletion_timestamp.is_some());
    let more = Patch::Merge(json!({ "metadata": { "finalizers": ["f", "g"] } }));
    assert_eq!(code(&api.patch("m", &PatchParams::default(), &more).await.unwrap_err()), 422);
    let none = Patch::Merge(json!({ "metadata": { "finalizers": [] } }));
    api.patch("m", &PatchParams::default(), &none).await.unwrap();
    assert_eq!(api.get_opt("m").await.unwrap(), None);
    assert_eq!(code(&api.delete("m", &DeleteParams::default()).await.unwrap_err()), 404);
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_pages_of_one_moment() {
    let server = server();
    for name in ["a", "b", "c"] {
        server.create(&MACHINES, machine(name)).unwrap();
    }
    let api = machines(&server);
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.items.len(), 2);
    server.create(&MACHINES, machine("d")).unwrap();
    let token = first.metadata.continue_.unwrap();
    let rest = api.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
    assert_eq!(rest.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["c"]);
    assert_eq!(rest.metadata.resource_version, first.metadata.resource_version);
}

#[tokio::test(start_paused = true)]
async fn a_watch_shows_changes_after_its_version_in_order_and_bookmarks_when_it_is_quiet() {
    let server = server();
    let before = server.create(&MACHINES, machine("a")).unwrap();
    server.create(&MACHINES, machine("b")).unwrap();
    let api = machines(&server);
    let stream = api.watch(&WatchParams::default(), &before.version.to_string()).await.unwrap();
    let mut stream = std::pin::pin!(stream);
    server.edit(&MACHINES, "shoot", "a", |machine| machine["spec"]["providerID"] = json!("x")).unwrap();
    server.delete(&MACHINES, "shoot", "b").unwrap();
    let mut seen = Vec::new();
    while let Some(event) = stream.try_next().await.unwrap() {
        seen.push(match event {
            WatchEvent::Added(machine) => format!("added {}", machine.name_any()),
            WatchEvent::Modified(machine) => format!("modified {}", machine.name_any()),
            WatchEvent::Deleted(machine) => format!("deleted {}", machine.name_any()),
            WatchEvent::Bookmark(_) => "bookmark".to_owned(),
            WatchEvent::Error(error) => error.reason.clone(),
        });
    }
    assert_eq!(seen[..4], ["added b", "modified a", "deleted b", "bookmark"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_forgotten_version_has_expired() {
    let server = server();
    let made = server.create(&MACHINES, machine("a")).unwrap();
    let api = machines(&server);
    let open = api.watch(&WatchParams::default(), &made.version.to_string()).await.unwrap();
    server.forget_history(&MACHINES);
    let late = api.watch(&WatchParams::default(), &made.version.to_string()).await.unwrap();
    for stream in [open.boxed(), late.boxed()] {
        let events: Vec<_> = stream.try_collect().await.unwrap();
        assert!(matches!(events.as_slice(), [WatchEvent::Error(status)] if status.code == 410), "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_metadata_is_sent_on_request() {
    let server = server();
    let secret = json!({ "metadata": { "name": "s", "namespace": "shoot" }, "data": { "password": "c2VjcmV0" } });
    server.create(&SECRETS, secret).unwrap();
    let api: Api<Secret> = Api::namespaced(server.client("test"), "shoot");
    let list = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(list.items[0].name_any(), "s");
    assert!(api.get("s").await.unwrap().data.is_some());
}

#[tokio::test(start_paused = true)]
async fn conditions_and_finalizers_of_nodes_are_merged_one_by_one() {
    let server = server();
    let node = json!({
        "metadata": { "name": "n", "finalizers": ["a", "b"] },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    server.create(&NODES, node).unwrap();
    let api: Api<Node> = Api::all(server.client("test"));
    let status = Patch::Strategic(json!({ "status": { "conditions": [{ "type": "X", "status": "True" }] } }));
    api.patch_status("n", &PatchParams::default(), &status).await.unwrap();
    let meta = Patch::Strategic(json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a"] } }));
    let node = api.patch("n", &PatchParams::default(), &meta).await.unwrap();
    assert_eq!(node.finalizers(), ["b"]);
    assert_eq!(node.status.unwrap().conditions.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_has_its_grace_period_and_budgets_are_asked() {
    let server = server();
    let pod = json!({
        "metadata": { "name": "p", "namespace": "default", "labels": { "app": "db" } },
        "spec": { "nodeName": "n", "containers": [], "terminationGracePeriodSeconds": 60 },
    });
    server.create(&PODS, pod).unwrap();
    let budget = json!({
        "metadata": { "name": "b", "namespace": "default" },
        "spec": { "selector": { "matchLabels": { "app": "db" } } },
        "status": { "disruptionsAllowed": 0 },
    });
    server.create(&BUDGETS, budget).unwrap();
    let api: Api<Pod> = Api::namespaced(server.client("test"), "default");
    assert_eq!(code(&api.evict("p", &EvictParams::default()).await.unwrap_err()), 429);
    server.edit(&BUDGETS, "default", "b", |budget| budget["status"]["disruptionsAllowed"] = json!(1)).unwrap();
    api.evict("p", &EvictParams::default()).await.unwrap();
    let pod = api.get("p").await.unwrap();
    assert_eq!(pod.metadata.deletion_grace_period_seconds, Some(60));
    let budget = server.get(&BUDGETS, "default", "b").unwrap();
    assert_eq!(budget.value["status"]["disruptionsAllowed"], json!(0), "one pod may go, and goes");
    assert!(budget.value["status"]["disruptedPods"]["p"].is_string(), "the budget waits for its pod");
    api.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(api.get_opt("p").await.unwrap().is_none());
}

struct Mute;

impl NetworkModel for Mute {
    fn fate(&self, call: &ApiCall) -> CallDelivery {
        let outcome = if call.verb == ApiVerb::Create { DeliveryOutcome::LostAfter } else { DeliveryOutcome::Answered };
        CallDelivery { there: Duration::from_millis(10), back: Duration::from_millis(20), outcome }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_carried_out_though_its_answer_is_lost_or_its_sender_dies() {
    let server = ApiServer::new(&VirtualClock::new(), Arc::new(Mute));
    let wanted: Machine = serde_json::from_value(machine("lost")).unwrap();
    let error = machines(&server).create(&PostParams::default(), &wanted).await.unwrap_err();
    assert!(!matches!(error, kube::Error::Api(_)), "{error}");
    assert!(server.get(&MACHINES, "shoot", "lost").is_some());
    let wanted: Machine = serde_json::from_value(machine("orphan")).unwrap();
    let api = machines(&server);
    let params = PostParams::default();
    assert!(timeout(Duration::from_millis(5), api.create(&params, &wanted)).await.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(server.get(&MACHINES, "shoot", "orphan").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_paused_server_answers_later() {
    let server = server();
    server.create(&MACHINES, machine("m")).unwrap();
    server.set_paused(true);
    let api = machines(&server);
    assert!(timeout(Duration::from_secs(100), api.get("m")).await.is_err());
    let resume = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.set_paused(false);
    };
    assert!(tokio::join!(api.get("m"), resume).0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn every_request_is_recorded_with_its_preconditions() {
    let server = server();
    server.create(&MACHINES, machine("m")).unwrap();
    let api = machines(&server);
    let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": "9", "uid": "u" } }));
    drop(api.patch("m", &PatchParams::default(), &patch).await);
    let calls = server.calls();
    let [call] = calls.as_slice() else { panic!("{calls:?}") };
    assert_eq!(
        (call.verb, call.version(), call.uid(), &*call.caller),
        (ApiVerb::MergePatch, Some("9"), Some("u"), "test")
    );
}
