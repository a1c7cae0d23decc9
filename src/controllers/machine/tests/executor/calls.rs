//! Results of driver calls and of writes: lost responses, permits, slots, metrics.

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::json;

use super::{MACHINES, NODE, Shop, key};
use crate::machine::{
    Action, Memory, take_permit,
    tests::{
        api::{Reply, status},
        world::{at, ready, unready},
    },
};
use mcm_api::{labels, machine::MachinePhase};
use mcm_driver::{Code, DriverError};
use mcm_rules::{
    plan::PlanInput,
    safety::meltdown::{MeltdownGroup, PermitKey},
};
use mcm_runtime::{
    cache::Key,
    fence::{self, LeaseFence},
    reconcile::SnapshotReader,
    worker::{KeyReconciler, RequeueTime},
};

const NAMESPACE: &str = "/api/v1/namespaces/ns";

/// The Lease is lost between two steps.
#[tokio::test]
async fn no_driver_is_called_for_a_machine_once_the_lease_is_lost() {
    let (shop, fence) = (Shop::new(), LeaseFence::default());
    shop.machine("m", json!({}));
    let closing = fence.clone();
    shop.api.rule(move |call| {
        if call.is("GET", "/secrets/s") {
            closing.close();
        }
        None
    });
    let requeue = fence::within(fence, shop.reconcile()).await.unwrap();
    assert!(matches!(requeue, RequeueTime::After(_)), "{requeue:?}");
    assert!(shop.cloud.calls.lock().is_empty());
    shop.reconcile().await.unwrap();
    assert_eq!(*shop.cloud.calls.lock(), ["status", "create"], "the next leader goes on");
}

#[tokio::test]
async fn a_machine_is_created_and_deleted_with_all_its_objects() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    shop.reconcile().await.unwrap();
    assert_eq!((shop.stored().phase(), shop.stored().spec.provider_id.as_str()), (MachinePhase::Pending, "cloud:///1"));
    assert_eq!(*shop.cloud.calls.lock(), ["status", "create"]);
    shop.known_node(&ready());
    shop.reconcile().await.unwrap();
    assert_eq!(shop.stored().phase(), MachinePhase::Running);
    shop.machine("m", json!({
        "metadata": { "labels": { "node": "n" }, "deletionTimestamp": at(101) }, "spec": { "providerID": "cloud:///1" },
    }));
    shop.reconcile().await.unwrap();
    assert!(shop.api.get(&format!("{MACHINES}/m")).is_none() && shop.api.get(NODE).is_none());
    assert!(shop.cloud.vm.lock().is_none());
}

#[rstest]
#[case::that_can_be_read(true, "uid-ns")]
#[case::that_only_its_name_is_known_of(false, "ns")]
#[tokio::test]
async fn a_vm_is_created_with_the_owner_of_its_namespace(#[case] is_readable: bool, #[case] owner: &str) {
    let shop = Shop::new();
    if is_readable {
        shop.api.put(NAMESPACE, json!({ "metadata": { "name": "ns", "uid": "uid-ns" } }));
    } else {
        shop.api.rule(|call| call.is("GET", NAMESPACE).then(|| Reply::Say(403, status(403, "Forbidden", "ns"))));
    }
    shop.machine("m", json!({}));
    shop.reconcile().await.unwrap();
    assert_eq!(*shop.cloud.calls.lock(), ["status", "create"]);
    assert_eq!(*shop.cloud.owners.lock(), ["", owner]);
}

