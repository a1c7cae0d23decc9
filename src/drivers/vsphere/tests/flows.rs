//! The decisions of the driver by the VMs that it finds.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mcm_driver::{
    Code, ListedVm, MachineRequest, inspection::ResourcePresence, interface::Driver, testing::server::Fault,
};
use rstest::rstest;
use serde_json::json;

use super::{
    CLUSTER, OWNER, OWNER_FIELD, ROLE, UID, World, code, driver, spec, spec_with, unmeasured,
    vcenter::{Options, fault},
    with_id,
};

#[rstest]
#[case::newer(&[CLUSTER, ROLE])]
#[case::older(&[("kubernetes.io/cluster/shoot", "1"), ("kubernetes.io/role/node", "1")])]
#[tokio::test]
async fn a_vm_of_the_reference_is_found_by_its_name_and_adopted(#[case] fields: &[(&str, &str)]) {
    let world = World::new().await;
    let id = world.put("a", fields);
    let request = world.request("a");
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, id);
    assert_eq!(world.driver.create(&request).await.unwrap().provider_id, id);
    assert_eq!(world.calls("CloneVM_Task"), 0);
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, [(id, ListedVm::new("a", None))].into());
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn the_vm_of_an_earlier_machine_of_that_name_is_left_alone() {
    let world = World::new().await;
    let earlier = world.put("a", &[CLUSTER, ROLE, (UID, "earlier")]);
    let request = world.request("a");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    world.driver.delete(&request).await.unwrap();
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!((error.code, world.count()), (Code::AlreadyExists, 1), "{error}");
    assert!(error.message.contains("delete or rename it"), "{error}");
    // A Machine that was restored has a new UID and its provider ID.
    let restored = with_id(world.request_for("a", "new", spec()), &earlier);
    assert_eq!(world.driver.status(&restored).await.unwrap().provider_id, earlier);
}

#[rstest]
#[case::of_another_cluster(&[("mcm.gardener.cloud/cluster", "other"), ROLE])]
#[case::of_another_role(&[CLUSTER, ("mcm.gardener.cloud/role", "etcd")])]
#[case::of_nobody(&[])]
#[tokio::test]
async fn a_vm_without_the_markers_of_the_class_is_neither_adopted_nor_deleted(#[case] fields: &[(&str, &str)]) {
    let world = World::new().await;
    let id = world.put("a", fields);
    let known = with_id(world.request("a"), &id);
    for request in [&known, &world.request("a"), &with_id(world.request_for("a", "", spec()), &id)] {
        assert_eq!(code(world.driver.status(request).await), Code::NotFound);
        world.driver.delete(request).await.unwrap();
    }
    assert_eq!(code(world.driver.create(&world.request("a")).await), Code::AlreadyExists);
    assert_eq!(world.driver.list(&known.class, &known.secret).await.unwrap(), BTreeMap::new());
    assert_eq!(world.count(), 1);
}

#[rstest]
#[case::with_its_uid(&[(UID, "uid-a")], true)]
#[case::without(&[], false)]
#[case::of_another_cluster(&[(UID, "uid-a"), ("mcm.gardener.cloud/cluster", "other")], false)]
#[tokio::test]
async fn a_known_vm_without_its_markers_is_known_by_its_uid(#[case] fields: &[(&str, &str)], #[case] is_found: bool) {
    let world = World::new().await;
    let known = with_id(world.request("a"), &world.put("a", fields));
    assert_eq!(world.driver.status(&known).await.is_ok(), is_found);
    world.driver.delete(&known).await.unwrap();
    assert_eq!(world.count(), usize::from(!is_found));
}

/// With an empty datacenter, the reference reads a path that no VM has.
#[tokio::test]
async fn the_only_datacenter_needs_no_name() {
    let world = World::new().await;
    let request = world.request_for("a", "uid-a", spec_with(&json!({"datacenter": null})));
    let vm = world.driver.create(&request).await.unwrap();
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm.provider_id);
    assert_eq!(world.driver.create(&request).await.unwrap().provider_id, vm.provider_id);
    assert_eq!((world.count(), world.calls("CloneVM_Task")), (1, 1));
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn one_of_several_datacenters_needs_its_name() {
    let world = World::with(Options { datacenters: 2, ..Options::default() }).await;
    let request = world.request_for("a", "uid-a", spec_with(&json!({"datacenter": null})));
    for error in [world.driver.create(&request).await.unwrap_err(), world.driver.status(&request).await.unwrap_err()] {
        assert!(error.code == Code::InvalidArgument && error.message.contains("several datacenters"), "{error}");
    }
    world.driver.create(&world.request("a")).await.unwrap();
}

