//! Each call of Azure fails in each way: which code, how many VMs, and the result of the next attempt.

use mcm_driver::testing::suite::{self, created};
use std::time::Duration;

use mcm_driver::{
    Code, Driver,
    testing::matrix::{self, During, Outcome, Row, UNKNOWN, usual},
};
use rstest::rstest;
use serde_json::json;

use super::{
    CLUSTER, ROLE, World, code, driver,
    fake::Arm,
    id_of,
    server::{Fault, Reply},
    spec, spec_with, unmeasured, with_id,
};

const ABORTED: Option<Code> = Some(Code::Aborted);
const INTERNAL: Option<Code> = Some(Code::Internal);

/// Parts whose VM Azure does not show cannot be deleted while it exists.
const USED_PARTS: Outcome = (Some(Code::FailedPrecondition), 1);

/// Without an answer nothing is known, and there are as many VMs as before.
const fn look(vms: usize, not_found: Outcome) -> [Outcome; 10] {
    usual(vms, (UNKNOWN, vms), not_found)
}

/// A VM that is looked at after an answer that is not of Azure is still there.
const fn deletion() -> [Outcome; 10] {
    let mut all = usual(1, (UNKNOWN, 0), (ABORTED, 1));
    all[4] = (ABORTED, 1);
    all
}

/// Without a right to read reports the resource is looked at.
const fn report(vms: usize) -> [Outcome; 10] {
    let mut all = look(vms, (None, vms));
    all[6] = (None, vms);
    all
}

/// An operation cannot be looked at. No error of the look may be one of the creation, but if it were, the VM would be given up.
const fn report_of_creation() -> [Outcome; 10] {
    let mut all = report(1);
    all[7] = (Some(Code::ResourceExhausted), 0);
    all[8] = all[7];
    all
}

#[rstest]
#[case(During::Create, "token", look(0, (Some(Code::Unauthenticated), 0)))]
#[case(During::Create, "vm.get", look(0, (None, 1)))]
#[case(During::Create, "image.get", look(0, (Some(Code::NotFound), 0)))]
#[case(During::Create, "terms.get", look(0, (Some(Code::NotFound), 0)))]
#[case(During::Create, "terms.put", look(0, (Some(Code::InvalidArgument), 0)))]
#[case(During::Create, "disk.get", look(0, (None, 1)))]
#[case(During::Create, "disk.put", look(0, (INTERNAL, 0)))]
#[case(During::Create, "subnet.get", look(0, (INTERNAL, 0)))]
#[case(During::Create, "nic.get", look(0, (None, 1)))]
#[case(During::Create, "nic.put", look(0, (INTERNAL, 0)))]
#[case(During::Create, "vm.put", usual(0, (UNKNOWN, 1), (INTERNAL, 0)))]
#[case(During::Create, "operation.get", report_of_creation())]
#[case(During::Status, "vm.get", look(1, (Some(Code::NotFound), 1)))]
#[case(During::StatusById, "vm.get", look(1, (Some(Code::NotFound), 1)))]
#[case(During::StatusById, "token", look(1, (Some(Code::Unauthenticated), 1)))]
#[case(During::List, "graph.query", look(1, (UNKNOWN, 1)))]
#[case(During::Delete, "token", look(1, (Some(Code::Unauthenticated), 1)))]
#[case(During::Delete, "vm.get", look(1, USED_PARTS))]
#[case(During::DeleteById, "vm.get", look(1, USED_PARTS))]
#[case(During::Delete, "vm.delete", deletion())]
#[case(During::DeleteById, "vm.delete", deletion())]
#[case(During::DeleteById, "operation.get", report(0))]
#[tokio::test]
async fn a_call_that_fails_has_its_code_and_the_next_attempt_succeeds(
    #[case] during: During,
    #[case] call: &'static str,
    #[case] outcomes: [Outcome; 10],
) {
    matrix::check::<World>(&Row { during, call, outcomes }).await;
}

#[tokio::test]
async fn a_request_that_is_carried_out_after_its_time_out_makes_no_second_vm() {
    let world = World::new().await;
    let hasty = driver(Duration::from_millis(300), unmeasured());
    world.fail("vm.put", Fault::Late(Duration::from_millis(600)), 1);
    let request = world.request("a");
    assert_eq!((code(hasty.create(&request).await), world.count()), (Code::DeadlineExceeded, 0));
    created(&world.driver, &request).await;
    // The late request is one for the same name.
    while world.arm.lock().cloud.changed == 0 && world.calls("vm.put") == 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((world.count(), world.arm.lock().cloud.created), (1, 1));
}

