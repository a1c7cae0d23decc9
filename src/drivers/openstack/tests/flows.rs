//! The decisions of the driver by the servers that it finds.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use mcm_driver::{Code, ListedVm, MachineRequest, interface::Driver};
use rstest::rstest;
use serde_json::json;

use super::{
    CLUSTER, OWNER, OWNER_KEY, ROLE, UID, World, announced, code,
    fake::{self},
    server::Fault,
    store, with_id,
};

#[rstest]
#[case::without_role(&[CLUSTER])]
#[case::without_cluster(&[ROLE])]
#[case::of_another_cluster(&[("kubernetes.io-cluster-other", "1"), ROLE])]
#[case::without_metadata(&[])]
#[tokio::test]
async fn a_server_without_our_markers_is_neither_found_nor_deleted(#[case] metadata: &[(&str, &str)]) {
    let world = World::new().await;
    let id = world.put("a", metadata);
    for request in [world.request("a"), with_id(world.request("a"), &id)] {
        assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
        world.driver.delete(&request).await.unwrap();
    }
    assert_eq!(world.count(), 1);
    let vm = world.driver.create(&world.request("a")).await.unwrap();
    assert_ne!(vm.provider_id, id);
}

/// A regular expression finds more than it should.
#[tokio::test]
async fn a_server_with_a_similar_name_is_another() {
    let world = World::new().await;
    for name in ["ab", "ba", "A"] {
        world.put(name, &[CLUSTER, ROLE]);
    }
    world.put("axb", &[CLUSTER, ROLE]);
    for name in ["a", "a.b"] {
        assert_eq!(code(world.driver.status(&world.request(name)).await), Code::NotFound);
    }
}

#[tokio::test]
async fn a_known_server_that_lost_its_markers_is_known_by_its_uid() {
    let world = World::new().await;
    let id = world.put("a", &[(UID, "uid-a")]);
    let known = with_id(world.request("a"), &id);
    assert_eq!(world.driver.status(&known).await.unwrap().provider_id, id);
    assert_eq!(code(world.driver.status(&world.request("a")).await), Code::NotFound);
    world.driver.delete(&known).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn a_list_has_the_servers_of_cluster_and_role_and_no_others() {
    let world = World::new().await;
    let ours = world.put("a", &[CLUSTER, ROLE, (OWNER_KEY, "team-b")]);
    world.put("b", &[("kubernetes.io-cluster-other", "1"), ROLE]);
    world.put("c", &[]);
    world.put("d", &[CLUSTER]);
    let gone = world.put("e", &[CLUSTER, ROLE]);
    world.openstack.lock().cloud.servers.get_mut(gone.rsplit('/').next().unwrap()).unwrap().status =
        "SOFT_DELETED".to_owned();
    let request = world.request("a");
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, [(ours, ListedVm::new("a", Some("team-b".to_owned())))].into());
    assert_eq!(code(world.driver.status(&with_id(world.request("e"), &gone)).await), Code::NotFound);
}

#[tokio::test]
async fn a_list_has_all_pages() {
    let world = World::new().await;
    for number in 0..7 {
        world.put(&format!("m-{number}"), &[CLUSTER, ROLE]);
    }
    world.openstack.lock().cloud.page = 3;
    let request = world.request("a");
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!((listed.len(), world.calls("server.list")), (7, 3));
    // A page that fails is no end.
    world.fail("server.list", Fault::Status(502), 2);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unavailable);
}

#[rstest]
#[case::pauses(true)]
#[case::waits(false)]
#[tokio::test]
async fn a_creation_lasts_until_the_server_runs(#[case] may_pause: bool) {
    let world = World::new().await;
    world.openstack.lock().cloud.builds = 4;
    let mut request = MachineRequest { may_pause, ..world.request("a") };
    let mut pauses = 0;
    while let Err(error) = world.driver.create(&request).await {
        assert!(error.call_again_in.is_some(), "{error}");
        store(&mut request, &error);
        let shown = world.driver.status(&request).await;
        assert!(shown.is_ok_and(|vm| vm.node_name == "a") || world.count() == usize::from(pauses > 0));
        pauses += 1;
    }
    assert_eq!((pauses > 0, world.count(), world.calls("server.create")), (may_pause, 1, 1));
}