#[rstest]
#[case::name("DC0", "workers")]
#[case::path("F0/DC0", "workers")]
#[case::absolute("/F0/DC0", "workers/pool")]
#[case::with_an_absolute_folder("DC0", "/F0/DC0/vm/workers")]
#[case::pattern("*/DC0", "workers")]
#[tokio::test]
async fn a_datacenter_in_a_folder_is_found_by_its_name_and_by_its_path(#[case] datacenter: &str, #[case] folder: &str) {
    let world = World::with(Options { folders: 1, ..Options::default() }).await;
    let request = world.request_for("a", "uid-a", spec_with(&json!({"datacenter": datacenter, "folder": folder})));
    let vm = world.driver.create(&request).await.unwrap();
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm.provider_id);
    assert!(world.driver.list(&request.class, &request.secret).await.unwrap().contains_key(&vm.provider_id));
    let findings = world.driver.inspect(&request.class, &request.secret).await.unwrap();
    assert!(findings.iter().all(|finding| finding.presence == ResourcePresence::Present), "{findings:?}");
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn of_two_datacenters_of_one_name_the_path_decides() {
    let world = World::with(Options { datacenters: 2, folders: 2, ..Options::default() }).await;
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.ends_with("F0/DC0, F1/DC0"), "{error}");
    let request = world.request("a");
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::InvalidArgument);
    assert_eq!(code(world.driver.delete(&request).await), Code::InvalidArgument, "it may have a VM");
    world.driver.create(&world.request_for("a", "uid-a", spec_with(&json!({"datacenter": "F0/DC0"})))).await.unwrap();
    assert_eq!(world.count(), 1);
}

#[rstest]
#[case::path("workers/pool", "pool")]
#[case::name_of_a_folder_below("pool", "pool")]
#[case::absolute("/DC0/vm/workers", "workers")]
#[case::pattern("work*", "workers")]
#[case::none("", "vm")]
#[tokio::test]
async fn vms_of_any_folder_are_found_again_and_listed(#[case] folder: &str, #[case] expected: &str) {
    let world = World::new().await;
    let request = world.request_for("a", "uid-a", spec_with(&json!({"folder": folder})));
    let vm = world.driver.create(&request).await.unwrap();
    assert_eq!(world.vm("a").folder, expected);
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm.provider_id);
    assert!(world.driver.list(&request.class, &request.secret).await.unwrap().contains_key(&vm.provider_id));
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_no_proof_that_a_vm_is_absent() {
    let world = World::new().await;
    let vm = world.driver.create(&world.request("a")).await.unwrap();
    let elsewhere = world.request_for("a", "uid-a", spec_with(&json!({"folder": "renamed"})));
    assert_eq!(code(world.driver.status(&elsewhere).await), Code::InvalidArgument);
    assert_eq!(code(world.driver.delete(&elsewhere).await), Code::InvalidArgument);
    assert_eq!(code(world.driver.list(&elsewhere.class, &elsewhere.secret).await), Code::InvalidArgument);
    let known = with_id(elsewhere, &vm.provider_id);
    let both = [known.clone(), known.clone()];
    for status in join_all(both.iter().map(|request| world.driver.status(request))).await {
        assert_eq!(status.unwrap().provider_id, vm.provider_id, "its ID finds it in any folder");
    }
    world.driver.delete(&known).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn a_list_has_all_pages() {
    let world = World::with(Options { page: 2, ..Options::default() }).await;
    for number in 0..5 {
        world.put(&format!("m-{number}"), &[CLUSTER, ROLE]);
    }
    let request = world.request("a");
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap().len(), 5);
    assert!(world.calls("ContinueRetrievePropertiesEx") >= 2);
    world.fail("ContinueRetrievePropertiesEx", Fault::Status(502), 99);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unavailable, "not a part of it");
}

