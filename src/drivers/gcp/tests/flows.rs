//! The driver finds, creates and deletes VMs of a fake Compute API.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::join_all;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    CLUSTER, OWNER_LABEL, ROLE, UID_LABEL, World, ZONE, code, fake::Fault, spec, spec_with, with_id, with_state,
};
use mcm_driver::{Code, ListedVm, MachineRequest, interface::Driver};

pub(super) fn id(name: &str) -> String {
    format!("gce:///my-project/{ZONE}/{name}")
}

/// Google documents masks for its services in general, and a private cloud may have none.
#[tokio::test]
async fn a_host_that_takes_no_masks_of_fields_is_asked_for_all_fields() {
    let world = World::new().await;
    world.gce.lock().refuses_masks = true;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    let known = with_id(request, &vm.provider_id);
    world.driver.status(&known).await.unwrap();
    assert_eq!(world.driver.list(&known.class, &known.secret).await.unwrap().len(), 1);
    world.driver.delete(&known).await.unwrap();
    assert_eq!(world.count(), 0);
    let masked = world.gce.lock().sent.iter().filter(|sent| sent.query.contains_key("fields")).count();
    assert_eq!(masked, 1, "a refusal is remembered");
}

#[tokio::test]
async fn a_list_that_is_refused_for_another_reason_keeps_its_mask() {
    let world = World::new().await;
    world.gce.lock().faults.push(("instances.list", Fault::Error("invalid", 400), 2));
    let request = world.request("a");
    assert_eq!(code(world.driver.status(&request).await), Code::InvalidArgument);
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    let lists: Vec<bool> = world
        .gce
        .lock()
        .sent
        .iter()
        .filter(|sent| sent.call == "instances.list")
        .map(|sent| sent.query.contains_key("fields"))
        .collect();
    assert_eq!(lists, [true, false, true]);
}

/// As with Gardener's driver, labels of mcm are left out if Google takes no more.
#[rstest]
#[case(62, true, true)]
#[case(63, true, false)]
#[case(64, false, false)]
#[tokio::test]
async fn a_vm_of_a_pool_with_many_labels_lives_from_create_to_delete(
    #[case] count: usize,
    #[case] has_uid: bool,
    #[case] has_owner: bool,
) {
    let world = World::new().await;
    let labels: Value = (0..count).map(|number| (format!("label-{number}"), json!("x"))).collect();
    let request = world.request_for("a", "uid-a", spec_with(&json!({"labels": labels})));
    let vm = world.driver.create(&request).await.unwrap();
    let sent = world.gce.lock().bodies("instances.insert")[0]["labels"].clone();
    assert_eq!((sent.get(UID_LABEL).is_some(), sent.get(OWNER_LABEL).is_some()), (has_uid, has_owner));
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm.provider_id);
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed[&vm.provider_id].owner.is_some(), has_owner);
    world.driver.delete(&with_id(request, &vm.provider_id)).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[rstest]
#[case("STAGING")]
#[case("RUNNING")]
#[case("STOPPING")]
#[case("STOPPED")]
#[case("SUSPENDED")]
#[case("TERMINATED")]
#[case("REPAIRING")]
#[tokio::test]
async fn a_vm_in_any_state_exists(#[case] status: &str) {
    let world = World::new().await;
    world.put("a", status);
    let request = world.request("a");
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, id("a"));
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_vm_that_is_still_provisioned_is_not_there_yet_unless_it_is_known() {
    let world = World::new().await;
    world.put("a", "PROVISIONING");
    let request = world.request("a");
    assert_eq!(code(world.driver.status(&request).await), Code::Unavailable, "it may still fail");
    world.driver.status(&with_id(request.clone(), &id("a"))).await.expect("it was there before, and starts again");
    assert_eq!(code(world.driver.create(&request).await), Code::Unavailable, "its request is not ours to repeat");
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap().len(), 1);
}

