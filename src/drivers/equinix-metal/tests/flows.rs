//! The decisions of the driver by the devices that it finds.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use mcm_driver::{Code, Driver, ListedVm, MachineRequest};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    CLUSTER, NAME, OWNER_TAG, ROLE, World, class, code, driver, provider_id, spec, spec_with, unmeasured, with_id,
};

const RESERVATIONS: [&str; 2] = ["3f1f2b7e-9d0c-4f7a-8f0e-5b9a1c2d3e4f", "6c1d9a34-0000-4000-8000-000000000001"];
const OTHER_CLUSTER: &str = "kubernetes.io/cluster/other: 1";

#[test]
fn a_class_is_valid_with_a_warning_of_the_end_of_the_cloud() {
    let driver = driver(Duration::from_secs(1), unmeasured());
    let problems = driver.validate(&class(spec()));
    let warnings: Vec<String> = problems.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(problems.errors, []);
    assert!(matches!(warnings.as_slice(), [only] if only.contains("ended on 2026-06-30")), "{warnings:?}");
}

#[rstest]
#[case(NAME, true)]
#[case("equinixmetal", true)]
#[case("", true)]
#[case("metal", false)]
#[tokio::test]
async fn a_class_of_another_provider_is_refused(#[case] provider: &str, #[case] is_accepted: bool) {
    let world = World::new().await;
    let mut request = world.request("a");
    Arc::make_mut(&mut request.class).provider = provider.to_owned();
    assert_eq!(world.driver.validate(&request.class).errors.is_empty(), is_accepted);
    assert_eq!(world.driver.delete(&request).await.is_ok(), is_accepted);
}

#[tokio::test]
async fn a_longer_name_that_the_filter_also_finds_is_another_machine() {
    let world = World::new().await;
    world.put("pool-ab", &[CLUSTER, ROLE]);
    let request = world.request("pool-a");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 1);
}

#[rstest]
#[case::of_another_cluster(&[OTHER_CLUSTER, ROLE], false)]
#[case::of_another_cluster_with_its_uid(&[OTHER_CLUSTER, "machine.sapcloud.io/machine-uid=uid-a"], false)]
#[case::of_another_user(&[], false)]
#[case::of_another_user_with_a_role(&[ROLE], false)]
#[case::without_its_role(&[CLUSTER], true)]
#[case::with_only_its_uid(&["machine.sapcloud.io/machine-uid=uid-a"], true)]
#[case::complete(&[CLUSTER, ROLE], true)]
#[tokio::test]
async fn only_a_device_with_a_marker_of_the_class_is_deleted(#[case] tags: &[&str], #[case] is_ours: bool) {
    let world = World::new().await;
    let known = with_id(world.request("a"), &world.put("a", tags));
    assert_eq!(world.driver.status(&known).await.is_ok(), is_ours);
    world.driver.delete(&known).await.unwrap();
    // An orphan has only a name and an ID.
    let orphan = with_id(world.request_for("a", "", spec()), &known.machine.spec.provider_id);
    world.driver.delete(&orphan).await.unwrap();
    assert_eq!(world.count(), usize::from(!is_ours));
    assert_eq!(world.calls("device.delete"), usize::from(is_ours));
}

#[tokio::test]
async fn a_device_of_another_project_is_left_alone() {
    let world = World::new().await;
    let id = world.put("a", &[CLUSTER, ROLE]);
    let device = id.strip_prefix("equinixmetal://ny/").unwrap();
    world.metal.lock().cloud.device(device).project = "00000000-0000-4000-8000-00000000000b".to_owned();
    let known = with_id(world.request("a"), &id);
    assert_eq!(code(world.driver.status(&known).await), Code::NotFound);
    world.driver.delete(&known).await.unwrap();
    assert_eq!((world.count(), world.calls("device.delete")), (1, 0));
}

#[tokio::test]
async fn a_list_has_the_devices_of_the_class_and_no_others() {
    let world = World::new().await;
    let ours = world.put("a", &[ROLE, CLUSTER, &format!("{OWNER_TAG}=team-b")]);
    world.put("b", &[OTHER_CLUSTER, ROLE]);
    world.put("c", &[]);
    world.put("d", &[CLUSTER]);
    world.put("e", &["kubernetes.io/cluster/shoot", ROLE]);
    let leaving = world.put("f", &[CLUSTER, ROLE]);
    let request = world.request("a");
    world.metal.lock().cloud.lingers = 9;
    world.driver.delete(&with_id(world.request("f"), &leaving)).await.unwrap();
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, [(ours, ListedVm::new("a", Some("team-b".to_owned())))].into());
}