/// A VM without a marker, or with the wrong one, might be deleted by a collector of another namespace.
#[tokio::test(start_paused = true)]
async fn while_the_owner_is_unknown_no_vm_is_created() {
    let shop = Shop::new();
    let is_away = Arc::new(Mutex::new(true));
    let away = Arc::clone(&is_away);
    shop.api.rule(move |call| (call.is("GET", NAMESPACE) && *away.lock()).then(|| Reply::Say(503, json!({}))));
    shop.machine("m", json!({}));
    shop.reconcile().await.unwrap();
    let stored = shop.stored();
    assert_eq!((stored.phase(), stored.spec.provider_id.as_str()), (MachinePhase::CrashLoopBackOff, ""));
    let text = stored.status.unwrap().last_operation.description;
    assert!(text.contains("VM not created: get Namespace ns: "), "{text}");
    *is_away.lock() = false;
    shop.wait(600);
    tokio::time::sleep(Duration::from_mins(10)).await;
    shop.reconcile().await.unwrap();
    assert_eq!(shop.stored().phase(), MachinePhase::Pending);
    assert_eq!(shop.cloud.owners.lock().last().map(String::as_str), Some("ns"));
    assert_eq!(shop.cloud.calls.lock().iter().filter(|call| **call == "create").count(), 1);
}

#[tokio::test]
async fn an_answer_about_a_machine_does_not_apply_to_its_successor() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    let (machines, api) = (Arc::clone(&shop.context.machines.cache), shop.api.clone());
    *shop.cloud.hook.lock() = Some(Box::new(move |call| {
        let path = format!("{MACHINES}/m");
        let mut machine = api.get(&path).unwrap();
        if call == "status" && machine["metadata"]["uid"] == "uid-m" {
            machine["metadata"]["uid"] = "its successor".into();
            machines.wrote(serde_json::from_value(api.put(&path, machine)).unwrap());
        }
    }));
    shop.reconcile().await.unwrap();
    assert_eq!(*shop.cloud.calls.lock(), ["status", "status", "create"]);
}

#[tokio::test]
async fn after_a_lost_answer_nothing_is_done_before_the_machine_was_read() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    let mut is_first = true;
    shop.api.rule(move |call| {
        (call.is("PATCH", "/machines/m") && std::mem::take(&mut is_first)).then_some(Reply::DoAndLose)
    });
    assert!(shop.reconcile().await.is_err());
    // The VM dies; who does not know that there was one would make another.
    *shop.cloud.vm.lock() = None;
    shop.cloud.calls.lock().clear();
    shop.api.forget_calls();
    let is_away = Arc::new(Mutex::new(true));
    let away = Arc::clone(&is_away);
    shop.api.rule(move |call| (call.is("GET", "/machines/m") && *away.lock()).then(|| Reply::Say(500, json!({}))));
    assert!(shop.reconcile().await.is_err());
    assert_eq!((shop.api.told(), shop.cloud.calls.lock().len()), (vec!["GET m".to_owned()], 0));
    *is_away.lock() = false;
    shop.reconcile().await.unwrap();
    assert_eq!(shop.api.told()[1], "GET m");
    assert!(!shop.cloud.calls.lock().contains(&"create"), "its ID is known");
}

#[tokio::test]
async fn a_machine_that_a_live_read_does_not_find_leaves_the_cache() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    shop.api.rule(|call| call.is("PATCH", "/machines/m").then_some(Reply::DoAndLose));
    assert!(shop.reconcile().await.is_err());
    shop.api.remove(&format!("{MACHINES}/m"));
    assert_eq!(shop.reconcile().await.unwrap(), RequeueTime::OnChange);
    assert!(shop.context.machines.cache.get(&key()).is_none());
}

#[tokio::test]
async fn the_id_of_a_vm_is_stored_before_the_finalizer_that_a_user_removed_meanwhile() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    let (machines, api) = (Arc::clone(&shop.context.machines), shop.api.clone());
    *shop.cloud.hook.lock() = Some(Box::new(move |call| {
        if call == "create" {
            let path = format!("{MACHINES}/m");
            let mut machine = api.get(&path).unwrap();
            machine["metadata"]["finalizers"] = json!([]);
            machines.cache.wrote(serde_json::from_value(api.put(&path, machine)).unwrap());
        }
    }));
    shop.reconcile().await.unwrap();
    let patches: Vec<_> = shop.calls("PATCH", "/m").into_iter().map(|call| call.body).collect();
    assert_eq!(patches[0]["spec"]["providerID"], "cloud:///1");
    assert_eq!(shop.stored().metadata.finalizers, Some(vec![labels::FINALIZER.to_owned()]));
}

