//! The decisions of the driver by the resources that it finds.

use std::time::Duration;

use futures::future::join_all;
use mcm_driver::{Code, Driver, ListedVm, MachineRequest};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    CLUSTER, OWNER_TAG, ROLE, UID_TAG, World, code, driver,
    fake::{GROUP, SUBSCRIPTION, URN},
    id_of, of_cluster, spec, spec_with, unmeasured, with_id,
};

/// Tags of a resource of the reference.
fn tags() -> Value {
    json!({CLUSTER: "1", ROLE: "1"})
}

/// Tags of a resource of mcm.
fn tags_of(uid: &str) -> Value {
    json!({CLUSTER: "1", ROLE: "1", UID_TAG: uid})
}

/// `spec.providerID` of a Node, as the cloud controller manager writes it.
pub(super) fn node_id(group: &str, vm: &str) -> String {
    format!(
        "azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/{vm}"
    )
}

#[tokio::test]
async fn a_vm_that_was_deleted_by_hand_is_gone() {
    let world = World::new().await;
    let known = with_id(world.request("a"), &world.put("a", &tags()));
    world.arm.lock().cloud.take("a");
    assert_eq!(code(world.driver.status(&known).await), Code::NotFound);
    world.driver.delete(&known).await.unwrap();
}

#[rstest]
#[case::of_an_earlier_machine(tags_of("earlier"))]
#[case::of_another_cluster(of_cluster("other"))]
#[case::of_a_cluster_with_a_longer_name(of_cluster("shoot-2"))]
#[case::by_hand(json!({"team": "x"}))]
#[tokio::test]
async fn a_vm_of_another_is_not_taken_changed_or_deleted(#[case] tags: Value) {
    let world = World::new().await;
    world.put("a", &tags);
    let request = world.request("a");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::AlreadyExists);
    assert!(error.message.starts_with("VM a exists"), "{error}");
    world.driver.delete(&request).await.unwrap();
    assert_eq!((world.counts(), world.calls("vm.put"), world.calls("nic.put")), ((1, 1, 1), 0, 0));
    // A Machine that was restored has a new UID and its provider ID.
    let is_ours = tags.get(CLUSTER).is_some();
    let restored = with_id(world.request_for("a", "new", spec()), &id_of("a"));
    if is_ours {
        assert_eq!(world.driver.status(&restored).await.unwrap().provider_id, id_of("a"));
    }
}

#[rstest]
#[case::ours(tags_of("gone"), true)]
#[case::of_the_reference(tags(), true)]
#[case::of_another_cluster(of_cluster("other"), false)]
#[case::by_hand(json!({}), false)]
#[tokio::test]
async fn an_orphan_is_deleted_by_its_name_and_id_only_with_our_markers(#[case] tags: Value, #[case] is_ours: bool) {
    let world = World::new().await;
    let id = world.put("a", &tags);
    world.driver.delete(&with_id(world.request_for("a", "", spec()), &id)).await.unwrap();
    assert_eq!(world.count(), usize::from(!is_ours));
}

#[tokio::test]
async fn a_known_vm_whose_tags_were_removed_is_known_by_its_id() {
    let world = World::new().await;
    let known = with_id(world.request("a"), &world.put("a", &json!({})));
    assert_eq!(world.driver.status(&known).await.unwrap().provider_id, id_of("a"));
    world.driver.delete(&known).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn a_list_has_the_vms_of_the_class_and_no_others() {
    let world = World::new().await;
    let mut owned = tags();
    owned[OWNER_TAG] = json!("team-b");
    let ours = world.put("a", &owned);
    world.put("b", &of_cluster("other"));
    // The Resource Graph finds both for the tag of the class.
    world.put("c", &of_cluster("shoot-2"));
    world.put("d", &json!({}));
    world.arm.lock().cloud.put_nic("left", &tags());
    world.arm.lock().cloud.put_nic("bastion-nic", &json!({"team": "x"}));
    let request = world.request("a");
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    let expected =
        [(ours, ListedVm::new("a", Some("team-b".to_owned()))), (id_of("left"), ListedVm::new("left", None))];
    assert_eq!(listed, expected.into());
}

#[tokio::test]
async fn a_list_has_all_pages() {
    let world = World::new().await;
    world.arm.lock().cloud.page = 7;
    for number in 0..20 {
        world.put(&format!("m-{number}"), &tags());
    }
    let request = world.request("a");
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap().len(), 20);
    assert_eq!(world.calls("graph.query"), 9, "60 resources");
    world.assert_valid_requests();
}