#[tokio::test]
async fn a_list_has_all_pages() {
    let world = World::new().await;
    world.metal.lock().cloud.largest_page = 3;
    for number in 0..10 {
        world.put(&format!("m-{number}"), &[CLUSTER, ROLE]);
    }
    let request = world.request("a");
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap().len(), 10);
    assert_eq!(world.calls("device.list"), 4);
}

/// Pages are counted from the start of the list, so a device moves to an earlier page when another one is deleted.
#[tokio::test]
async fn a_list_that_changes_while_it_is_read_is_an_error() {
    let world = World::new().await;
    world.metal.lock().cloud.largest_page = 3;
    let first = provider_id(&world.metal.lock().cloud.put("m-0", &[CLUSTER, ROLE]));
    for number in 1..7 {
        world.put(&format!("m-{number}"), &[CLUSTER, ROLE]);
    }
    world.metal.lock().cloud.vanishes = first.strip_prefix("equinixmetal://ny/").map(str::to_owned);
    let request = world.request("a");
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unavailable);
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap().len(), 6);
}

#[rstest]
#[case::without_a_uid("a", "")]
#[case::with_a_name_that_is_no_host_name("a.b", "uid-a")]
#[tokio::test]
async fn a_machine_without_a_uid_or_a_host_name_gets_no_device(#[case] name: &str, #[case] uid: &str) {
    let world = World::new().await;
    assert_eq!(code(world.driver.create(&world.request_for(name, uid, spec())).await), Code::InvalidArgument);
    assert_eq!(world.calls("device.create"), 0);
}

#[rstest]
#[case::inactive("inactive", Some("inactive"))]
#[case::failed("failed", Some("failed"))]
#[case::provisioning("provisioning", None)]
#[tokio::test]
async fn a_device_that_does_not_run_exists_and_is_shown_as_halted(
    #[case] state: &'static str,
    #[case] expected: Option<&str>,
) {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    world.metal.lock().cloud.devices[0].state = state;
    assert_eq!(world.driver.status(&request).await.unwrap().halted.as_deref(), expected);
    assert_eq!(world.driver.create(&request).await.unwrap().halted.as_deref(), expected, "no second one is created");
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn a_device_that_was_deleted_is_absent_although_it_is_shown() {
    let world = World::new().await;
    world.metal.lock().cloud.lingers = 99;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    let known = with_id(request.clone(), &vm.provider_id);
    world.driver.delete(&known).await.unwrap();
    for request in [&request, &known] {
        assert_eq!(code(world.driver.status(request).await), Code::NotFound);
        world.driver.delete(request).await.unwrap();
    }
    assert_eq!(world.calls("device.delete"), 1);
    assert_ne!(world.driver.create(&request).await.unwrap().provider_id, vm.provider_id);
}

/// The machine controller deletes the Node itself; Cluster API core waits for the device.
#[rstest]
#[case::of_a_machine(false, false, false)]
#[case::of_an_infrastructure_machine(true, false, true)]
#[case::of_an_infrastructure_machine_without_an_id(true, false, false)]
#[case::of_an_infrastructure_machine_that_pauses(true, true, true)]
#[tokio::test]
async fn a_deletion_lasts_until_the_device_is_gone_where_the_node_depends_on_it(
    #[case] waits: bool,
    #[case] may_pause: bool,
    #[case] has_id: bool,
) {
    let world = World::new().await;
    let vm = world.driver.create(&world.request("a")).await.unwrap();
    let mut request = MachineRequest { may_pause, ..world.request("a") };
    if waits {
        let owner = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine", "name": "a", "uid": "u", "controller": true,
        });
        let machine = Arc::make_mut(&mut request.machine);
        machine.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
    }
    world.metal.lock().cloud.lingers = 4;
    let request = if has_id { with_id(request, &vm.provider_id) } else { request };
    let mut pauses = 0;
    while let Err(error) = world.driver.delete(&request).await {
        assert!(may_pause && error.call_again_in.is_some(), "{error}");
        pauses += 1;
    }
    assert_eq!((pauses > 0, world.calls("device.delete")), (may_pause, 1));
    assert_eq!(world.metal.lock().cloud.devices.is_empty(), waits);
}

#[tokio::test]
async fn a_locked_device_is_not_deleted() {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    world.metal.lock().cloud.devices[0].is_locked = true;
    let error = world.driver.delete(&request).await.unwrap_err();
    assert!(error.code == Code::FailedPrecondition && error.message.contains("unlock it"), "{error}");
    assert_eq!((world.count(), world.calls("device.delete")), (1, 0));
}