#[tokio::test]
async fn a_list_has_the_vms_of_the_class_and_no_others() {
    let world = World::new().await;
    let ours = world.put("a", &[CLUSTER, ROLE, (OWNER_FIELD, "team-b")]);
    world.put("b", &[("mcm.gardener.cloud/cluster", "other"), ROLE]);
    world.put("c", &[CLUSTER]);
    world.put("d", &[]);
    let request = world.request("a");
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, [(ours, ListedVm::new("a", Some("team-b".to_owned())))].into());
}

/// A creation breaks off after each of its steps.
#[rstest]
#[case::configuration("ReconfigVM_Task")]
#[case::definition("AddCustomFieldDef")]
#[case::marks("SetField")]
#[case::start("PowerOnVM_Task")]
#[tokio::test]
async fn a_vm_whose_creation_broke_off_is_finished_by_another_process(#[case] call: &'static str) {
    let world = World::new().await;
    let request = world.request("a");
    world.fail(call, Fault::Error(fault("HostNotConnected", "no host")), 99);
    assert_eq!(code(world.driver.create(&request).await), Code::Unavailable);
    world.vcenter.settings.lock().faults.clear();
    let other = driver(Duration::from_secs(20), unmeasured());
    let error = other.status(&request).await.unwrap_err();
    let vm = error.vm.clone().unwrap();
    assert_eq!((error.code, vm.node_name.as_str()), (Code::Uninitialized, "a"));
    let listed = other.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, [(vm.provider_id.clone(), ListedVm::new("a", Some(OWNER.to_owned())))].into());
    let known = with_id(request.clone(), &vm.provider_id);
    assert_eq!(other.initialize(&known).await.unwrap().provider_id, vm.provider_id);
    let shown = world.vm("a");
    assert_eq!((shown.power.as_str(), shown.fields[UID].as_str()), ("poweredOn", "uid-a"));
    assert_eq!(other.status(&known).await.unwrap().provider_id, vm.provider_id);
    assert_eq!((world.count(), world.calls("CloneVM_Task")), (1, 1));
}

#[tokio::test]
async fn an_unfinished_vm_is_deleted_with_its_machine_or_as_an_orphan() {
    let world = World::new().await;
    for is_orphan in [false, true] {
        let request = world.request("a");
        world.fail("ReconfigVM_Task", Fault::Error(fault("InvalidArgument", "no")), 1);
        assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
        if is_orphan {
            let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
            let id = listed.keys().next().unwrap();
            world.driver.delete(&with_id(world.request_for("a", "", spec()), id)).await.unwrap();
        } else {
            world.driver.delete(&request).await.unwrap();
        }
        assert_eq!(world.count(), 0);
    }
}

#[tokio::test]
async fn a_vm_that_was_stopped_is_reported_and_not_started() {
    let world = World::new().await;
    let id = world.vcenter.create("a", &[CLUSTER, ROLE, (UID, "uid-a")], true);
    let request = world.request("a");
    assert_eq!(world.driver.status(&request).await.unwrap().halted.as_deref(), Some("poweredOff"));
    world.driver.create(&request).await.unwrap();
    assert_eq!((world.vm("a").uuid, world.vm("a").power.as_str()), (id, "poweredOff"));
    world.driver.delete(&request).await.unwrap();
    assert_eq!((world.count(), world.calls("PowerOffVM_Task")), (0, 0));
}

/// vCenter copies the extra configuration of a VM with it, and may copy its custom fields. The collector deletes what is listed and
/// has no Machine.
#[rstest]
#[case::that_is_off(false, true)]
#[case::that_is_off_with_its_fields(true, true)]
#[case::that_runs_with_its_fields(true, false)]
#[tokio::test]
async fn a_copy_of_a_vm_is_not_listed(#[case] has_fields: bool, #[case] is_off: bool) {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    let original = world.vm("a");
    let fields: Vec<_> = original.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    world.vcenter.copy("a", "a-clone", if has_fields { &fields } else { &[] }, is_off);
    assert_eq!(world.vm("a-clone").extra["mcm.machine-uid"], "uid-a");
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, [(vm.provider_id.clone(), ListedVm::new("a", Some(OWNER.to_owned())))].into());
    world.driver.delete(&with_id(request.clone(), &vm.provider_id)).await.unwrap();
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap(), BTreeMap::new());
    assert_eq!((world.count(), world.vm("a-clone").name.as_str()), (1, "a-clone"));
}