#[tokio::test]
async fn what_a_failed_creation_left_is_listed_and_deleted_with_its_machine() {
    let world = World::new().await;
    let disks = json!([{"name": "logs", "lun": 1, "diskSizeGB": 10, "storageAccountType": "Premium_LRS"}]);
    let request = world.request_for("a", "uid-a", spec_with(&[("properties.storageProfile.dataDisks", disks)]));
    {
        let mut arm = world.arm.lock();
        arm.cloud.put_nic("a", &tags_of("uid-a"));
        arm.cloud.put_disk("a-os-disk", &tags());
        arm.cloud.put_disk("a-logs-1-data-disk", &tags_of("uid-a"));
        // These stay.
        arm.cloud.put_nic("b", &tags_of("uid-b"));
        arm.cloud.put_disk("a-other-2-data-disk", &tags());
    }
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed.keys().collect::<Vec<_>>(), [&id_of("a"), &id_of("b")]);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.counts(), (0, 1, 1));
    world.assert_valid_requests();
}

#[rstest]
#[case::of_another_machine(tags_of("other"))]
#[case::of_another_cluster(of_cluster("other"))]
#[case::by_hand(json!({}))]
#[tokio::test]
async fn parts_of_others_are_left_alone(#[case] tags: Value) {
    let world = World::new().await;
    {
        let mut arm = world.arm.lock();
        arm.cloud.put_nic("a", &tags);
        arm.cloud.put_disk("a-os-disk", &tags);
    }
    let request = world.request("a");
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.counts(), (0, 1, 1));
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!((error.code, world.calls("nic.put"), world.calls("vm.put")), (Code::AlreadyExists, 0, 0));
}

/// Azure shows the VM of a part for a while after the deletion of the VM.
#[rstest]
#[case::of_the_vm_that_is_gone("a", false, (0, 0, 0))]
#[case::of_a_vm_that_exists("a", true, (1, 1, 1))]
#[case::of_another_vm("b", false, (0, 1, 1))]
#[tokio::test]
async fn a_part_is_kept_as_long_as_its_vm_exists(
    #[case] holder: &str,
    #[case] exists: bool,
    #[case] expected: (usize, usize, usize),
) {
    let world = World::new().await;
    {
        let mut arm = world.arm.lock();
        if exists {
            arm.cloud.put("a", &of_cluster("other"));
        }
        arm.cloud.put_nic("a", &tags_of("uid-a"));
        arm.cloud.put_disk("a-os-disk", &tags_of("uid-a"));
        let id = format!("{}/{holder}", node_id(GROUP, "x").trim_start_matches("azure://").trim_end_matches("/x"));
        arm.cloud.hold("a", &id);
    }
    let request = world.request("a");
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(
        listed.contains_key(&id_of("a")),
        expected == (0, 0, 0),
        "the collector deletes what is left: {listed:?}"
    );
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.counts(), expected);
}