#[rstest]
#[case::of_an_earlier_machine(&[CLUSTER, ROLE], json!({UID_LABEL: "earlier"}))]
#[case::of_another_cluster(&["kubernetes-io-cluster-other", ROLE], json!({}))]
#[case::of_another_role(&[CLUSTER, "kubernetes-io-role-other"], json!({}))]
#[case::of_nobody(&[], json!({}))]
#[tokio::test]
async fn the_vm_of_another_with_that_name_is_told_and_left_alone(#[case] tags: &[&str], #[case] labels: Value) {
    let world = World::new().await;
    world.gce.lock().put(ZONE, "a", tags, &labels, "RUNNING");
    let request = world.request("a");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!((error.code, error.message.contains("VM a exists")), (Code::AlreadyExists, true), "{error}");
    world.driver.delete(&request).await.unwrap();
    // Nor if the look-up misses it at first.
    world.gce.lock().vms.values_mut().for_each(|vm| vm.hidden = 1);
    assert_eq!(code(world.driver.create(&request).await), Code::AlreadyExists);
    assert_eq!(world.count(), 1);
    assert_eq!(world.gce.lock().bodies("instances.delete").len(), 0);
}

#[tokio::test]
async fn a_provider_id_finds_its_vm_whatever_the_uid_and_wherever_the_class_is_now() {
    let world = World::new().await;
    world.put_for("a", "earlier");
    // A Machine that was restored has a new UID and its provider ID.
    let elsewhere = spec_with(&json!({"zone": "europe-west1-c"}));
    let restored = with_id(world.request_for("a", "new", elsewhere), &id("a"));
    assert_eq!(world.driver.status(&restored).await.unwrap().provider_id, id("a"));
    let orphan = with_id(world.request_for("a", "", spec()), &id("a"));
    world.driver.delete(&orphan).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[rstest]
#[case::tags_removed(&[], "uid-a", true)]
#[case::tags_removed_of_another(&[], "x", false)]
#[case::role_removed(&[CLUSTER], "uid-a", true)]
#[case::of_another_cluster(&["kubernetes-io-cluster-other", ROLE], "uid-a", false)]
#[tokio::test]
async fn a_known_vm_without_tags_is_known_by_its_uid_but_not_one_of_another_cluster(
    #[case] tags: &[&str],
    #[case] uid: &str,
    #[case] is_ours: bool,
) {
    let world = World::new().await;
    world.gce.lock().put(ZONE, "a", tags, &json!({ UID_LABEL: uid }), "RUNNING");
    let known = with_id(world.request("a"), &id("a"));
    assert_eq!(world.driver.status(&known).await.is_ok(), is_ours);
    world.driver.delete(&known).await.unwrap();
    assert_eq!(world.count() == 0, is_ours);
}

#[tokio::test]
async fn a_list_has_the_vms_with_both_tags_and_no_others() {
    let world = World::new().await;
    world.put("a", "RUNNING");
    {
        let mut gce = world.gce.lock();
        gce.put(ZONE, "b", &["x", ROLE, CLUSTER], &json!({}), "TERMINATED");
        gce.put(ZONE, "c", &[CLUSTER], &json!({}), "RUNNING");
        gce.put(ZONE, "d", &["kubernetes-io-cluster-other", ROLE], &json!({}), "RUNNING");
        gce.put("europe-west1-c", "e", &[CLUSTER, ROLE], &json!({}), "RUNNING");
    }
    let request = world.request("a");
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, BTreeMap::from([(id("a"), ListedVm::unmarked("a")), (id("b"), ListedVm::unmarked("b"))]));
}

#[tokio::test]
async fn a_list_has_all_pages_or_fails() {
    let world = World::new().await;
    for number in 0..7 {
        world.put(&format!("m-{number}"), "RUNNING");
    }
    world.gce.lock().page = Some(3);
    let request = world.request("a");
    let list = || world.driver.list(&request.class, &request.secret);
    assert_eq!(list().await.unwrap().len(), 7);
    assert_eq!(world.gce.lock().bodies("instances.list").len(), 3);
    world.gce.lock().repeats_page = true;
    assert_eq!(code(list().await), Code::Unavailable);
    world.gce.lock().repeats_page = false;
    world.gce.lock().warning = Some("UNREACHABLE");
    assert_eq!(code(list().await), Code::Unavailable, "a part of Google did not answer");
    world.gce.lock().warning = Some("NO_RESULTS_ON_PAGE");
    list().await.unwrap();
}