#[tokio::test]
async fn a_server_that_is_being_built_is_not_shown_as_finished() {
    let world = World::new().await;
    world.openstack.lock().cloud.builds = 1000;
    let request = announced(&world.driver, world.request("a")).await;
    assert!(world.driver.create(&request).await.unwrap_err().call_again_in.is_some());
    let error = world.driver.status(&request).await.unwrap_err();
    assert_eq!((error.code, error.call_again_in.is_some()), (Code::Unavailable, true));
    // A deletion does not wait for the end of a creation.
    let mut deleting = request.clone();
    Arc::make_mut(&mut deleting.machine).metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    world.driver.status(&deleting).await.unwrap();
    world.driver.delete(&MachineRequest { may_pause: false, ..deleting }).await.unwrap();
    assert_eq!(world.count(), 0);
}

/// In Gardener's driver a creation deletes the server that it finds, unless it runs.
#[rstest]
#[case("SHUTOFF", Some("SHUTOFF"))]
#[case("PAUSED", Some("PAUSED"))]
#[case::an_error_after_it_ran("ERROR", None)]
#[tokio::test]
async fn a_stopped_server_is_adopted_and_not_deleted(#[case] status: &str, #[case] halted: Option<&str>) {
    let world = World::new().await;
    let id = world.put("a", &[CLUSTER, ROLE]);
    world.openstack.lock().cloud.servers.values_mut().for_each(|server| server.status = status.to_owned());
    let vm = world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!((vm.provider_id, vm.halted.as_deref()), (id, halted));
    assert_eq!((world.count(), world.calls("server.delete")), (1, 0));
}

