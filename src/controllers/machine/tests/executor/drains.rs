//! Evictions and deletions of pods: selection, pace, and texts of refusals.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use jiff::SignedDuration;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::json;

use super::{
    super::{
        api::{Reply, status},
        world::{at, ready},
    },
    NODE, PODS, Shop, csi, forced, key,
};
use mcm_api::machine::Machine;
use mcm_runtime::limiter::RequestRate;

#[tokio::test]
async fn only_the_pods_of_its_node_are_evicted_and_only_this_incarnation_of_them() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod("mine", "n");
    shop.pod("other", "elsewhere");
    shop.reconcile().await.unwrap();
    let evictions = shop.calls("POST", "/eviction");
    assert_eq!(evictions.len(), 1);
    assert!(evictions[0].path.ends_with("/pods/mine/eviction"));
    assert_eq!(evictions[0].body["deleteOptions"]["preconditions"]["uid"], "pod-mine");
    assert!(shop.api.get(&format!("{PODS}/other")).is_some());
    let listed = shop.calls("GET", "/pods");
    assert!(!listed.is_empty() && listed.iter().all(|call| call.query.contains("spec.nodeName%3Dn")), "{listed:?}");
}

#[tokio::test]
async fn a_pod_is_killed_at_once_and_only_this_incarnation_of_it() {
    let shop = Shop::new();
    shop.linked(
        "Running",
        &json!({ "metadata": { "deletionTimestamp": at(90), "labels": { "force-deletion": "true" } } }),
    );
    shop.known_node(&ready());
    shop.pod("mine", "n");
    shop.reconcile().await.unwrap();
    let deletes = shop.calls("DELETE", "/pods/mine");
    assert_eq!(deletes.len(), 1);
    assert_eq!(deletes[0].body["preconditions"]["uid"], "pod-mine");
    assert_eq!(deletes[0].body["gracePeriodSeconds"], 0);
    assert!(shop.calls("POST", "/eviction").is_empty());
}

#[tokio::test]
async fn refusals_are_explained_with_one_listing_of_budgets_and_pods_are_called_together() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    for number in 0..12 {
        shop.pod(&format!("p{number}"), "n");
    }
    shop.api.put(
        "/apis/policy/v1/namespaces/apps/poddisruptionbudgets/budget",
        json!({ "metadata": { "name": "budget", "namespace": "apps" }, "spec": { "selector": {} } }),
    );
    shop.api.rule(|call| call.is("POST", "/eviction").then(|| Reply::Say(429, status(429, "TooManyRequests", ""))));
    shop.reconcile().await.unwrap();
    assert_eq!((shop.calls("POST", "/eviction").len(), shop.calls("GET", "/apps/poddisruptionbudgets").len()), (12, 1));
    assert!((2..=10).contains(&shop.api.most_in_flight()), "{}", shop.api.most_in_flight());
    let text = shop.stored().status.unwrap().last_operation.description;
    assert_eq!(text, "Evictions are refused by the disruption budget apps/budget. Initiate node drain");
}

#[rstest]
#[case::the_budget_went(404, "budget")]
#[case::the_budget_was_written(409, "p")]
#[tokio::test]
async fn a_refusal_that_may_be_about_the_budget_does_not_end_a_drain(#[case] code: u16, #[case] about: &'static str) {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod("p", "n");
    shop.api.rule(move |call| call.is("POST", "/eviction").then(|| Reply::Say(code, status(code, "Because", about))));
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.calls.lock().is_empty(), "the VM must not be deleted under a pod that runs");
    assert_eq!(shop.calls("GET", "/pods").len(), 2, "listed again");
}

#[tokio::test]
async fn force_is_seen_while_a_drain_is_under_way() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod("p", "n");
    let machines = Arc::clone(&shop.context.machines.cache);
    shop.api.rule(move |call| {
        call.is("POST", "/eviction").then(|| {
            let mut machine = Machine::clone(&machines.get(&key()).unwrap());
            machine.metadata.labels.as_mut().unwrap().insert("force-deletion".to_owned(), "true".to_owned());
            machine.metadata.resource_version = Some("50".to_owned());
            machines.wrote(machine);
            Reply::Say(429, status(429, "TooManyRequests", ""))
        })
    });
    let _conflict = shop.reconcile().await;
    assert_eq!(shop.calls("DELETE", "/pods/p").len(), 1, "{:?}", shop.api.told());
}

#[tokio::test(start_paused = true)]
async fn evictions_of_all_nodes_have_one_rate_and_deletes_none() {
    let shop = Shop::with_evictions(RequestRate { qps: 1.0, burst: 1 });
    shop.deleted();
    shop.known_node(&ready());
    for number in 0..3 {
        shop.pod(&format!("p{number}"), "n");
    }
    let began = tokio::time::Instant::now();
    shop.reconcile().await.unwrap();
    assert_eq!((shop.calls("POST", "/eviction").len(), began.elapsed().as_secs()), (3, 2));

    let shop = Shop::with_evictions(RequestRate { qps: 1.0, burst: 1 });
    forced(&shop);
    shop.pod("p", "n");
    let began = tokio::time::Instant::now();
    shop.reconcile().await.unwrap();
    assert_eq!((shop.calls("DELETE", "/pods/p").len(), began.elapsed().as_secs()), (1, 0));
}