#[tokio::test]
async fn machines_that_wait_together_share_their_look_ups() {
    let world = World::new().await;
    for number in 0..60 {
        world.put(&format!("m-{number}"), "RUNNING");
    }
    let requests: Vec<MachineRequest> = (0..60).map(|number| world.request(&format!("m-{number}"))).collect();
    let some = join_all(requests.iter().take(3).map(|request| world.driver.status(request))).await;
    assert!(some.iter().all(Result::is_ok));
    let filter = world.gce.lock().queries("instances.list")[0]["filter"].clone();
    assert_eq!(filter, r#"(name = "m-0") OR (name = "m-1") OR (name = "m-2")"#);
    let all = join_all(requests.iter().map(|request| world.driver.status(request))).await;
    for (number, vm) in all.into_iter().enumerate() {
        assert_eq!(vm.unwrap().node_name, format!("m-{number}"));
    }
    {
        let queries = world.gce.lock().queries("instances.list");
        assert_eq!((queries.len(), queries[1].get("filter")), (2, None), "so many names are no filter");
    }
    let elsewhere = world.request_for("m-1", "uid-m-1", spec_with(&json!({"zone": "europe-west1-c"})));
    let apart = [world.request("m-1"), elsewhere];
    let found = join_all(apart.iter().map(|request| world.driver.status(request))).await;
    assert!(found[0].is_ok() && found[1].is_err());
    assert_eq!(world.gce.lock().queries("instances.list").len(), 4, "two zones share nothing");
}

#[tokio::test]
async fn every_attempt_of_a_creation_has_the_same_id() {
    let world = World::new().await;
    world.gce.lock().faults.push(("instances.insert", Fault::LostAnswer, 99));
    assert_eq!(code(world.driver.create(&world.request("a")).await), Code::Unknown);
    world.gce.lock().faults.clear();
    world.gce.lock().vms.values_mut().for_each(|vm| vm.hidden = 1);
    world.driver.create(&world.request("a")).await.unwrap();
    world.driver.create(&world.request("b")).await.unwrap();
    let ids: Vec<String> =
        world.gce.lock().queries("instances.insert").iter().map(|query| query["requestId"].clone()).collect();
    assert_eq!(ids.len(), 4);
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3], "{ids:?}");
    assert_eq!(world.gce.lock().names(), ["a", "b"]);
}

#[tokio::test]
async fn an_operation_that_fails_says_why_and_the_next_attempt_makes_another_request() {
    let world = World::new().await;
    world.gce.lock().failing.push_back(vec!["ZONE_RESOURCE_POOL_EXHAUSTED"]);
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!((error.code, error.last_known_state.as_deref()), (Code::ResourceExhausted, Some("Spent requests: 1")));
    assert!(error.message.contains("ZONE_RESOURCE_POOL_EXHAUSTED") && !error.message.contains("hunter2"), "{error}");
    assert_eq!(world.count(), 0);
    world.gce.lock().failing.push_back(vec!["QUOTA_EXCEEDED"]);
    let next = with_state(world.request("a"), error.last_known_state);
    let error = world.driver.create(&next).await.unwrap_err();
    assert_eq!((error.code, error.last_known_state.as_deref()), (Code::ResourceExhausted, Some("Spent requests: 2")));
    assert_eq!(world.gce.lock().inserts, 2, "the state says which request is next");
    world.driver.create(&with_state(world.request("a"), error.last_known_state)).await.unwrap();
    assert_eq!(world.inserts_and_vms(), (3, 1));
}