/// As with Gardener's driver, tags of mcm are left out if Azure takes no more.
#[rstest]
#[case(48, true, true)]
#[case(49, true, false)]
#[case(50, false, false)]
#[tokio::test]
async fn a_vm_of_a_pool_with_many_tags_lives_from_create_to_delete(
    #[case] count: usize,
    #[case] has_uid: bool,
    #[case] has_owner: bool,
) {
    let world = World::new().await;
    let mut tags = json!({CLUSTER: "1", ROLE: "1"});
    for number in 2..count {
        tags[format!("tag-{number}")] = json!("x");
    }
    let request = world.request_for("a", "uid-a", spec_with(&[("tags", tags)]));
    let vm = world.driver.create(&request).await.unwrap();
    {
        let shown = world.arm.lock().cloud.vms()[0]["tags"].clone();
        assert_eq!((shown.get(UID_TAG).is_some(), shown.get(OWNER_TAG).is_some()), (has_uid, has_owner));
        assert!(shown.as_object().unwrap().len() <= 50);
    }
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm.provider_id);
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed[&vm.provider_id].owner.is_some(), has_owner);
    world.driver.delete(&with_id(request, &vm.provider_id)).await.unwrap();
    assert_eq!(world.counts(), (0, 0, 0));
    world.assert_valid_requests();
}

#[tokio::test]
async fn a_network_interface_of_another_vm_is_not_used() {
    let world = World::new().await;
    world.put("b", &tags());
    {
        let mut arm = world.arm.lock();
        arm.cloud.put_nic("a", &tags());
        let holder = arm.cloud.vms()[0]["id"].clone();
        arm.cloud.nic_mut("a")["properties"]["virtualMachine"] = json!({"id": holder});
    }
    assert_eq!(code(world.driver.create(&world.request("a")).await), Code::AlreadyExists);
    world.driver.delete(&world.request("a")).await.unwrap();
    assert_eq!(world.counts(), (1, 2, 1));
}

/// VMs of older versions of the reference do not take their parts with them.
#[tokio::test]
async fn parts_that_do_not_go_with_their_vm_are_deleted_after_it() {
    let world = World::new().await;
    let id = world.put("a", &tags());
    {
        let mut arm = world.arm.lock();
        let properties = &mut arm.cloud.vm_mut("a")["properties"];
        properties["networkProfile"]["networkInterfaces"][0]["properties"] = json!({"primary": true});
        properties["storageProfile"]["osDisk"]["deleteOption"] = json!("Detach");
    }
    world.driver.delete(&with_id(world.request("a"), &id)).await.unwrap();
    assert_eq!(world.counts(), (0, 0, 0));
    assert_eq!((world.calls("nic.delete"), world.calls("disk.delete")), (1, 1));
}

#[tokio::test]
async fn nothing_is_left_to_do_without_the_resource_group() {
    let world = World::new().await;
    world.arm.lock().cloud.absent.push("group");
    world.driver.delete(&world.request("a")).await.unwrap();
    assert_eq!(code(world.driver.status(&world.request("a")).await), Code::NotFound);
}

#[tokio::test]
async fn without_the_subscription_nothing_is_certain() {
    let world = World::new().await;
    let mut request = world.request("a");
    request.secret.0.insert("subscriptionID".to_owned(), b"another".to_vec());
    for result in [world.driver.status(&request).await.map(drop), world.driver.delete(&request).await.map(drop)] {
        assert_eq!(code(result), Code::Internal);
    }
}

#[tokio::test]
async fn a_name_that_azure_does_not_take_is_refused_without_a_call() {
    let world = World::new().await;
    let request = world.request(&"a".repeat(65));
    assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    world.driver.delete(&request).await.expect("there is nothing to delete");
    assert_eq!(world.arm.lock().log.len(), 0);
}

/// Calls an operation as the controller does, until it is done; returns how often it paused.
async fn until_done(mut call: impl AsyncFnMut() -> Result<(), mcm_driver::DriverError>) -> usize {
    let mut pauses = 0;
    while let Err(error) = call().await {
        assert!(error.call_again_in.is_some(), "{error}");
        pauses += 1;
    }
    pauses
}

