//! Volumes during a drain, and the VolumeAttachments after one that was forced.

use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    super::{
        api::{Call, Reply, status},
        world::{at, ready},
    },
    ATTACHMENTS, Shop, csi, forced, key,
};
use mcm_api::machine::Machine;
use mcm_driver::{Code, DriverError};
use mcm_runtime::guard::GuardedObject;

#[tokio::test]
async fn a_volume_is_followed_from_its_claim_to_another_node() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod_with_volume("db", &csi());
    shop.reconcile().await.unwrap();
    assert_eq!(shop.calls("POST", "/eviction").len(), 1);
    for end in ["/persistentvolumeclaims", "/persistentvolumes"] {
        let reads = shop.calls("GET", end);
        assert_eq!(reads.len(), 1, "{end}");
        assert!(reads[0].query.contains("metadata.name%3D"), "{reads:?}");
    }
    shop.wait(1);
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.vm.lock().is_some(), "the pod is gone, and its volume is still attached");
    shop.attached(&["vol-12"]);
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.vm.lock().is_some(), "it is detached, and attached nowhere");

    shop.attached(&[]);
    let arrived = shop.attachment("a", "elsewhere", &json!({}));
    while shop.context.queue.take().now_or_never().is_some() {}
    shop.target.attachments.demand().cache.wrote(serde_json::from_value(arrived).unwrap());
    assert_eq!(shop.context.queue.take().now_or_never().map(|(key, _)| key), Some(key()), "the change enqueues it");
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.vm.lock().is_none());
    assert_eq!(*shop.cloud.calls.lock(), ["volume_ids", "delete"], "the ID is asked for once");
}

#[tokio::test]
async fn volumes_are_awaited_although_the_machine_could_not_be_read_for_a_while() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod_with_volume("db", &csi());
    shop.reconcile().await.unwrap();
    assert_eq!(shop.calls("POST", "/eviction").len(), 1);
    let machine = shop.stored();
    let newer = |version: &str| ObjectMeta { resource_version: Some(version.to_owned()), ..machine.metadata.clone() };
    let unreadable = GuardedObject::Unreadable { metadata: Box::new(newer("998")), error: "a wrong type".to_owned() };
    shop.context.machines.cache.observe(Event::Apply(unreadable));
    shop.reconcile().await.unwrap();
    shop.wait(10);
    let readable = GuardedObject::Readable(Machine { metadata: newer("999"), ..machine.clone() });
    shop.context.machines.cache.observe(Event::Apply(readable));
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.vm.lock().is_some(), "the pod is gone, and its volume is still attached");
}

#[rstest]
#[case::a_kind_that_is_not_attached(json!({ "nfs": { "path": "/", "server": "s" } }), None, &[])]
#[case::the_driver_fails(csi(), Some(Code::Unimplemented), &["vol-1"])]
#[tokio::test]
async fn a_volume_without_id_is_awaited_until_it_is_detached(
    #[case] spec: Value,
    #[case] failure: Option<Code>,
    #[case] attached: &[&str],
) {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod_with_volume("db", &spec);
    shop.attached(attached);
    *shop.cloud.failure.lock() = failure.map(|code| DriverError::new(code, "because"));
    shop.reconcile().await.unwrap();
    assert_eq!(shop.calls("POST", "/eviction").len(), 1);
    *shop.cloud.failure.lock() = None;
    shop.wait(1);
    shop.reconcile().await.unwrap();
    if !attached.is_empty() {
        assert!(shop.cloud.vm.lock().is_some());
        shop.attached(&[]);
        shop.reconcile().await.unwrap();
    }
    assert!(shop.cloud.vm.lock().is_none());
}

#[tokio::test]
async fn a_vm_stays_until_the_volume_attachments_of_its_node_are_gone() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    let mine = shop.attachment("mine", "n", &json!({}));
    shop.attachment("other", "elsewhere", &json!({}));
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.vm.lock().is_some(), "its pods were evicted by another client");
    while shop.context.queue.take().now_or_never().is_some() {}
    let attachments = shop.target.attachments.demand();
    attachments.cache.observe(Event::Delete(GuardedObject::Readable(serde_json::from_value(mine).unwrap())));
    assert_eq!(shop.context.queue.take().now_or_never().map(|(key, _)| key), Some(key()), "the change enqueues it");
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.vm.lock().is_none());
}