#[tokio::test]
async fn a_request_that_failed_earlier_is_passed_over_if_the_state_was_lost() {
    let world = World::new().await;
    for _ in 0..3 {
        world.gce.lock().failing.push_back(vec!["QUOTA_EXCEEDED"]);
        world.driver.create(&world.request("a")).await.unwrap_err();
    }
    assert_eq!(world.gce.lock().inserts, 1 + 2 + 3);
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!(world.inserts_and_vms(), (1 + 2 + 3 + 4, 1));
}

#[tokio::test]
async fn a_vm_that_is_gone_after_its_creation_is_created_again_but_not_for_ever() {
    let world = World::new().await;
    world.gce.lock().vanishing = 1;
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!(world.inserts_and_vms(), (2, 1));
    world.gce.lock().vanishing = 99;
    let error = world.driver.create(&world.request("b")).await.unwrap_err();
    assert_eq!((error.code, error.last_known_state.as_deref()), (Code::Internal, Some("Spent requests: 5")));
    assert_eq!(world.gce.lock().inserts, 2 + 5);
}

#[tokio::test]
async fn a_vm_that_its_look_up_does_not_show_yet_is_not_created_twice() {
    let world = World::new().await;
    world.put_for("a", "uid-a");
    world.gce.lock().vms.values_mut().for_each(|vm| vm.hidden = usize::MAX);
    assert_eq!(code(world.driver.create(&world.request("a")).await), Code::Aborted);
    world.gce.lock().vms.values_mut().for_each(|vm| vm.hidden = 1);
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn an_operation_that_takes_too_long_is_continued_by_the_next_attempt() {
    let world = World::new().await;
    world.gce.lock().steps = usize::MAX;
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!((error.code, error.last_known_state), (Code::DeadlineExceeded, None));
    assert_eq!(code(world.driver.status(&world.request("a")).await), Code::Unavailable);
    world.gce.lock().set_status("a", "STAGING");
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!(world.inserts_and_vms(), (1, 1));
}

#[tokio::test]
async fn without_a_name_or_user_data_nothing_is_created() {
    let world = World::new().await;
    let mut without_data = world.request("a");
    without_data.secret.0.remove("userData");
    for request in [without_data, world.request("A.b"), world.request("a/../b")] {
        assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    }
    assert_eq!(code(world.driver.status(&world.request("a/../b")).await), Code::NotFound, "no VM can have that name");
    world.driver.delete(&world.request("a/../b")).await.unwrap();
    assert_eq!(world.gce.lock().inserts, 0);
}

#[rstest]
#[case("a\"b")]
#[case("a.b")]
#[tokio::test]
async fn a_name_that_no_vm_can_have_disturbs_no_look_up(#[case] name: &str) {
    let world = World::new().await;
    let request = with_id(world.request("a"), &id(name));
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    world.driver.delete(&request).await.unwrap();
    assert!(world.gce.lock().sent.is_empty(), "it would be part of a filter that others share");
}

#[tokio::test]
async fn a_class_without_markers_makes_no_invisible_vms() {
    let world = World::new().await;
    for tags in [json!([]), json!([CLUSTER]), json!([ROLE])] {
        let request = world.request_for("a", "uid", spec_with(&json!({ "tags": tags })));
        let error = world.driver.create(&request).await.unwrap_err();
        assert_eq!((error.code, error.message.contains("tags")), (Code::InvalidArgument, true), "{error}");
        assert_eq!(code(world.driver.status(&request).await), Code::InvalidArgument, "unknown is not absent");
        assert_eq!(code(world.driver.delete(&request).await), Code::InvalidArgument);
        assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::InvalidArgument);
    }
    assert!(world.gce.lock().sent.is_empty());
}

#[tokio::test]
async fn a_class_of_another_provider_is_refused() {
    let world = World::new().await;
    let mut request = world.request("a");
    Arc::make_mut(&mut request.class).provider = "AWS".to_owned();
    assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    assert_eq!(code(world.driver.status(&request).await), Code::InvalidArgument);
    assert_eq!(code(world.driver.delete(&request).await), Code::InvalidArgument);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::InvalidArgument);
    assert!(world.gce.lock().sent.is_empty());
}