/// The collector compares IDs of a list with those of Machines.
#[tokio::test]
async fn a_vm_keeps_its_id_when_the_region_of_its_class_changes() {
    let world = World::new().await;
    let made = world.driver.create(&world.request("a")).await.unwrap().provider_id;
    let of_reference = world.put("b", &[CLUSTER, ROLE, ("machine.sapcloud.io/provider-id", "aws:///eu/i-1")]);
    let moved = world.request_for("a", "uid-a", spec_with(&json!({"region": "us"})));
    let listed = world.driver.list(&moved.class, &moved.secret).await.unwrap();
    let other = of_reference.replace("//eu/", "//us/");
    assert_eq!(listed.into_keys().collect::<Vec<_>>(), [made.clone(), other]);
    for request in [moved.clone(), with_id(moved, &made)] {
        assert_eq!(world.driver.status(&request).await.unwrap().provider_id, made);
    }
}

#[tokio::test]
async fn a_copy_of_an_unfinished_vm_is_not_listed() {
    let world = World::new().await;
    let request = world.request("a");
    world.fail("ReconfigVM_Task", Fault::Error(fault("InvalidArgument", "no")), 1);
    assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    world.vcenter.copy("a", "b", &[], true);
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed.into_values().collect::<Vec<_>>(), [ListedVm::new("a", Some(OWNER.to_owned()))]);
    // It is the VM of no Machine of its name.
    assert_eq!(code(world.driver.status(&world.request("b")).await), Code::NotFound);
}

/// vSphere destroys the files of all disks that a VM has when it is destroyed.
#[rstest]
#[case::volumes_of_the_in_tree_provider(&["[LocalDS_0] kubevols/pvc-2.vmdk", "[LocalDS_0] kubevols/pvc-3.vmdk"], true)]
#[case::a_disk_of_another_vm(&["[LocalDS_0] other/other.vmdk"], true)]
#[case::a_disk_on_another_datastore_of_a_vm_that_is_off(&["[LocalDS_1] static/data.vmdk"], false)]
#[tokio::test]
async fn a_deletion_keeps_the_files_of_disks_of_others(#[case] foreign: &[&str], #[case] is_on: bool) {
    let world = World::new().await;
    let request = world.request("a");
    let uuid = if is_on {
        world.driver.create(&request).await.unwrap();
        world.vm("a").uuid
    } else {
        world.vcenter.create("a", &[CLUSTER, ROLE], true)
    };
    let own = world.vm("a").disks;
    for path in foreign {
        world.vcenter.attach(&uuid, path);
    }
    assert_eq!(world.vm("a").disks.len(), own.len() + foreign.len());
    // An answer that is lost changes nothing.
    world.fail("disks", Fault::Status(502), 9);
    assert_eq!(code(world.driver.delete(&request).await), Code::Unavailable);
    assert_eq!(world.calls("Destroy_Task"), 0);
    world.vcenter.settings.lock().faults.clear();
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
    assert!(foreign.iter().all(|path| world.vcenter.has_file(path)));
    assert!(!own.is_empty() && !own.iter().any(|path| world.vcenter.has_file(path)), "{own:?}");
}

/// Calls as a controller does, until the answer is not a pause; returns the number of pauses.
async fn repeat(driver: &dyn Driver, request: &MachineRequest, is_creation: bool) -> usize {
    let mut pauses = 0;
    loop {
        let done =
            if is_creation { driver.create(request).await.map(drop) } else { driver.delete(request).await.map(drop) };
        match done {
            Ok(()) => return pauses,
            Err(error) => assert!(error.call_again_in.is_some(), "{error}"),
        }
        pauses += 1;
        tokio::task::yield_now().await;
    }
}

