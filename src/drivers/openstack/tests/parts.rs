//! Ports and volumes that are created before a server.

use std::time::Duration;

use mcm_driver::{Code, MachineRequest, interface::Driver};
use rstest::rstest;
use serde_json::json;

use super::{
    CLUSTER, ROLE, UID, World, announced, code, fake,
    fake::{NETWORK_ID, SECOND_NETWORK_ID},
    server::Fault,
    spec, spec_with, spec_with_parts, store, with_id,
};

const TAGS: &[&str] = &[CLUSTER.0, ROLE.0];

/// Adds a port; returns its ID.
fn port(world: &World, network: &str, device: &str, uid: Option<&str>, tags: &[&str]) -> String {
    let description = uid.map(|uid| format!("{UID}={uid}")).unwrap_or_default();
    world.openstack.lock().cloud.put_port("a", network, device, &description, tags)
}

#[tokio::test]
async fn parts_live_and_go_with_their_server() {
    let world = World::new().await;
    let request = world.request_with_parts("a");
    let vm = world.driver.create(&request).await.unwrap();
    assert_eq!(world.counts(), (1, 1, 1));
    world.driver.delete(&with_id(request.clone(), &vm.provider_id)).await.unwrap();
    assert_eq!(world.counts(), (0, 0, 0));
    world.driver.delete(&request).await.expect("nothing there is success");
}

/// A deletion that was interrupted after the server continues with the rest.
#[tokio::test]
async fn parts_without_their_server_are_deleted() {
    let world = World::new().await;
    let request = world.request_with_parts("a");
    let vm = world.driver.create(&request).await.unwrap();
    {
        let cloud = &mut world.openstack.lock().cloud;
        let id = cloud.existing()[0].id.clone();
        cloud.take(&id);
    }
    assert_eq!(world.counts(), (0, 1, 1));
    world.driver.delete(&with_id(request, &vm.provider_id)).await.unwrap();
    assert_eq!(world.counts(), (0, 0, 0));
}

#[rstest]
#[case::of_mcm(NETWORK_ID, Some("uid-a"), TAGS, true, true)]
#[case::of_mcm_without_tags(NETWORK_ID, Some("uid-a"), &[], true, true)]
#[case::of_the_reference(NETWORK_ID, None, TAGS, true, true)]
#[case::of_another_machine(NETWORK_ID, Some("uid-b"), TAGS, false, false)]
#[case::by_hand(NETWORK_ID, None, &[], false, false)]
#[case::of_another_cluster(NETWORK_ID, None, &["kubernetes.io-cluster-other", ROLE.0], false, false)]
#[case::in_another_network(SECOND_NETWORK_ID, Some("uid-a"), TAGS, false, true)]
#[tokio::test]
async fn only_ports_of_the_machine_are_used_and_deleted(
    #[case] network: &str,
    #[case] uid: Option<&str>,
    #[case] tags: &[&str],
    #[case] is_used: bool,
    #[case] is_deleted: bool,
) {
    let world = World::new().await;
    let id = port(&world, network, "", uid, tags);
    let request = world.request_with_parts("a");
    world.driver.create(&request).await.unwrap();
    {
        let cloud = &world.openstack.lock().cloud;
        assert_eq!(cloud.ports[&id].device.is_empty(), !is_used);
        assert!(!is_used || cloud.ports[&id].tags == TAGS, "tags that are missing are set");
    }
    assert_eq!(world.calls("port.create"), usize::from(!is_used));
    world.driver.delete(&request).await.unwrap();
    let cloud = &world.openstack.lock().cloud;
    assert_eq!(cloud.ports.contains_key(&id), !is_deleted);
    assert_eq!(cloud.ports.len(), usize::from(!is_deleted));
}

#[tokio::test]
async fn the_port_of_a_server_that_exists_is_left_alone() {
    let world = World::new().await;
    let other = world.put("other", &[]);
    let other = other.rsplit('/').next().unwrap();
    let id = port(&world, NETWORK_ID, other, None, TAGS);
    let stale = port(&world, NETWORK_ID, "00000000-0000-4000-8000-00000000ffff", None, TAGS);
    world.driver.delete(&world.request_with_parts("a")).await.unwrap();
    let cloud = &world.openstack.lock().cloud;
    assert!(cloud.ports.contains_key(&id) && !cloud.ports.contains_key(&stale));
}

/// A provider ID that is out of date does not lead to the parts of the server that the machine has.
#[tokio::test]
async fn the_parts_of_a_server_that_stays_are_left_alone() {
    let world = World::new().await;
    let request = world.request_with_parts("a");
    world.driver.create(&request).await.unwrap();
    let gone = format!("openstack:///{}/00000000-0000-4000-8000-00000000ffff", fake::REGION);
    world.driver.delete(&with_id(request, &gone)).await.unwrap();
    assert_eq!(world.counts(), (1, 1, 1));
}