#[rstest]
#[case::pauses(true)]
#[case::waits(false)]
#[tokio::test]
async fn changes_that_take_long_hold_no_slot(#[case] may_pause: bool) {
    let world = World::new().await;
    {
        let mut arm = world.arm.lock();
        (arm.cloud.steps, arm.cloud.steps_of_parts) = (4, 2);
    }
    let disks = json!([{"name": "data", "lun": 0, "diskSizeGB": 10, "storageAccountType": "Premium_LRS", "imageRef": {"id": "/i"}}]);
    let spec = spec_with(&[("properties.storageProfile.dataDisks", disks)]);
    let request = MachineRequest { may_pause, ..world.request_for("a", "uid-a", spec) };
    let pauses = until_done(async || world.driver.create(&request).await.map(drop)).await;
    assert_eq!(pauses > 0, may_pause);
    assert_eq!(
        (world.counts(), world.calls("vm.put"), world.calls("nic.put"), world.calls("disk.put")),
        ((1, 1, 2), 1, 1, 1)
    );
    let pauses = until_done(async || world.driver.delete(&request).await.map(drop)).await;
    assert_eq!(pauses > 0, may_pause);
    assert_eq!((world.counts(), world.calls("vm.delete")), ((0, 0, 0), 1));
    world.assert_valid_requests();
}

#[tokio::test]
async fn creations_of_one_machine_take_turns() {
    let world = World::new().await;
    let request = world.request("a");
    for vm in join_all((0..5).map(|_| world.driver.create(&request))).await {
        assert_eq!(vm.unwrap().provider_id, id_of("a"));
    }
    assert_eq!((world.count(), world.calls("vm.put"), world.calls("nic.put")), (1, 1, 1));
}

/// A process that begins a change may end before it is done.
#[rstest]
#[case::reports_are_kept(false)]
#[case::reports_are_forgotten(true)]
#[tokio::test]
async fn the_next_process_continues_with_the_state_of_the_vm(#[case] forgets: bool) {
    let world = World::new().await;
    {
        let mut arm = world.arm.lock();
        (arm.cloud.steps, arm.cloud.forgets_operations) = (6, forgets);
    }
    let request = MachineRequest { may_pause: true, ..world.request("a") };
    world.driver.create(&request).await.unwrap_err();
    let error = world.driver.status(&request).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable, "it is not there yet: {error}");
    assert!(error.call_again_in.is_some(), "{error}");
    let next = driver(Duration::from_secs(20), unmeasured());
    until_done(async || next.create(&request).await.map(drop)).await;
    assert_eq!((world.count(), world.calls("vm.put")), (1, 1));
    let known = with_id(request, &id_of("a"));
    next.delete(&known).await.unwrap_err();
    assert_eq!(world.driver.status(&known).await.unwrap().provider_id, id_of("a"), "it is not gone yet");
    let third = driver(Duration::from_secs(20), unmeasured());
    until_done(async || third.delete(&known).await.map(drop)).await;
    assert_eq!((world.counts(), world.calls("vm.delete")), ((0, 0, 0), 1));
}

#[tokio::test]
async fn a_machine_that_is_deleted_during_its_creation_leaves_nothing() {
    let world = World::new().await;
    world.arm.lock().cloud.steps = 6;
    let request = MachineRequest { may_pause: true, ..world.request("a") };
    world.driver.create(&request).await.unwrap_err();
    until_done(async || world.driver.delete(&request).await.map(drop)).await;
    assert_eq!(world.counts(), (0, 0, 0));
}

#[tokio::test]
async fn a_vm_that_failed_to_report_its_boot_is_kept() {
    let world = World::new().await;
    world.arm.lock().cloud.failure =
        Some(("OSProvisioningTimedOut", "OS Provisioning did not finish in the allotted time."));
    let request = world.request("a");
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::Internal);
    assert!(error.message.contains("OSProvisioningTimedOut"), "{error}");
    // It may become a Node all the same, as with the reference.
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, id_of("a"));
    assert_eq!(world.driver.create(&request).await.unwrap().provider_id, id_of("a"));
    assert_eq!((world.count(), world.calls("vm.put"), world.calls("vm.delete")), (1, 1, 0));
}

#[tokio::test]
async fn a_vm_that_does_not_run_says_so() {
    let world = World::new().await;
    world.driver.create(&world.request("a")).await.unwrap();
    let statuses = json!([{"code": "ProvisioningState/succeeded"}, {"code": "PowerState/deallocated"}]);
    world.arm.lock().cloud.vm_mut("a")["properties"]["instanceView"] = json!({"statuses": statuses});
    assert_eq!(world.driver.status(&world.request("a")).await.unwrap().halted.as_deref(), Some("deallocated"));
}

