//! The decisions of the driver by the VMs that it finds.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};

use super::{CLUSTER, OWNER, OWNER_LABEL, ROLE, UID_LABEL, World, code, fake::Start, spec, spec_with, with_id};
use mcm_driver::{Code, ListedVm, MachineRequest, interface::Driver};

/// The labels of a VM of the reference.
fn marked() -> Value {
    json!({CLUSTER: "shoot", ROLE: "node"})
}

/// The same with further labels.
fn marked_with(labels: &Value) -> Value {
    let mut all = marked();
    for (key, value) in labels.as_object().unwrap() {
        all[key] = value.clone();
    }
    all
}

#[rstest]
#[case::of_an_earlier_machine(marked_with(&json!({UID_LABEL: "earlier"})))]
#[case::of_another_cluster(json!({CLUSTER: "other", ROLE: "node"}))]
#[case::of_another_role(json!({CLUSTER: "shoot", ROLE: "bastion"}))]
#[case::of_a_user(json!({}))]
#[tokio::test]
async fn the_vm_of_another_is_neither_taken_nor_deleted(#[case] labels: Value) {
    let world = World::new().await;
    world.put("a", &labels);
    let request = world.request("a");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    world.driver.delete(&request).await.unwrap();
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!((error.code, world.count(), world.secrets()), (Code::AlreadyExists, 1, 0));
    // A shared list does not show this VM, so only the API server's refusal reveals it.
    let other = world.request("b");
    let (first, second) = tokio::join!(world.driver.create(&request), world.driver.create(&other));
    assert_eq!((code(first), second.unwrap().provider_id.as_str()), (Code::AlreadyExists, "kubevirt://b"));
    assert_eq!(world.kubernetes.lock().cloud.vms["a"]["metadata"]["labels"], labels);
}

/// A name is free for another VM after a deletion.
#[rstest]
#[case::of_another_cluster(json!({CLUSTER: "other", ROLE: "node"}), false)]
#[case::of_another_role(json!({CLUSTER: "shoot", ROLE: "bastion"}), false)]
#[case::of_a_user(json!({}), false)]
#[case::of_a_user_with_another_uid(json!({UID_LABEL: "other"}), false)]
#[case::without_its_labels(json!({UID_LABEL: "uid-a"}), true)]
#[case::restored_with_a_new_uid(marked_with(&json!({UID_LABEL: "earlier"})), true)]
#[tokio::test]
async fn a_provider_id_finds_only_a_vm_with_the_markers_or_the_uid(#[case] labels: Value, #[case] is_found: bool) {
    let world = World::new().await;
    let known = with_id(world.request("a"), &world.put("a", &labels));
    assert_eq!(world.driver.status(&known).await.is_ok(), is_found);
    world.driver.delete(&known).await.unwrap();
    assert_eq!(world.count(), usize::from(!is_found));
}

#[tokio::test]
async fn the_provider_id_of_another_machine_finds_nothing() {
    let world = World::new().await;
    world.driver.create(&world.request("b")).await.unwrap();
    let confused = with_id(world.request("a"), "kubevirt://b");
    assert_eq!(code(world.driver.status(&confused).await), Code::NotFound);
    world.driver.delete(&confused).await.unwrap();
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn a_list_has_the_vms_of_the_cluster_and_the_role_and_no_others() {
    let world = World::new().await;
    let ours = world.put("a", &marked_with(&json!({OWNER_LABEL: "team-b"})));
    world.put("b", &json!({CLUSTER: "other", ROLE: "node"}));
    world.put("c", &json!({}));
    world.put("d", &json!({CLUSTER: "shoot", ROLE: "bastion"}));
    world.put("e", &json!({ROLE: "node"}));
    let request = world.request("a");
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, [(ours, ListedVm::new("a", Some("team-b".to_owned())))].into());
}

/// KubeVirt copies all labels with a clone, and with a VM that is restored from a snapshot under another name.
#[tokio::test]
async fn a_copy_of_a_vm_is_neither_listed_nor_that_of_a_machine() {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    let labels = world.kubernetes.lock().cloud.vms["a"]["metadata"]["labels"].clone();
    assert_eq!(labels[UID_LABEL], "uid-a");
    world.put("a-clone", &labels);
    let ours = ListedVm::new("a", Some(OWNER.to_owned()));
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, [("kubevirt://a".to_owned(), ours)].into());
    let other = world.request_for("a-clone", "uid-a", spec());
    assert_eq!(code(world.driver.status(&other).await), Code::NotFound);
    assert_eq!(code(world.driver.create(&other).await), Code::AlreadyExists);
    world.driver.delete(&with_id(request.clone(), "kubevirt://a")).await.unwrap();
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap(), BTreeMap::new());
    assert_eq!(world.count(), 1);
}