/// The ID and the UID are right, and the class is of another cluster.
#[tokio::test]
async fn the_parts_of_a_server_of_another_cluster_are_left_alone() {
    let world = World::new().await;
    let request = world.request_with_parts("a");
    let vm = world.driver.create(&request).await.unwrap();
    let mut spec = spec_with_parts();
    spec["spec"]["tags"] = json!({"kubernetes.io-cluster-other": "1", ROLE.0: ROLE.1});
    let of_other = world.request_for("a", "uid-a", spec);
    world.driver.delete(&with_id(of_other, &vm.provider_id)).await.unwrap();
    assert_eq!(world.counts(), (1, 1, 1));
}

/// An orphan has a name and an ID, and its server has the UID of a deleted Machine.
#[tokio::test]
async fn the_parts_of_an_orphan_go_with_it_and_no_others() {
    let world = World::new().await;
    let vm = world.driver.create(&world.request_with_parts("a")).await.unwrap();
    let other = port(&world, NETWORK_ID, "", Some("uid-of-the-next"), TAGS);
    world.driver.delete(&with_id(world.request_for("a", "", spec_with_parts()), &vm.provider_id)).await.unwrap();
    assert_eq!(world.counts(), (0, 1, 0));
    assert!(world.openstack.lock().cloud.ports.contains_key(&other));
}

#[rstest]
#[case::pauses(true)]
#[case::waits(false)]
#[tokio::test]
async fn a_creation_lasts_until_its_volume_is_filled(#[case] may_pause: bool) {
    let world = World::new().await;
    world.openstack.lock().cloud.downloads = 4;
    let mut request = MachineRequest { may_pause, ..world.request_with_parts("a") };
    let mut pauses = 0;
    while let Err(error) = world.driver.create(&request).await {
        assert!(error.call_again_in.is_some(), "{error}");
        store(&mut request, &error);
        pauses += 1;
    }
    assert_eq!((pauses > 0, world.counts(), world.calls("volume.create")), (may_pause, (1, 1, 1), 1));
}

#[rstest]
#[case::of_mcm(&[(UID, "uid-a")], true)]
#[case::of_the_reference(&[CLUSTER, ROLE], true)]
#[case::of_another_machine(&[CLUSTER, ROLE, (UID, "uid-b")], false)]
#[case::by_hand(&[], false)]
#[tokio::test]
async fn only_volumes_of_the_machine_are_used_and_deleted(#[case] metadata: &[(&str, &str)], #[case] is_used: bool) {
    let world = World::new().await;
    let id = world.openstack.lock().cloud.put_volume("a", "available", metadata);
    let request = world.request_with_parts("a");
    world.driver.create(&request).await.unwrap();
    assert_eq!(world.calls("volume.create"), usize::from(!is_used));
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.openstack.lock().cloud.volumes.contains_key(&id), !is_used);
}

#[tokio::test]
async fn a_volume_that_fails_is_deleted_and_made_anew() {
    let world = World::new().await;
    world.openstack.lock().cloud.breaks_volumes = true;
    let request = world.request_with_parts("a");
    assert_eq!(code(world.driver.create(&request).await), Code::Internal);
    assert_eq!(world.counts(), (0, 0, 0), "the port goes with it");
    world.openstack.lock().cloud.breaks_volumes = false;
    world.driver.create(&request).await.unwrap();
    assert_eq!(world.counts(), (1, 1, 1));
}

/// In Gardener's driver an absent volume counts as available.
#[tokio::test]
async fn a_volume_that_vanishes_is_not_used() {
    let world = World::new().await;
    world.openstack.lock().cloud.downloads = 4;
    let request = announced(&world.driver, world.request_with_parts("a")).await;
    assert!(world.driver.create(&request).await.unwrap_err().call_again_in.is_some());
    world.fail("volume.get", Fault::Error(fake::nova(404, "itemNotFound", "Volume could not be found.")), 1);
    let waiting = MachineRequest { may_pause: false, ..request };
    assert_eq!(code(world.driver.create(&waiting).await), Code::Aborted);
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn a_volume_that_another_server_has_is_not_used() {
    let world = World::new().await;
    world.openstack.lock().cloud.put_volume("a", "in-use", &[(UID, "uid-a")]);
    assert_eq!(code(world.driver.create(&world.request_with_parts("a")).await), Code::Aborted);
    assert_eq!(world.count(), 0);
}

#[rstest]
#[case::pauses(true)]
#[case::waits(false)]
#[tokio::test]
async fn a_deletion_waits_for_a_volume_that_is_being_detached(#[case] may_pause: bool) {
    let world = World::new().await;
    let id = world.openstack.lock().cloud.put_volume("a", "detaching", &[(UID, "uid-a")]);
    let request = MachineRequest { may_pause, ..world.request_with_parts("a") };
    let free = async {
        while world.calls("volume.list") < 2 && !may_pause {
            tokio::task::yield_now().await;
        }
        world.openstack.lock().cloud.volumes.get_mut(&id).unwrap().status = "available".to_owned();
    };
    if may_pause {
        assert!(world.driver.delete(&request).await.unwrap_err().call_again_in.is_some());
        free.await;
        world.driver.delete(&request).await.unwrap();
    } else {
        let both = async { tokio::join!(world.driver.delete(&request), free) };
        let (deleted, ()) = tokio::time::timeout(Duration::from_secs(60), both).await.expect("both end");
        deleted.unwrap();
    }
    assert_eq!(world.counts(), (0, 0, 0));
}

#[rstest]
#[case::stock("No valid host was found. There are not enough hosts available.", Code::ResourceExhausted)]
#[case::quota(
    "Build of instance aborted: VolumeSizeExceedsAvailableQuota: Requested volume exceeds allowed quota",
    Code::ResourceExhausted
)]
#[case::other(
    "Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures",
    Code::Internal
)]
#[tokio::test]
async fn a_server_that_cannot_be_built_is_reported_and_deleted_with_its_parts(
    #[case] fault: &str,
    #[case] expected: Code,
) {
    let world = World::new().await;
    world.openstack.lock().cloud.fault = Some(fault.to_owned());
    let request = world.request_with_parts("a");
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!(error.code, expected);
    assert!(error.message.contains(fault), "{error}");
    assert_eq!(world.counts(), (0, 0, 0));
    world.openstack.lock().cloud.fault = None;
    world.driver.create(&request).await.unwrap();
    assert_eq!(world.counts(), (1, 1, 1));
}

