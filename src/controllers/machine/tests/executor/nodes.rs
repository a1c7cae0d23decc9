//! Nodes: live reads, and the preconditions of writes.

use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    super::{
        api::{Call, Reply, status},
        world::{at, ready},
    },
    MACHINES, NODE, Shop,
};
use mcm_api::machine::MachinePhase;
use mcm_runtime::{
    cache::Key,
    worker::{KeyReconciler, RequeueTime},
};

#[rstest]
#[case::a_drain_is_not_skipped(json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:01:00Z" } }), "Running", 1)]
#[case::a_running_machine_stays_so(json!({}), "Running", 0)]
#[case::a_late_one_joins_after_all(json!({ "metadata": { "creationTimestamp": "2027-01-01T00:00:00Z" } }), "Pending", 0)]
#[tokio::test]
async fn a_node_that_the_cache_lacks_is_read_live(#[case] patch: Value, #[case] phase: &str, #[case] evictions: usize) {
    let shop = Shop::new();
    shop.linked(phase, &patch);
    shop.node(&ready());
    shop.pod("p", "n");
    shop.reconcile().await.unwrap();
    assert!(!shop.calls("GET", NODE).is_empty());
    assert_eq!(shop.calls("POST", "/eviction").len(), evictions);
    if evictions == 0 {
        assert_eq!(shop.stored().phase(), MachinePhase::Running);
    }
}

#[rstest]
#[case::away(503, json!({}))]
#[case::its_kind_is_not_served(404, status(404, "NotFound", ""))]
#[case::undecodable(200, json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" }, "status": { "conditions": "nonsense" } }))]
#[tokio::test]
async fn a_node_that_cannot_be_read_is_waited_for(
    #[values("Running", "Pending", "Unknown", "deleted")] phase: &str,
    #[case] code: u16,
    #[case] body: Value,
) {
    let shop = Shop::new();
    match phase {
        "deleted" => shop.deleted(),
        phase => shop.linked(phase, &json!({ "metadata": { "creationTimestamp": "2027-01-01T00:00:00Z" } })),
    }
    shop.wait(3600);
    shop.api.rule(move |call| call.is("GET", NODE).then(|| Reply::Say(code, body.clone())));
    let requeue = shop.reconcile().await.unwrap();
    assert_eq!(shop.api.told(), ["GET n"], "nothing is written, and the cloud is not called");
    assert!(shop.cloud.calls.lock().is_empty());
    assert_eq!(requeue, RequeueTime::At(at(3705)));
}

#[tokio::test]
async fn a_machine_without_a_node_name_finds_its_node_by_a_live_listing() {
    let shop = Shop::new();
    let joined = json!({ "currentStatus": { "phase": "Running" } });
    let deleted = json!({ "deletionTimestamp": at(90) });
    shop.machine("m", json!({ "metadata": deleted, "spec": { "providerID": "cloud:///1" }, "status": joined }));
    shop.node(&ready());
    shop.pod("p", "n");
    shop.reconcile().await.unwrap();
    let listed = shop.calls("GET", "/nodes");
    assert!(listed[0].query.contains("node.gardener.cloud%2Fmachine-name%3Dm"), "{listed:?}");
    assert_eq!(shop.calls("POST", "/eviction").len(), 1);
}

/// The API server would refuse the selector, and no Node can have the label.
#[tokio::test]
async fn the_node_of_a_machine_with_a_long_name_is_not_looked_up_by_its_label() {
    let (shop, long) = (Shop::new(), "a".repeat(71));
    let deleted =
        json!({ "metadata": { "deletionTimestamp": at(90), "name": long }, "spec": { "providerID": "cloud:///1" } });
    shop.machine(&long, deleted);
    shop.reconciler.handle(&Key::new("ns", &long)).await.unwrap();
    assert!(shop.calls("GET", "/nodes").is_empty());
    assert!(shop.api.get(&format!("{MACHINES}/{long}")).is_none());
    assert_eq!(*shop.cloud.calls.lock(), ["status", "delete"]);
}

#[tokio::test]
async fn a_node_that_joins_during_a_call_is_seen_in_the_same_reconcile() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    let (nodes, api) = (Arc::clone(&shop.target.nodes.cache), shop.api.clone());
    shop.node(&ready());
    *shop.cloud.hook.lock() = Some(Box::new(move |call| {
        if call == "create" {
            nodes.wrote(serde_json::from_value(api.get(NODE).unwrap()).unwrap());
        }
    }));
    shop.reconcile().await.unwrap();
    assert_eq!(shop.stored().phase(), MachinePhase::Running);
}

#[rstest]
#[case::another_node_has_its_name("another", true)]
#[case::a_webhook_objects("node", false)]
#[tokio::test]
async fn a_node_whose_delete_met_a_conflict_is_read(#[case] uid: &'static str, #[case] is_gone: bool) {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    let api = shop.api.clone();
    shop.api.rule(move |call| {
        call.is("DELETE", NODE).then(|| {
            let mut node = api.get(NODE).unwrap();
            if uid != node["metadata"]["uid"] {
                node["metadata"] = json!({ "name": "n", "uid": uid });
                node["spec"] = json!({ "providerID": "cloud:///2" });
            }
            api.put(NODE, node);
            Reply::Say(409, status(409, "Conflict", "n"))
        })
    });
    shop.reconcile().await.unwrap();
    assert_eq!(shop.api.get(&format!("{MACHINES}/m")).is_none(), is_gone, "{:?}", shop.api.told());
    assert!(shop.api.get(NODE).is_some());
}

#[tokio::test]
async fn every_write_to_a_node_says_which_node_it_means() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.reconcile().await.unwrap();
    let writes: Vec<Call> =
        shop.api.calls().into_iter().filter(|call| call.verb == "PATCH" && call.path.starts_with(NODE)).collect();
    assert!(writes.len() >= 3, "{writes:?}");
    assert!(writes.iter().all(|call| call.body["metadata"]["uid"] == "node"), "{writes:?}");
}