/// The reference lists all VMs of the namespace then, and its collector of orphans deletes them.
#[rstest]
#[case::no_tags(json!({}))]
#[case::other_tags(json!({"team": "a"}))]
#[case::no_role(json!({CLUSTER: "shoot"}))]
#[tokio::test]
async fn a_class_without_markers_lists_nothing_and_deletes_nothing(#[case] tags: Value) {
    let world = World::new().await;
    let id = world.put("a", &marked());
    let request = world.request_for("a", "uid-a", spec_with(&json!({"tags": tags})));
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::InvalidArgument);
    assert_eq!(code(world.driver.delete(&with_id(request.clone(), &id)).await), Code::InvalidArgument);
    assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    assert_eq!((world.count(), world.kubernetes.lock().log.len()), (1, 0));
}

#[rstest]
#[case::without_a_uid("a", "")]
#[case::of_a_long_name("a-name-that-is-longer-than-the-value-of-a-label-of-kubernetes-may-be", "uid")]
#[tokio::test]
async fn a_machine_that_no_vm_can_have_is_refused(#[case] name: &str, #[case] uid: &str) {
    let world = World::new().await;
    let request = world.request_for(name, uid, spec());
    assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    assert_eq!(world.kubernetes.lock().log.len(), 0);
}

#[rstest]
#[case::pauses(true)]
#[case::waits(false)]
#[tokio::test]
async fn a_creation_lasts_until_the_vm_has_started(#[case] may_pause: bool) {
    let world = World::new().await;
    world.kubernetes.lock().cloud.start = Start::AfterLooks(4);
    let request = MachineRequest { may_pause, ..world.request("a") };
    let mut pauses = 0;
    let vm = loop {
        match world.driver.create(&request).await {
            Ok(vm) => break vm,
            Err(error) => assert!(error.call_again_in.is_some(), "{error}"),
        }
        pauses += 1;
        // Until then it is not that of the Machine, but exists.
        let status = world.driver.status(&request).await;
        assert!(status.is_ok_and(|vm| vm.halted.is_none()) || pauses < 4);
    };
    assert_eq!((vm.provider_id.as_str(), pauses > 0, world.calls("vm.create")), ("kubevirt://a", may_pause, 1));
}

#[tokio::test]
async fn the_status_of_a_vm_that_has_not_started_is_not_an_absence() {
    let world = World::new().await;
    let id = world.put("a", &marked());
    world.kubernetes.lock().cloud.start = Start::AfterLooks(99);
    let request = MachineRequest { may_pause: true, ..world.request("a") };
    let error = world.driver.status(&request).await.unwrap_err();
    assert_eq!((error.code, error.call_again_in.is_some()), (Code::Unavailable, true));
    // A Machine that has its VM keeps it.
    assert_eq!(world.driver.status(&with_id(request, &id)).await.unwrap().provider_id, id);
}

#[rstest]
#[case::pauses(true)]
#[case::waits(false)]
#[tokio::test]
async fn a_deletion_lasts_until_the_vm_is_gone(#[case] may_pause: bool) {
    let world = World::new().await;
    world.kubernetes.lock().cloud.lingers = 5;
    let vm = world.driver.create(&world.request("a")).await.unwrap();
    let request = with_id(MachineRequest { may_pause, ..world.request("a") }, &vm.provider_id);
    let mut pauses = 0;
    while let Err(error) = world.driver.delete(&request).await {
        assert!(error.call_again_in.is_some(), "{error}");
        pauses += 1;
        if pauses == 1 {
            assert_eq!(world.driver.status(&request).await.unwrap().halted.as_deref(), Some("terminating"));
        }
    }
    assert_eq!((pauses > 0, world.count(), world.calls("vm.delete")), (may_pause, 0, 1));
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
}

#[tokio::test]
async fn a_vm_that_is_being_deleted_is_not_that_of_a_new_machine() {
    let world = World::new().await;
    world.kubernetes.lock().cloud.lingers = 6;
    let earlier = world.request_for("a", "earlier", spec());
    world.driver.create(&earlier).await.unwrap();
    let earlier = MachineRequest { may_pause: true, ..earlier };
    world.driver.delete(&earlier).await.unwrap_err();
    let request = world.request("a");
    assert_eq!(code(world.driver.create(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.status(&earlier).await), Code::Unavailable, "nor that of its own again");
    while let Err(error) = world.driver.create(&request).await {
        assert_eq!(error.code, Code::Unavailable, "{error}");
    }
    assert_eq!((world.count(), world.kubernetes.lock().cloud.created), (1, 2));
}

/// Between the look-up and the deletion another VM took the name.
#[tokio::test]
async fn a_later_vm_of_the_same_name_is_not_deleted() {
    let world = World::new().await;
    world.put("a", &marked());
    let request = world.request("a");
    let old = world.driver.status(&request).await.unwrap();
    let reply = {
        let mut kubernetes = world.kubernetes.lock();
        let sent = kubernetes.sent("vm.get")[0].clone();
        let reply = super::server::FakeCloud::answer(&mut kubernetes.cloud, &sent);
        kubernetes.cloud.take("a");
        kubernetes.cloud.put("a", &marked());
        reply
    };
    world.fail("vm.get", super::server::Fault::Error(reply), 1);
    assert_eq!(code(world.driver.delete(&with_id(request, &old.provider_id)).await), Code::Aborted);
    assert_eq!(world.count(), 1);
}