/// Only what was created for this Machine is deleted after a failure.
#[tokio::test]
async fn a_failed_creation_keeps_what_it_did_not_create() {
    let world = World::new().await;
    let port = port(&world, NETWORK_ID, "", None, TAGS);
    let volume = world.openstack.lock().cloud.put_volume("a", "available", &[CLUSTER, ROLE]);
    world.openstack.lock().cloud.quota = Some(0);
    let request = world.request_with_parts("a");
    assert_eq!(code(world.driver.create(&request).await), Code::ResourceExhausted);
    let cloud = &world.openstack.lock().cloud;
    assert!(cloud.ports.contains_key(&port) && cloud.volumes.contains_key(&volume));
}

#[tokio::test]
async fn a_used_up_quota_leaves_no_part_behind() {
    let world = World::new().await;
    world.openstack.lock().cloud.quota = Some(0);
    let error = world.driver.create(&world.request_with_parts("a")).await.unwrap_err();
    assert_eq!((error.code, error.last_known_state), (Code::ResourceExhausted, None));
    assert_eq!(world.counts(), (0, 0, 0));
}

#[rstest]
#[case::image(json!({"imageName": "other"}), Code::InvalidArgument)]
#[case::flavor(json!({"flavorName": "other"}), Code::ResourceExhausted)]
#[case::network(json!({"networkID": null, "networks": [{"name": "other"}]}), Code::InvalidArgument)]
#[tokio::test]
async fn a_name_that_does_not_exist_is_reported_before_anything_is_created(
    #[case] changes: serde_json::Value,
    #[case] expected: Code,
) {
    let world = World::new().await;
    let mut spec = spec_with_parts();
    for (key, value) in changes.as_object().unwrap() {
        spec["spec"][key] = value.clone();
    }
    let error = world.driver.create(&world.request_for("a", "uid-a", spec)).await.unwrap_err();
    assert_eq!(error.code, expected);
    assert!(error.message.contains("\"other\""), "{error}");
    assert_eq!((world.counts(), world.calls("port.create")), ((0, 0, 0), 0));
}

#[tokio::test]
async fn all_addresses_of_pods_are_added_to_the_ports_of_their_networks() {
    let world = World::new().await;
    let changes = json!({
        "networkID": null, "podNetworkCIDRs": ["10.96.0.0/11", "fd00::/48"],
        "networks": [{"id": SECOND_NETWORK_ID}, {"id": NETWORK_ID, "podNetwork": true}],
    });
    world.driver.create(&world.request_for("a", "uid-a", spec_with(&changes))).await.unwrap();
    let cloud = &world.openstack.lock().cloud;
    for port in cloud.ports.values() {
        let addresses: Vec<&str> = port.pairs.iter().filter_map(|pair| pair["ip_address"].as_str()).collect();
        let expected: &[&str] = if port.network == NETWORK_ID { &["10.96.0.0/11", "fd00::/48"] } else { &[] };
        assert_eq!(addresses, expected);
    }
}

/// Another call of the creation continues where the first one ended.
#[tokio::test]
async fn a_server_whose_ports_are_not_open_is_not_finished() {
    let world = World::new().await;
    world.fail("port.update", Fault::Status(502), 9);
    let request = world.request_for("a", "uid-a", spec());
    assert_eq!(code(world.driver.create(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.status(&request).await), Code::Unimplemented);
    world.openstack.lock().faults.clear();
    let vm = world.driver.create(&request).await.unwrap();
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm.provider_id);
    assert_eq!(world.count(), 1);
}