#[rstest]
#[case::refused(Some((409, "SkuNotAvailable", "not available")), None, None)]
#[case::quota(None, None, Some(0))]
#[case::fails_later(None, Some(("ZonalAllocationFailed", "no capacity")), None)]
#[case::constraints(None, Some(("OverconstrainedZonalAllocationRequest", "no capacity")), None)]
#[tokio::test]
async fn a_used_up_resource_lets_the_autoscaler_use_another_pool(
    #[case] refusal: Option<(u16, &'static str, &'static str)>,
    #[case] failure: Option<(&'static str, &'static str)>,
    #[case] quota: Option<usize>,
) {
    let world = World::new().await;
    {
        let mut arm = world.arm.lock();
        (arm.cloud.refusal, arm.cloud.failure, arm.cloud.quota) = (refusal, failure, quota);
    }
    let disks = json!([{"lun": 0, "diskSizeGB": 9, "storageAccountType": "Premium_LRS", "imageRef": {"id": "/i"}}]);
    let spec = spec_with(&[("properties.storageProfile.dataDisks", disks)]);
    let request = world.request_for("a", "uid-a", spec);
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted, "{error}");
    assert_eq!(world.count(), 0, "nothing of it costs money");
    {
        let mut arm = world.arm.lock();
        (arm.cloud.refusal, arm.cloud.failure, arm.cloud.quota) = (None, None, None);
    }
    created(&world.driver, &request).await;
    assert_eq!(world.counts(), (1, 1, 2));
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.counts(), (0, 0, 0), "the earlier deletion was not that of this VM");
}

/// The process that saw the failure may have ended before it removed the VM.
#[tokio::test]
async fn a_vm_that_was_left_without_capacity_is_not_adopted() {
    let world = World::new().await;
    world.arm.lock().cloud.failure = Some(("AllocationFailed", "no capacity"));
    world.put("a", &json!({CLUSTER: "1", ROLE: "1"}));
    let request = world.request("a");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted);
    assert!(error.message.contains("AllocationFailed: no capacity"), "{error}");
    assert_eq!((world.count(), world.calls("vm.delete")), (0, 1));
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.counts(), (0, 0, 0));
    // With a provider ID it is the VM of the Machine.
    world.put("b", &json!({CLUSTER: "1", ROLE: "1"}));
    world.driver.status(&with_id(world.request("b"), &id_of("b"))).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_removed_after_a_stock_out_is_named() {
    let world = World::new().await;
    world.arm.lock().cloud.refusal = Some((409, "SkuNotAvailable", "not available"));
    world.fail("nic.delete", Fault::Error(Arm::error(400, "NicReservedForAnotherVm", "reserved for 180 seconds")), 9);
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted);
    assert!(error.message.contains("SkuNotAvailable") && error.message.contains("NicReservedForAnotherVm"), "{error}");
    assert_eq!(world.counts(), (0, 1, 0));
    world.arm.lock().faults.clear();
    world.driver.delete(&world.request("a")).await.unwrap();
    assert_eq!(world.counts(), (0, 0, 0));
}

#[rstest]
#[case("vm.get")]
#[case("graph.query")]
#[tokio::test]
async fn a_page_of_a_proxy_is_not_an_absence(#[case] call: &'static str) {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    world.fail(call, Fault::Status(404), 99);
    let known = with_id(request, &vm.provider_id);
    let result = match call {
        "vm.get" => world.driver.status(&known).await.map(drop),
        _ => world.driver.list(&known.class, &known.secret).await.map(drop),
    };
    assert_eq!(code(result), Code::Unknown);
    if call == "vm.get" {
        assert_eq!(code(world.driver.delete(&known).await), Code::Unknown);
        assert_eq!(world.count(), 1);
    }
}

#[tokio::test]
async fn a_list_that_is_cut_is_not_a_list() {
    let world = World::new().await;
    let cut = json!({"totalRecords": 2, "count": 0, "resultTruncated": "true", "data": []}).to_string();
    world.fail("graph.query", Fault::Error(Reply { status: 200, body: cut }), 1);
    let request = world.request_for("a", "uid-a", spec());
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unavailable);
}

#[tokio::test]
async fn each_machine_gets_one_network_interface_although_answers_are_lost() {
    let world = World::new().await;
    let requests: Vec<_> = (0..200).map(|number| world.request(&format!("m-{number}"))).collect();
    suite::create_each(&world, "nic.put", &requests).await;
    assert_eq!((world.counts(), world.calls("vm.put"), world.calls("nic.put")), ((200, 200, 200), 200, 200));
    suite::delete_each(&world, &requests).await;
    assert_eq!(world.counts(), (0, 0, 0));
}