#[tokio::test]
async fn refused_pods_are_evicted_again_as_soon_as_their_budget_allows_it() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    for name in ["a", "b"] {
        shop.pod(name, "n");
    }
    let budget = |allowed: i32| {
        let stored = shop.api.put(
            "/apis/policy/v1/namespaces/apps/poddisruptionbudgets/budget",
            json!({
                "metadata": { "name": "budget", "namespace": "apps", "uid": "b" }, "spec": { "selector": {} },
                "status": { "disruptionsAllowed": allowed, "expectedPods": 2, "currentHealthy": 1, "desiredHealthy": 1 },
            }),
        );
        serde_json::from_value(stored).unwrap()
    };
    shop.target.budgets.demand().cache.wrote(budget(0));
    let allowed = Arc::new(Mutex::new(0));
    let left = Arc::clone(&allowed);
    shop.api.rule(move |call| {
        let mut left = left.lock();
        let is_refused = call.is("POST", "/eviction") && *left == 0;
        *left -= i32::from(call.is("POST", "/eviction") && !is_refused);
        is_refused.then(|| Reply::Say(429, status(429, "TooManyRequests", "")))
    });
    shop.reconcile().await.unwrap();
    assert_eq!(shop.calls("POST", "/eviction").len(), 2);
    let enqueued = || std::iter::from_fn(|| shop.context.queue.take().now_or_never()).count();
    enqueued();
    shop.target.budgets.demand().cache.wrote(budget(0));
    assert_eq!(enqueued(), 0, "it still allows nothing");

    *allowed.lock() = 1;
    shop.target.budgets.demand().cache.wrote(budget(1));
    assert_eq!(enqueued(), 1);
    shop.reconcile().await.unwrap();
    assert_eq!(shop.calls("POST", "/eviction").len(), 3, "no time has passed, and only one may go");
    assert!(shop.api.get(&format!("{PODS}/a")).is_none());
}

#[rstest]
#[case::the_list("GET", "/pods")]
#[case::an_eviction("POST", "/eviction")]
#[case::a_claim("GET", "/persistentvolumeclaims")]
#[case::the_cordon("PATCH", NODE)]
#[tokio::test(start_paused = true)]
async fn a_drain_is_forced_in_time_although_the_api_server_does_not_answer(
    #[case] verb: &'static str,
    #[case] end: &'static str,
) {
    let shop = Shop::new();
    let spec = json!({ "drainTimeout": "1m", "providerID": "cloud:///1" });
    shop.linked("Running", &json!({ "metadata": { "deletionTimestamp": at(90) }, "spec": spec }));
    shop.known_node(&ready());
    shop.pod_with_volume("db", &csi());
    let (clock, since) = (shop.clock.clone(), tokio::time::Instant::now());
    shop.api.rule(move |call| (call.is(verb, end) && since.elapsed().as_secs() < 49).then_some(Reply::Hang));
    let reconciled = async {
        tokio::select! {
            () = async {
                while shop.cloud.vm.lock().is_some() {
                    shop.reconcile().await.unwrap();
                }
            } => {}
            () = async {
                // A moment before the deadline is over.
                tokio::time::sleep(Duration::from_millis(49_990)).await;
                clock.advance(SignedDuration::from_secs(50));
                std::future::pending().await
            } => unreachable!(),
        }
    };
    tokio::time::timeout(Duration::from_secs(90), reconciled).await.unwrap();
    assert_eq!(since.elapsed().as_secs(), 50, "{:?}", shop.api.told());
}

#[tokio::test]
async fn a_forced_drain_begins_with_the_pods_of_the_last_list_and_lists_again_before_it_ends() {
    let shop = Shop::new();
    let spec = json!({ "drainTimeout": "1m", "providerID": "cloud:///1" });
    shop.linked("Running", &json!({ "metadata": { "deletionTimestamp": at(90) }, "spec": spec }));
    shop.known_node(&ready());
    shop.pod("a", "n");
    let refused = status(429, "TooManyRequests", "");
    shop.api.rule(move |call| call.is("POST", "/eviction").then(|| Reply::Say(429, refused.clone())));
    shop.reconcile().await.unwrap();
    let begun = shop.api.calls().len();
    shop.pod("late", "n");
    shop.clock.advance(SignedDuration::from_mins(1));
    shop.reconcile().await.unwrap();
    let calls: Vec<String> = shop.api.calls()[begun..]
        .iter()
        .filter(|call| call.path.contains("/pods"))
        .map(|call| format!("{} {}", call.verb, call.path.rsplit('/').next().unwrap()))
        .collect();
    assert_eq!(calls, ["DELETE a", "GET pods", "DELETE late"]);
    assert!(shop.cloud.vm.lock().is_none());
}