#[rstest]
#[case::pauses(true)]
#[case::waits(false)]
#[tokio::test]
async fn a_clone_holds_no_slot_where_the_caller_can_pause(#[case] may_pause: bool) {
    let world = World::new().await;
    world.vcenter.change(&json!({"CloneTime": 300}));
    let request = MachineRequest { may_pause, ..world.request("a") };
    let pauses = repeat(&world.driver, &request, true).await;
    assert_eq!((pauses > 0, world.count(), world.calls("CloneVM_Task")), (may_pause, 1, 1));
    assert_eq!(world.vm("a").power, "poweredOn");
    repeat(&world.driver, &request, false).await;
    assert_eq!((world.count(), world.calls("Destroy_Task")), (0, 1));
}

#[tokio::test]
async fn a_status_or_a_deletion_during_a_clone_waits_for_its_end() {
    let world = World::new().await;
    world.vcenter.change(&json!({"CloneTime": 300}));
    let request = MachineRequest { may_pause: true, ..world.request("a") };
    assert!(world.driver.create(&request).await.unwrap_err().call_again_in.is_some());
    let error = world.driver.status(&request).await.unwrap_err();
    assert!(error.code == Code::Unavailable && error.call_again_in.is_some(), "{error}");
    repeat(&world.driver, &request, false).await;
    assert_eq!((world.count(), world.calls("CloneVM_Task")), (0, 1));
}

/// The same request for a Machine that was created so long ago.
fn aged(mut request: MachineRequest, age: SignedDuration) -> MachineRequest {
    let created = Timestamp::now() - age;
    Arc::make_mut(&mut request.machine).metadata.creation_timestamp = Some(Time(created));
    request
}

/// vCenter shows a clone that is queued under no name.
#[rstest]
#[case::that_succeeds("")]
#[case::that_fails("NoDiskSpace")]
#[tokio::test]
async fn a_deletion_waits_for_a_clone_of_an_earlier_process(#[case] fault: &str) {
    let world = World::new().await;
    world.vcenter.change(&json!({"CloneTime": 500, "CloneFault": fault}));
    let request = aged(world.request("a"), SignedDuration::from_mins(1));
    let request = MachineRequest { may_pause: true, ..request };
    assert!(world.driver.create(&request).await.unwrap_err().call_again_in.is_some());
    let other = driver(Duration::from_secs(20), unmeasured());
    let error = other.delete(&request).await.unwrap_err();
    assert!(error.code == Code::Unavailable && error.call_again_in.is_some(), "{error}");
    assert!(error.message.contains("a clone of its template is under way"), "{error}");
    let waits = MachineRequest { may_pause: false, ..request.clone() };
    assert_eq!(code(other.delete(&waits).await), Code::Unavailable);
    repeat(&other, &request, false).await;
    assert_eq!((world.count(), world.calls("CloneVM_Task")), (0, 1));
    other.delete(&request).await.unwrap();
}

#[tokio::test]
async fn a_deletion_waits_for_no_clone_that_is_certainly_of_another_machine() {
    let world = World::new().await;
    world.vcenter.change(&json!({"CloneTime": 2000}));
    let first = MachineRequest { may_pause: true, ..world.request("a") };
    assert!(world.driver.create(&first).await.unwrap_err().call_again_in.is_some());
    let other = driver(Duration::from_secs(20), unmeasured());
    // The clone was ordered before the Machine existed, or is of another template.
    let younger = aged(world.request("b"), SignedDuration::from_mins(-20));
    let spec = spec_with(&json!({"templateVM": "template-plain"}));
    let of_another = aged(world.request_for("c", "uid-c", spec), SignedDuration::from_mins(1));
    // A class without its template can be deleted.
    let without =
        aged(world.request_for("d", "uid-d", spec_with(&json!({"templateVM": "none"}))), SignedDuration::ZERO);
    for request in [younger, of_another, without] {
        other.delete(&request).await.unwrap();
    }
    repeat(&world.driver, &first, true).await;
    assert_eq!(world.count(), 1);
}