#[tokio::test]
async fn a_device_that_is_being_provisioned_is_deleted_once_that_is_done() {
    let world = World::new().await;
    world.metal.lock().cloud.is_slow = true;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    assert_eq!((code(world.driver.delete(&request).await), world.count()), (Code::Unavailable, 1));
    world.metal.lock().cloud.devices[0].state = "active";
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

/// Reservations and orders on demand, in order: the ID in the request, or nothing.
fn ordered(world: &World) -> Vec<Value> {
    let metal = world.metal.lock();
    let body = |request: &super::server::Request| serde_json::from_str::<Value>(&request.body).unwrap();
    metal.sent("device.create").iter().map(|request| body(request)["hardware_reservation_id"].clone()).collect()
}

#[rstest]
#[case::first([true, true], false, 1, 0)]
#[case::second([false, true], false, 2, 0)]
#[case::then_on_demand([false, false], false, 3, 1)]
#[case::only_reserved([false, true], true, 2, 0)]
#[tokio::test]
async fn reservations_are_tried_in_order_and_then_on_demand_without_one(
    #[case] free: [bool; 2],
    #[case] is_reserved_only: bool,
    #[case] requests: usize,
    #[case] on_demand: usize,
) {
    let world = World::with(1).await;
    let known = RESERVATIONS.map(str::to_owned).into_iter().zip(free).collect();
    world.metal.lock().cloud.reservations = known;
    let changes = json!({"reservationIDs": RESERVATIONS, "reservedDevicesOnly": is_reserved_only});
    world.driver.create(&world.request_for("a", "uid-a", spec_with(&changes))).await.unwrap();
    let expected = [json!(RESERVATIONS[0]), json!(RESERVATIONS[1]), Value::Null];
    assert_eq!(ordered(&world), expected[..requests]);
    assert_eq!((world.count(), world.metal.lock().cloud.free["c3.small.x86"]), (1, 1 - on_demand));
    world.assert_valid_requests();
}

#[rstest]
#[case::in_use(&[RESERVATIONS[0]])]
#[case::in_use_and_unknown(&[RESERVATIONS[0], "unknown"])]
#[case::any(&["next-available"])]
#[tokio::test]
async fn without_a_free_reservation_the_autoscaler_uses_another_pool(#[case] ids: &[&str]) {
    let world = World::new().await;
    world.metal.lock().cloud.reservations = [(RESERVATIONS[0].to_owned(), false)].into();
    let changes = json!({"reservationIDs": ids, "reservedDevicesOnly": true});
    let error = world.driver.create(&world.request_for("a", "uid-a", spec_with(&changes))).await.unwrap_err();
    assert_eq!((error.code, world.count()), (Code::ResourceExhausted, 0), "{error}");
    assert_eq!(world.calls("device.create"), ids.len());
}

#[tokio::test]
async fn machines_that_wait_together_share_their_look_ups() {
    for largest_page in [1000, 8] {
        let world = World::with(30).await;
        let requests: Vec<_> = (0..30).map(|number| world.request(&format!("m-{number}"))).collect();
        let vms = join_all(requests.iter().map(|request| world.driver.create(request))).await;
        let lists = world.calls("device.list");
        assert!(lists <= 5, "{lists} look-ups");
        world.metal.lock().cloud.largest_page = largest_page;
        let known: Vec<_> =
            requests.into_iter().zip(vms).map(|(request, vm)| with_id(request, &vm.unwrap().provider_id)).collect();
        for status in join_all(known.iter().map(|request| world.driver.status(request))).await {
            status.unwrap();
        }
        let pages = 30_usize.div_ceil(largest_page);
        assert!(world.calls("device.list") - lists <= 5 * pages, "{} look-ups", world.calls("device.list"));
        assert!(world.calls("device.get") <= 5, "{} look-ups", world.calls("device.get"));
    }
}

#[tokio::test]
async fn a_device_that_a_list_of_several_pages_lacks_is_looked_up_alone() {
    let world = World::new().await;
    world.metal.lock().cloud.largest_page = 2;
    for number in 0..5 {
        world.put(&format!("m-{number}"), &[CLUSTER, ROLE]);
    }
    let requests = ["a", "b"].map(|name| world.request(name));
    for created in join_all(requests.iter().map(|request| world.driver.create(request))).await {
        created.unwrap();
    }
    let queries: Vec<String> = world.metal.lock().sent("device.list").into_iter().map(|one| one.query).collect();
    let alone = queries.iter().filter(|query| query.contains("hostname=")).count();
    assert!(alone >= 2, "{queries:?}");
    assert_eq!(world.calls("device.create"), 2);
}