#[rstest]
#[case::alone("Running", "Failed")]
#[case::one_is_being_replaced("Pending", "Unknown")]
#[tokio::test]
async fn who_is_out_of_service_counts(#[case] sibling: &str, #[case] expected: &str) {
    let shop = Shop::new();
    shop.linked("Unknown", &json!({}));
    shop.machine("sibling", json!({ "status": { "currentStatus": { "phase": sibling } } }));
    shop.known_node(&unready());
    shop.wait(3600);
    shop.reconcile().await.unwrap();
    assert_eq!(shop.stored().phase().as_str(), expected);
    let permit = [PermitKey { namespace: "ns".to_owned(), group: MeltdownGroup::Deployment("pool".to_owned()) }];
    let (held, _) =
        take_permit(&shop.context.permits, &shop.context.machines.cache, &permit, &Key::new("ns", "sibling"));
    assert!(held.is_some(), "the permit was given back");
}

#[tokio::test]
async fn a_permit_is_kept_while_nobody_knows_whether_it_was_used() {
    let shop = Shop::new();
    shop.linked("Unknown", &json!({}));
    shop.machine("sibling", json!({ "status": { "currentStatus": { "phase": "Running" } } }));
    shop.known_node(&unready());
    shop.wait(3600);
    let mut is_first = true;
    shop.api
        .rule(move |call| (call.is("PATCH", "/m/status") && std::mem::take(&mut is_first)).then_some(Reply::DoAndLose));
    let permit = [PermitKey { namespace: "ns".to_owned(), group: MeltdownGroup::Deployment("pool".to_owned()) }];
    let take =
        || take_permit(&shop.context.permits, &shop.context.machines.cache, &permit, &Key::new("ns", "sibling")).0;
    assert!(shop.reconcile().await.is_err());
    assert!(take().is_none(), "m may be Failed, and the cache does not say so");
    shop.reconcile().await.unwrap();
    assert_eq!(shop.stored().phase(), MachinePhase::Failed);
    assert!(take().is_some());
}

#[tokio::test]
async fn a_slot_is_given_back_when_the_reconcile_ends() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    *shop.cloud.failure.lock() = Some(DriverError::new(Code::Internal, "because"));
    shop.reconcile().await.unwrap();
    shop.machine("other", json!({}));
    shop.reconciler.handle(&Key::new("ns", "other")).await.unwrap();
    assert_eq!(shop.cloud.calls.lock().len(), 2, "there is one slot, and both had it");
}

/// The other Secret has user data, so nothing else would keep the driver from being called with the account of the process.
#[rstest]
#[case::to_create_a_vm(false)]
#[case::to_delete_a_vm(true)]
#[tokio::test]
async fn no_driver_is_called_before_the_second_secret_of_the_class_exists(#[case] is_deleted: bool) {
    let shop = Shop::new();
    let mut class = serde_json::to_value(&*shop.context.classes.cache.get(&Key::new("ns", "c")).unwrap()).unwrap();
    class["credentialsSecretRef"] = json!({ "name": "cloudprovider", "namespace": "ns" });
    class["metadata"]["resourceVersion"] = "2".into();
    shop.context.classes.cache.wrote(serde_json::from_value(class).unwrap());
    match is_deleted {
        true => shop.deleted(),
        false => shop.machine("m", json!({})),
    }
    assert_eq!(shop.reconcile().await.unwrap(), RequeueTime::OnChange);
    let told = shop.stored().status.unwrap().last_operation.description;
    assert!(told.starts_with("Waiting for the Secret ns/cloudprovider, which does not exist"), "{told}");
    assert!(shop.cloud.calls.lock().is_empty());
    let secret = json!({ "metadata": { "name": "cloudprovider", "namespace": "ns" }, "data": { "key": "eA==" } });
    shop.api.put("/api/v1/namespaces/ns/secrets/cloudprovider", secret);
    shop.reconcile().await.unwrap();
    let expected: &[_] = if is_deleted { &["delete"] } else { &["status", "create"] };
    assert_eq!(*shop.cloud.calls.lock(), expected);
}