/// A server without a UID was not created by mcm, so it stays until its Machine is deleted.
#[tokio::test]
async fn a_server_of_the_reference_that_failed_is_reported_and_kept() {
    let world = World::new().await;
    {
        let cloud = &mut world.openstack.lock().cloud;
        cloud.put("a", &[CLUSTER, ROLE]);
        cloud.fault = Some("No valid host was found. ".to_owned());
        cloud.servers.values_mut().for_each(|server| server.status = "BUILD".to_owned());
    }
    let request = world.request("a");
    assert_eq!(code(world.driver.create(&request).await), Code::ResourceExhausted);
    assert_eq!(world.count(), 1);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

/// The reason of a failure is reported by the creation, which the status therefore requests.
#[tokio::test]
async fn a_failure_after_a_pause_is_reported() {
    let world = World::new().await;
    {
        let cloud = &mut world.openstack.lock().cloud;
        (cloud.builds, cloud.fault) = (1, Some("No valid host was found. ".to_owned()));
    }
    let request = announced(&world.driver, world.request("a")).await;
    assert!(world.driver.create(&request).await.unwrap_err().call_again_in.is_some());
    assert_eq!(code(world.driver.status(&request).await), Code::Unimplemented);
    assert_eq!(code(world.driver.create(&request).await), Code::ResourceExhausted);
    assert_eq!(world.count(), 0);
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
}

#[rstest]
#[case::pauses(true)]
#[case::waits(false)]
#[tokio::test]
async fn a_deletion_lasts_until_the_server_is_gone(#[case] may_pause: bool) {
    let world = World::new().await;
    world.openstack.lock().cloud.lingers = 4;
    let request = MachineRequest { may_pause, ..world.request("a") };
    let vm = world.driver.create(&MachineRequest { may_pause: false, ..request.clone() }).await.unwrap();
    let request = with_id(request, &vm.provider_id);
    let mut pauses = 0;
    while let Err(error) = world.driver.delete(&request).await {
        assert!(error.call_again_in.is_some(), "{error}");
        pauses += 1;
    }
    assert_eq!((pauses > 0, world.calls("server.delete")), (may_pause, 1));
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
}

/// Cinder, Neutron or the storage do not answer Nova.
#[rstest]
#[case::once(1, true)]
#[case::twice(2, true)]
#[case::of_a_caller_that_waits(1, false)]
#[tokio::test]
async fn a_deletion_that_nova_gives_up_is_requested_again(#[case] times: usize, #[case] may_pause: bool) {
    let world = World::new().await;
    let request = world.request_with_parts("a");
    let vm = world.driver.create(&request).await.unwrap();
    {
        let cloud = &mut world.openstack.lock().cloud;
        (cloud.lingers, cloud.undeleted) = (2, times);
    }
    let known = MachineRequest { may_pause, ..with_id(request, &vm.provider_id) };
    let mut faults = 0;
    while let Err(error) = world.driver.delete(&known).await {
        let is_fault = error.message.contains("Timeout while waiting on RPC response");
        assert!(is_fault != error.call_again_in.is_some() && error.code.is_transient(), "{error}");
        faults += usize::from(is_fault);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!((faults, world.calls("server.delete"), world.counts()), (times, times + 1, (0, 0, 0)));
}

/// A server in that state from before, and one that is not deleted yet, have one request.
#[tokio::test]
async fn a_deletion_that_nova_works_on_is_requested_once() {
    let world = World::new().await;
    let id = world.put("a", &[CLUSTER, ROLE, (UID, "uid-a")]);
    {
        let cloud = &mut world.openstack.lock().cloud;
        cloud.lingers = 12;
        cloud.servers.values_mut().for_each(|server| server.status = "ERROR".to_owned());
    }
    world.driver.delete(&with_id(world.request("a"), &id)).await.unwrap();
    assert_eq!((world.count(), world.calls("server.delete")), (0, 1));
}

/// Seen with Nova 34: while it moves a server into its cell, a list may lack it, although it is there by its ID.
#[tokio::test]
async fn a_new_server_that_lists_lack_is_found_by_its_id() {
    let world = World::new().await;
    {
        let cloud = &mut world.openstack.lock().cloud;
        (cloud.builds, cloud.unlisted) = (5, 1000);
    }
    let mut request = MachineRequest { may_pause: true, ..world.request_with_parts("a") };
    while let Err(error) = world.driver.create(&request).await {
        assert!(error.call_again_in.is_some(), "{error}");
        store(&mut request, &error);
    }
    world.driver.status(&request).await.unwrap();
    assert_eq!((world.counts(), world.calls("server.create")), ((1, 1, 1), 1));
    world.driver.delete(&MachineRequest { may_pause: false, ..request.clone() }).await.unwrap();
    assert_eq!(world.counts(), (0, 0, 0));
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
}

/// A list may lack servers of a cell of Nova that is down.
#[tokio::test]
async fn a_known_server_is_gone_only_if_nova_says_so() {
    let world = World::new().await;
    let mut known = Vec::new();
    for name in ["a", "b"] {
        let request = world.request(name);
        let vm = world.driver.create(&request).await.unwrap();
        known.push(with_id(request, &vm.provider_id));
    }
    let empty = json!({"servers": []}).to_string();
    world.fail("server.list", Fault::Error(super::server::Reply { status: 200, body: empty }), 1);
    for status in join_all(known.iter().map(|request| world.driver.status(request))).await {
        status.unwrap();
    }
    assert_eq!(world.openstack.lock().faults[0].2, 0, "the look-ups were joined");
}

#[rstest]
#[case::of_mcm(&[CLUSTER, ROLE, (UID, "uid-a"), (OWNER_KEY, "team-b"), ("pool", "workers")])]
#[case::of_the_reference(&[CLUSTER, ROLE, ("pool", "workers")])]
#[tokio::test]
async fn an_adoption_takes_a_server_off_the_list_and_puts_it_back(#[case] metadata: &[(&str, &str)]) {
    let world = World::new().await;
    let id = world.put("a", metadata);
    let known = with_id(world.request("a"), &id);
    let shown = || world.openstack.lock().cloud.existing()[0].metadata.clone();
    world.driver.tag(&known, false).await.unwrap();
    assert_eq!(world.driver.list(&known.class, &known.secret).await.unwrap(), BTreeMap::new());
    let expected = json!({CLUSTER.0: "1", UID: "uid-a", "pool": "workers"});
    assert_eq!(json!(shown()), expected, "other metadata stay");
    assert_eq!(code(world.driver.status(&world.request("a")).await), Code::NotFound, "only its ID finds it");
    world.driver.tag(&known, true).await.unwrap();
    let listed = world.driver.list(&known.class, &known.secret).await.unwrap();
    assert_eq!(listed, [(id, ListedVm::new("a", Some(OWNER.to_owned())))].into());
    world.assert_valid_requests();
}

#[tokio::test]
async fn an_error_of_a_wrong_route_is_not_an_absence() {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    let known = with_id(request, &vm.provider_id);
    world.fail("server.get", Fault::Status(404), 9);
    assert_eq!(code(world.driver.status(&known).await), Code::Unknown);
    assert_eq!(code(world.driver.delete(&known).await), Code::Unknown);
    world.openstack.lock().faults.clear();
    world.fail("server.list", Fault::Error(fake::nova(404, "itemNotFound", "Image could not be found.")), 9);
    assert_eq!(code(world.driver.list(&known.class, &known.secret).await), Code::Unknown);
    assert_eq!(code(world.driver.status(&world.request("b")).await), Code::Unknown);
}