#[rstest]
#[case::accepted(Some(true), 0)]
#[case::not_accepted(Some(false), 1)]
#[tokio::test]
async fn the_terms_of_an_image_are_accepted_once(#[case] terms: Option<bool>, #[case] puts: usize) {
    let world = World::new().await;
    world.arm.lock().cloud.terms = terms;
    let spec = spec_with(&[("properties.storageProfile.imageReference", json!({"urn": URN}))]);
    for name in ["a", "b"] {
        world.driver.create(&world.request_for(name, &format!("uid-{name}"), spec.clone())).await.unwrap();
    }
    assert_eq!((world.calls("terms.put"), world.arm.lock().cloud.terms), (puts, Some(true)));
    let plan = json!({"name": "greatest", "product": "gardenlinux", "publisher": "sap"});
    assert_eq!(world.arm.lock().cloud.vms()[0]["plan"], plan);
    world.assert_valid_requests();
}

#[rstest]
#[case::no_image(true, Some(true), "there is no image sap:gardenlinux:greatest:1443.3.0")]
#[case::no_terms(false, None, "there are no terms of plan greatest")]
#[tokio::test]
async fn an_image_without_terms_is_not_used(
    #[case] is_absent: bool,
    #[case] terms: Option<bool>,
    #[case] expected: &str,
) {
    let world = World::new().await;
    {
        let mut arm = world.arm.lock();
        arm.cloud.terms = terms;
        arm.cloud.absent.extend(is_absent.then_some("image"));
    }
    let spec = spec_with(&[("properties.storageProfile.imageReference", json!({"urn": URN}))]);
    let error = world.driver.create(&world.request_for("a", "uid-a", spec)).await.unwrap_err();
    assert_eq!(error.code, Code::NotFound);
    assert!(error.message.contains(expected), "{error}");
    assert_eq!(world.counts(), (0, 0, 0));
}

#[tokio::test]
async fn the_marketplace_is_not_asked_if_the_class_says_so() {
    let world = World::new().await;
    let reference = json!({"urn": URN, "skipMarketplaceAgreement": true});
    let spec = spec_with(&[("properties.storageProfile.imageReference", reference)]);
    world.driver.create(&world.request_for("a", "uid-a", spec)).await.unwrap();
    assert_eq!((world.calls("image.get"), world.calls("terms.get")), (0, 0));
    assert!(world.arm.lock().cloud.vms()[0].get("plan").is_none());
}

#[rstest]
#[case::pauses(true)]
#[case::waits(false)]
#[tokio::test]
async fn a_new_subscription_is_made_ready(#[case] may_pause: bool) {
    let world = World::new().await;
    world.arm.lock().cloud.unregistered = Some(("Microsoft.Compute", 3));
    let request = MachineRequest { may_pause, ..world.request("a") };
    let pauses = until_done(async || world.driver.create(&request).await.map(drop)).await;
    assert_eq!(pauses > 0, may_pause);
    assert!(world.calls("provider.register") >= 1);
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn a_missing_subnet_is_named_before_anything_is_created() {
    let world = World::new().await;
    world.arm.lock().cloud.absent.push("subnet");
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!(error.code, Code::Internal);
    assert!(error.message.contains("there is no subnet nodes in virtual network vnet"), "{error}");
    assert_eq!(world.calls("nic.put"), 0);
}

#[tokio::test]
async fn machines_that_wait_together_share_their_look_at_the_subnet() {
    let world = World::new().await;
    let requests: Vec<_> = (0..30).map(|number| world.request(&format!("m-{number}"))).collect();
    for vm in join_all(requests.iter().map(|request| world.driver.create(request))).await {
        vm.unwrap();
    }
    assert_eq!(world.count(), 30);
    assert!(world.calls("subnet.get") <= 15, "{} looks", world.calls("subnet.get"));
}