/// As the API server refuses a label, and a webhook anything.
#[rstest]
#[case::invalid(422, "Invalid")]
#[case::forbidden(403, "Forbidden")]
#[case::bad_request(400, "BadRequest")]
#[tokio::test]
async fn the_id_of_a_vm_is_stored_alone_if_its_label_is_refused(#[case] code: u16, #[case] reason: &'static str) {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    shop.api.rule(move |call| {
        let has_label = call.is("PATCH", "machines/m") && call.body["metadata"]["labels"]["node"].is_string();
        has_label.then(|| Reply::Say(code, status(code, reason, "labels.node is refused")))
    });
    let requeue = shop.reconcile().await.unwrap();
    let stored = shop.stored();
    assert_eq!((stored.spec.provider_id.as_str(), stored.node_name()), ("cloud:///1", None));
    let told = stored.status.unwrap().last_operation.description;
    assert!(told.starts_with("Waiting for the API server to accept a write of the Machine: "), "{told}");
    assert!(told.contains("labels.node is refused"), "{told}");
    assert_eq!(requeue, RequeueTime::At(at(105)));
    assert_eq!(shop.cloud.calls.lock().iter().filter(|call| **call == "create").count(), 1);
}

/// An event that ends the need for a slot while its Machine waits for it.
type Change = fn(&Shop);

#[rstest]
#[case::its_class_is_gone(|shop: &Shop| shop.machine("b", json!({ "spec": { "class": { "name": "gone" } } })))]
#[case::it_has_no_class(|shop: &Shop| shop.machine("b", json!({ "spec": { "class": { "name": "" } } })))]
#[case::it_is_gone(|shop: &Shop| shop.forget("b"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_needs_its_slot_no_more_does_not_keep_the_others_of_the_account_waiting(#[case] change: Change) {
    let shop = Arc::new(Shop::new());
    let [b, c] = ["b", "c"].map(|name| Key::new("ns", name));
    for name in ["m", "b", "c"] {
        shop.machine(name, json!({}));
    }
    let (inner, waiting) = (Arc::clone(&shop), [b.clone(), c.clone()]);
    let is_done = Mutex::new(false);
    *shop.cloud.hook.lock() = Some(Box::new(move |_| {
        if std::mem::replace(&mut *is_done.lock(), true) {
            return;
        }
        // While m has the only slot.
        for key in &waiting {
            let runtime = tokio::runtime::Handle::current();
            let requeue = tokio::task::block_in_place(|| runtime.block_on(inner.reconciler.handle(key)));
            assert!(matches!(requeue, Ok(RequeueTime::OnChange)), "{requeue:?}");
        }
        change(&inner);
    }));
    shop.reconcile().await.unwrap();
    shop.reconciler.handle(&b).await.unwrap();
    shop.cloud.calls.lock().clear();
    *shop.cloud.vm.lock() = None;
    shop.reconciler.handle(&c).await.unwrap();
    assert_eq!(*shop.cloud.calls.lock(), ["status", "create"]);
}

/// The drain found no pod. Without a status it would be repeated when there is a slot, which needs a slot for drains.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_waits_for_its_slot_stores_that_the_node_is_drained() {
    const DRAINED: &str = "Drain successful. Initiate VM deletion";
    let shop = Arc::new(Shop::new());
    shop.deleted();
    shop.known_node(&ready());
    let operation = json!({ "type": "Delete", "state": "Processing", "description": DRAINED });
    let status = json!({ "currentStatus": { "phase": "Terminating" }, "lastOperation": operation });
    let spec = json!({ "providerID": "cloud:///1" });
    shop.machine("other", json!({ "metadata": { "deletionTimestamp": at(90) }, "spec": spec, "status": status }));
    let (inner, told) = (Arc::clone(&shop), Arc::new(Mutex::new(None)));
    let text = Arc::clone(&told);
    *shop.cloud.hook.lock() = Some(Box::new(move |_| {
        if text.lock().is_some() {
            return;
        }
        *text.lock() = Some(String::new());
        // While the other machine has the only slot.
        let runtime = tokio::runtime::Handle::current();
        let requeue = tokio::task::block_in_place(|| runtime.block_on(inner.reconcile()));
        assert!(matches!(requeue, Ok(RequeueTime::OnChange)), "{requeue:?}");
        *text.lock() = inner.stored().status.map(|status| status.last_operation.description);
    }));
    shop.reconciler.handle(&Key::new("ns", "other")).await.unwrap();
    assert_eq!(told.lock().as_deref(), Some(DRAINED));
    shop.reconcile().await.unwrap();
    assert!(shop.api.get(&format!("{MACHINES}/m")).is_none());
    assert_eq!(shop.calls("GET", "/pods").len(), 1, "the pods are not listed again");
}