#[rstest]
#[case("/persistentvolumeclaims", "cannot list claim data: ")]
#[case("/persistentvolumes", "cannot list persistent volume pv: ")]
#[tokio::test]
async fn a_pod_with_unreadable_volumes_stays_and_the_others_are_evicted(#[case] end: &'static str, #[case] text: &str) {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod_with_volume("db", &csi());
    shop.pod("plain", "n");
    shop.api.rule(move |call| call.is("GET", end).then(|| Reply::Say(503, json!({}))));
    shop.reconcile().await.unwrap();
    let evicted = shop.calls("POST", "/eviction");
    assert_eq!(evicted.len(), 1);
    assert!(evicted[0].path.ends_with("/plain/eviction"));
    let told = shop.stored().status.unwrap().last_operation.description;
    assert!(told.starts_with(&format!("Drain failed due to - {text}")), "{told}");
}

#[tokio::test]
async fn after_a_forced_drain_the_volume_attachments_of_the_node_are_deleted() {
    let shop = Shop::new();
    forced(&shop);
    shop.attachment("mine", "n", &json!({}));
    shop.attachment("ending", "n", &json!({ "deletionTimestamp": at(95), "finalizers": ["external-attacher/d"] }));
    shop.attachment("other", "elsewhere", &json!({}));
    shop.reconcile().await.unwrap();
    let deletes: Vec<Call> = shop
        .api
        .calls()
        .into_iter()
        .filter(|call| call.verb == "DELETE" && call.path.starts_with(ATTACHMENTS))
        .collect();
    assert_eq!(deletes.len(), 1, "{deletes:?}");
    assert_eq!(
        (deletes[0].path.as_str(), &deletes[0].body["preconditions"]["uid"]),
        (&*format!("{ATTACHMENTS}/mine"), &json!("uid-mine"))
    );
    let told = told_statuses(&shop);
    assert_eq!(
        told[1..],
        [
            "Force Drain successful. Delete Volume Attachments",
            "No Live VolumeAttachments for node: n. Moving to VM Deletion. Initiate VM deletion",
        ]
    );
    assert!(shop.cloud.vm.lock().is_none());
    assert!(!shop.cloud.calls.lock().contains(&"volume_ids"), "a forced drain does not follow volumes");
}

/// Descriptions of all statuses that were written, in order.
fn told_statuses(shop: &Shop) -> Vec<String> {
    let writes = shop.calls("PATCH", "/m/status").into_iter();
    writes
        .filter_map(|call| call.body.pointer("/status/lastOperation/description")?.as_str().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn a_node_without_volumes_has_no_attachments_to_delete() {
    let shop = Shop::new();
    forced(&shop);
    shop.attached(&[]);
    shop.reconcile().await.unwrap();
    assert!(shop.calls("GET", "/volumeattachments").is_empty());
    assert!(shop.cloud.vm.lock().is_none());
}

#[tokio::test]
async fn attachments_that_cannot_be_deleted_do_not_hold_up_a_forced_deletion_for_ever() {
    let shop = Shop::new();
    forced(&shop);
    shop.attachment("mine", "n", &json!({}));
    shop.api.rule(|call| call.is("DELETE", "/mine").then(|| Reply::Say(403, status(403, "Forbidden", "mine"))));
    for _ in 0..3 {
        shop.reconcile().await.unwrap();
        assert!(shop.cloud.vm.lock().is_some());
        shop.wait(5);
    }
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.vm.lock().is_none());
    let told = told_statuses(&shop);
    let skipped = "Skipping deleteNodeVolAttachments due to - delete of VolumeAttachment mine failed: Forbidden mine. Moving \
                   to VM Deletion. Initiate VM deletion";
    assert!(told.iter().any(|text| text == skipped), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn volume_attachments_are_watched_only_while_needed() {
    let shop = Shop::new();
    let attachments = &shop.target.attachments;
    assert!(!attachments.is_running());
    shop.attachment("a", "n", &json!({}));
    attachments.demand().cache.wait_synced().await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(attachments.demand().cache.all().len(), 1);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(attachments.is_running(), "it was needed again");
    assert_eq!(shop.calls("GET", "/volumeattachments").len(), 1);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(!attachments.is_running());
}
