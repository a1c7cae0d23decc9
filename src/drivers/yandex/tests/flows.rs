//! The decisions of the driver by the instances that it finds.

use futures::future::join_all;
use mcm_driver::{Code, ListedVm, interface::Driver};
use rstest::rstest;
use serde_json::json;

use super::{CLUSTER, OWNER_LABEL, ROLE, World, code, fake::label_of, provider_id, spec, spec_with, with_id};

#[rstest]
#[case::of_an_earlier_machine(&[CLUSTER, ROLE, "machine-sapcloud-io-machine-uid=earlier"])]
#[case::of_another_cluster(&["kubernetes-io-cluster-other", ROLE])]
#[case::made_by_hand(&[])]
#[tokio::test]
async fn the_instance_of_another_with_that_name_is_left_alone(#[case] labels: &[&str]) {
    let world = World::new().await;
    let other = world.put("a", labels);
    let request = world.request("a");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    world.driver.delete(&request).await.unwrap();
    // Names are unique in a folder.
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!((error.code, world.count(), world.calls("instance.create")), (Code::AlreadyExists, 1, 0));
    assert!(error.message.contains(other.rsplit('/').next().unwrap()), "{error}");
}

#[tokio::test]
async fn a_machine_that_was_restored_keeps_its_vm() {
    let world = World::new().await;
    let earlier = world.put("a", &[CLUSTER, ROLE, "machine-sapcloud-io-machine-uid=earlier"]);
    let restored = with_id(world.request_for("a", "new", spec()), &earlier);
    assert_eq!(world.driver.status(&restored).await.unwrap().provider_id, earlier);
}

#[rstest]
#[case::of_another_cluster(&["kubernetes-io-cluster-other", ROLE], false)]
#[case::that_lost_a_marker(&[CLUSTER], true)]
#[case::that_lost_its_labels(&[], true)]
#[tokio::test]
async fn a_provider_id_does_not_find_the_instance_of_another_cluster(#[case] labels: &[&str], #[case] is_found: bool) {
    let world = World::new().await;
    let known = with_id(world.request("a"), &world.put("a", labels));
    assert_eq!(world.driver.status(&known).await.is_ok(), is_found);
    world.driver.delete(&known).await.unwrap();
    assert_eq!(world.count(), usize::from(!is_found));
}

#[tokio::test]
async fn the_instance_of_another_folder_is_left_alone() {
    let world = World::new().await;
    let known = with_id(world.request("a"), &world.put("a", &[CLUSTER, ROLE]));
    world.yandex.lock().cloud.instances.values_mut().for_each(|instance| instance["folderId"] = "b1gother".into());
    assert_eq!(code(world.driver.status(&known).await), Code::NotFound);
    world.driver.delete(&known).await.unwrap();
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn a_list_has_the_vms_of_the_class_and_no_others() {
    let world = World::new().await;
    let owner = format!("{OWNER_LABEL}=team-b");
    let ours = world.put("a", &[CLUSTER, ROLE, &owner]);
    world.put("b", &["kubernetes-io-cluster-other", ROLE]);
    world.put("c", &[CLUSTER]);
    world.put("d", &[]);
    let request = world.request("a");
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, [(ours, ListedVm::new("a", Some("team-b".to_owned())))].into());
}

#[tokio::test]
async fn a_list_has_all_pages() {
    let world = World::new().await;
    for number in 0..25 {
        world.put(&format!("m-{number}"), &[CLUSTER, ROLE]);
    }
    world.yandex.lock().cloud.page = 10;
    let request = world.request("a");
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap().len(), 25);
    assert_eq!(world.calls("instance.list"), 3);
    // A page that fails is not the end of the list.
    world.fail("instance.list", super::server::Fault::Status(503), 9);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unavailable);
}

#[rstest]
#[case::as_the_reference_lists_it("yandex://ru-central1-a/a", Code::NotFound)]
#[case::as_the_cloud_controller_manager_writes_it("yandex://fhm00000", Code::InvalidArgument)]
#[case::of_another_cloud("aws:///eu-west-1/i-1", Code::InvalidArgument)]
#[case::leads_elsewhere("yandex://ru-central1-a/..", Code::InvalidArgument)]
#[tokio::test]
async fn a_provider_id_is_that_of_an_instance(#[case] id: &str, #[case] expected: Code) {
    let world = World::new().await;
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!(code(world.driver.status(&with_id(world.request("a"), id)).await), expected);
}

#[rstest]
#[case("1-worker")]
#[case("worker.a")]
#[case("a\" OR name != \"b")]
#[tokio::test]
async fn a_machine_that_cannot_be_the_name_of_an_instance_gets_none(#[case] name: &str) {
    let world = World::new().await;
    let request = world.request(name);
    assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.calls("instance.list"), 0, "no filter contains such a name");
}

#[tokio::test]
async fn a_stopped_instance_is_there_with_the_word_of_the_cloud() {
    let world = World::new().await;
    let known = with_id(world.request("a"), &world.put("a", &[CLUSTER, ROLE]));
    world.yandex.lock().cloud.instances.values_mut().for_each(|instance| instance["status"] = "STOPPED".into());
    assert_eq!(world.driver.status(&known).await.unwrap().halted.as_deref(), Some("stopped"));
}

/// An instance that was moved is not in the list, and not absent.
#[tokio::test]
async fn an_instance_that_a_shared_list_does_not_show_is_looked_at() {
    let world = World::new().await;
    let ids: Vec<String> = ["a", "b"].map(|name| world.put(name, &[CLUSTER, ROLE])).into();
    let known: Vec<_> = ["a", "b"].iter().zip(&ids).map(|(name, id)| with_id(world.request(name), id)).collect();
    world.fail(
        "instance.list",
        super::server::Fault::Error(super::server::Reply { status: 200, body: "{}".to_owned() }),
        1,
    );
    for status in join_all(known.iter().map(|request| world.driver.status(request))).await {
        status.unwrap();
    }
    assert_eq!((world.calls("instance.list"), world.calls("instance.get")), (1, 2));
}

#[tokio::test]
async fn markers_in_the_labels_of_the_class_find_its_vms() {
    let world = World::new().await;
    let mut request = world.request_for("a", "uid-a", spec_with(&json!({"labels": null})));
    let class = std::sync::Arc::make_mut(&mut request.class);
    class.metadata.labels = Some([CLUSTER, ROLE].map(|key| (key.to_owned(), "x".to_owned())).into());
    let vm = world.driver.create(&request).await.unwrap();
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed.keys().collect::<Vec<_>>(), [&vm.provider_id]);
    let yandex = world.yandex.lock();
    assert_eq!(label_of(yandex.cloud.alive()[0], CLUSTER), Some("1"));
}

#[tokio::test]
async fn an_adoption_of_nothing_is_an_error() {
    let world = World::new().await;
    let known = with_id(world.request("a"), &provider_id("fhm99999"));
    assert_eq!(code(world.driver.tag(&known, true).await), Code::NotFound);
}