#[tokio::test]
async fn credentials_that_come_during_a_call_are_tried_at_once() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    *shop.cloud.failure.lock() = Some(DriverError::new(Code::PermissionDenied, "old credentials"));
    let (states, cloud) = (Arc::clone(&shop.states), Arc::clone(&shop.cloud));
    let changed = Mutex::new(false);
    *shop.cloud.hook.lock() = Some(Box::new(move |_| {
        if std::mem::replace(&mut *changed.lock(), true) {
            *cloud.failure.lock() = None;
        } else {
            states.update_if_known(&key(), Memory::forget_failures);
        }
    }));
    shop.reconcile().await.unwrap();
    assert_eq!(shop.stored().spec.provider_id, "cloud:///1", "without waiting for the next attempt");
    assert_eq!(shop.calls("GET", "/secrets/s").len(), 2, "and with what the Secret has now");
}

#[tokio::test]
async fn a_vm_that_could_not_join_is_no_deletion_of_a_machine_in_the_metrics() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    shop.known_node(&ready());
    let mut node = shop.api.get(NODE).unwrap();
    node["spec"]["providerID"] = json!("cloud:///old");
    let node = shop.api.put(NODE, node);
    shop.target.nodes.cache.wrote(serde_json::from_value(node).unwrap());
    shop.reconcile().await.unwrap();
    assert_eq!(*shop.cloud.calls.lock(), ["status", "create", "delete"]);
    assert!(!shop.metrics.render().contains("mcm_machine_delete_duration_seconds{"));
}

#[tokio::test]
async fn the_deletion_of_a_machine_is_measured_from_the_wish_to_the_end_of_its_vm() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.reconcile().await.unwrap();
    let text = shop.metrics.render();
    let series =
        r#"mcm_machine_delete_duration_seconds{namespace="ns",machine_deployment="pool",instance_type="",zone=""} 10"#;
    assert!(text.lines().any(|line| line == series), "{text}");
    let drained = r#"mcm_machine_drain_duration_seconds{namespace="ns",machine_deployment="pool"} 10"#;
    assert!(text.lines().any(|line| line == drained), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_long_reconcile_lets_others_have_its_slot() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod("p", "n");
    let clock = shop.clock.clone();
    shop.api.rule(move |call| {
        call.is("POST", "/eviction").then(|| {
            clock.advance(SignedDuration::from_secs(30));
            Reply::Say(429, status(429, "TooManyRequests", ""))
        })
    });
    let reconciled = async {
        tokio::select! {
            outcome = shop.reconcile() => outcome,
            () = async { loop { tokio::time::advance(Duration::from_secs(1)).await; } } => unreachable!(),
        }
    };
    let requeue = reconciled.await.unwrap();
    assert!(matches!(requeue, RequeueTime::After(Duration::ZERO)), "{requeue:?}");
}

#[tokio::test]
async fn the_loop_asks_the_lint() {
    let shop = Shop::new();
    shop.linked("Running", &json!({}));
    let reconciler = &shop.reconciler.reconciler;
    let snapshot = reconciler.observe(&key(), &Memory::default(), &Default::default()).unwrap();
    let mut plan = snapshot.plan();
    assert_eq!(snapshot.lint(&plan), None);
    plan.then(Action::CreateVm, "no reason");
    let refusal = snapshot.lint(&plan).unwrap();
    assert_eq!(refusal, "it would create a VM too many: spec.providerID is cloud:///1");
}