/// The Go program was killed between the clone and its custom fields.
#[rstest]
#[case::untouched(&[], true, SignedDuration::from_mins(1), true)]
#[case::that_runs(&[], false, SignedDuration::from_mins(1), false)]
#[case::older_than_the_machine(&[], true, SignedDuration::from_mins(-1), false)]
#[case::with_a_field(&[("team", "x")], true, SignedDuration::from_mins(1), false)]
#[case::of_another_cluster(&[("mcm.gardener.cloud/cluster", "other")], true, SignedDuration::from_mins(1), false)]
#[tokio::test]
async fn the_unmarked_vm_of_a_creation_of_the_reference_is_deleted_with_its_machine(
    #[case] fields: &[(&str, &str)],
    #[case] is_off: bool,
    #[case] age: SignedDuration,
    #[case] is_deleted: bool,
) {
    let world = World::new().await;
    world.vcenter.create("m-9", fields, is_off);
    let request = aged(world.request("m-9"), age);
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    assert_eq!(code(world.driver.create(&request).await), Code::AlreadyExists);
    // Neither an orphan nor a Machine of another name has it.
    world.driver.delete(&aged(world.request_for("m-9", "", spec()), age)).await.unwrap();
    world.driver.delete(&aged(world.request("m-8"), age)).await.unwrap();
    assert_eq!(world.count(), 1);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), usize::from(!is_deleted));
}

#[tokio::test]
async fn a_copy_under_the_name_of_a_machine_is_left_alone() {
    let world = World::new().await;
    world.driver.create(&world.request("a")).await.unwrap();
    world.vcenter.copy("a", "b", &[], true);
    world.driver.delete(&aged(world.request("b"), SignedDuration::from_mins(1))).await.unwrap();
    assert_eq!(world.count(), 2);
}

#[tokio::test]
async fn a_clone_that_fails_has_its_code_and_is_made_again() {
    let world = World::new().await;
    let request = world.request("a");
    for (name, expected) in [
        ("NoDiskSpace", Code::ResourceExhausted),
        ("NoCompatibleHost", Code::ResourceExhausted),
        ("Other", Code::Internal),
    ] {
        world.vcenter.change(&json!({"CloneFault": name}));
        let error = world.driver.create(&request).await.unwrap_err();
        assert_eq!((error.code, error.last_known_state.as_deref(), world.count()), (expected, None, 0), "{error}");
        assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    }
    world.vcenter.change(&json!({}));
    world.driver.create(&request).await.unwrap();
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn a_creation_waits_for_an_address_where_the_class_asks_for_it() {
    let world = World::new().await;
    world.vcenter.change(&json!({"HasNoAddress": true}));
    let spec = spec_with(&json!({"waitForIP": true}));
    let request = MachineRequest { may_pause: true, ..world.request_for("a", "uid-a", spec) };
    let mut last = None;
    for _ in 0..200 {
        match world.driver.create(&request).await {
            Ok(vm) => {
                last = Some(vm);
                break;
            }
            Err(error) => assert!(error.call_again_in.is_some(), "{error}"),
        }
        if world.vcenter.vms().first().is_some_and(|vm| vm.power == "poweredOn") {
            let error = world.driver.status(&request).await.unwrap_err();
            assert_eq!(error.code, Code::Uninitialized);
            world.vcenter.change(&json!({}));
        }
    }
    let addresses = last.unwrap().addresses;
    assert_eq!((addresses[0].type_.as_str(), addresses[0].address.as_str()), ("InternalIP", "10.1.0.1"));
    assert_eq!(world.calls("PowerOnVM_Task"), 1);
}

#[tokio::test]
async fn machines_that_wait_together_share_their_look_ups() {
    let world = World::new().await;
    let requests: Vec<_> = (0..20).map(|number| world.request(&format!("m-{number}"))).collect();
    for status in join_all(requests.iter().map(|request| world.driver.status(request))).await {
        assert_eq!(code(status), Code::NotFound);
    }
    assert_eq!((world.calls("FindByInventoryPath"), world.calls("look")), (1, 1));
    let vms = join_all(requests.iter().map(|request| world.driver.create(request))).await;
    assert!(world.calls("template") <= 3, "{} looks at one template", world.calls("template"));
    let known: Vec<_> =
        requests.into_iter().zip(vms).map(|(request, vm)| with_id(request, &vm.unwrap().provider_id)).collect();
    let before = world.calls("look");
    for status in join_all(known.iter().map(|request| world.driver.status(request))).await {
        status.unwrap();
    }
    assert_eq!((world.calls("look") - before, world.calls("FindAllByUuid")), (1, 0));
}
