//! Each call of Azure fails in each way: which code, how many VMs, and the result of the next attempt.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::join_all;
use mcm_driver::{
    Code, Driver, DriverError, MachineRequest,
    testing::matrix::{self, Case, During, Outcome, Row, UNKNOWN, usual, with_state},
};
use rstest::rstest;
use serde_json::json;

use super::{
    CLUSTER, ROLE, World, code, driver,
    fake::{Arm, CLIENT_SECRET, URN},
    id_of,
    server::{Fault, Reply},
    spec, spec_with, unmeasured, with_id,
};
use crate::AzureDriver;

const ABORTED: Option<Code> = Some(Code::Aborted);
const INTERNAL: Option<Code> = Some(Code::Internal);

/// A cloud with a driver whose calls end soon, and one that waits.
struct Matrix {
    world: World,
    failing: AzureDriver,
}

impl matrix::Errors for Matrix {
    fn error(case: Case) -> Reply {
        match case {
            Case::Throttle => Arm::error(429, "SubscriptionRequestsThrottled", "too many requests"),
            Case::Auth => Arm::error(401, "InvalidAuthenticationToken", "The access token is invalid."),
            Case::Denied => Arm::error(403, "AuthorizationFailed", "The client has no permission."),
            Case::StockOut => Arm::error(409, "SkuNotAvailable", "The requested VM size is not available."),
            Case::Quota => Arm::error(409, "QuotaExceeded", "Exceeding approved cores quota."),
            _ => Arm::error(404, "ResourceNotFound", "The resource was not found."),
        }
    }
}

#[async_trait]
impl matrix::World for Matrix {
    async fn start(attempt: Duration) -> Self {
        // A creation has several calls before the one that fails.
        Self { world: World::new().await, failing: driver(attempt * 8, unmeasured()) }
    }

    fn driver(&self) -> &dyn Driver {
        &self.failing
    }

    fn patient_driver(&self) -> &dyn Driver {
        &self.world.driver
    }

    /// With an image of the marketplace, and a disk from an image.
    fn request(&self) -> MachineRequest {
        let disks = json!([{"lun": 0, "diskSizeGB": 9, "storageAccountType": "Premium_LRS", "imageRef": {"id": "/i"}}]);
        let image = ("properties.storageProfile.imageReference", json!({"urn": URN}));
        self.world.request_for("a", "uid-a", spec_with(&[image, ("properties.storageProfile.dataDisks", disks)]))
    }

    fn fail(&self, call: Option<(&'static str, Fault)>) {
        let faults = call.map(|(name, fault)| (name, fault, 99));
        self.world.arm.lock().faults = faults.into_iter().collect();
    }

    fn count(&self) -> usize {
        self.world.count()
    }

    fn secrets(&self) -> Vec<&'static str> {
        vec![CLIENT_SECRET, "token-top-secret", "hunter2"]
    }
}

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
#[case(During::Create, "terms.put", look(0, (Some(Code::NotFound), 0)))]
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
    matrix::check::<Matrix>(&Row { during, call, outcomes }).await;
}

/// Repeats a creation as the controller does, until it succeeds.
async fn create(driver: &AzureDriver, request: &MachineRequest) -> String {
    let mut request = request.clone();
    loop {
        let error = match driver.create(&request).await {
            Ok(vm) => return vm.provider_id,
            Err(error) => error,
        };
        assert!(error.code.is_transient(), "{error}");
        request = with_state(request, error.last_known_state.as_deref());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[rstest]
#[case("vm.put")]
#[case("nic.put")]
#[tokio::test]
async fn two_hundred_machines_get_two_hundred_vms_although_every_tenth_answer_is_lost(#[case] call: &'static str) {
    let world = World::new().await;
    world.arm.lock().lost_every = Some((call, 10));
    let requests: Vec<_> = (0..200).map(|number| world.request(&format!("m-{number}"))).collect();
    let mut ids = join_all(requests.iter().map(|request| create(&world.driver, request))).await;
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), world.counts()), (200, (200, 200, 200)));
    assert_eq!((world.calls("vm.put"), world.calls("nic.put"), world.arm.lock().cloud.created), (200, 200, 200));
    world.assert_valid_requests();
    let deletions = requests.iter().map(|request| world.driver.delete(request));
    let failed: Vec<DriverError> = join_all(deletions).await.into_iter().filter_map(Result::err).collect();
    assert_eq!((failed, world.counts(), world.calls("vm.delete")), (vec![], (0, 0, 0), 200));
}

#[tokio::test]
async fn a_request_that_is_carried_out_after_its_time_out_makes_no_second_vm() {
    let world = World::new().await;
    let hasty = driver(Duration::from_millis(300), unmeasured());
    world.fail("vm.put", Fault::Late(Duration::from_millis(600)), 1);
    let request = world.request("a");
    assert_eq!((code(hasty.create(&request).await), world.count()), (Code::DeadlineExceeded, 0));
    create(&world.driver, &request).await;
    // The late request is one for the same name.
    while world.arm.lock().cloud.changed == 0 && world.calls("vm.put") == 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((world.count(), world.arm.lock().cloud.created), (1, 1));
}

#[tokio::test]
async fn a_call_that_is_dropped_does_not_lose_its_vm() {
    let world = World::new().await;
    let driver = Arc::new(driver(Duration::from_secs(20), unmeasured()));
    let request = world.request("a");
    world.arm.lock().cloud.steps = 1000;
    let begun = async {
        while world.count() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        result = driver.create(&request) => panic!("it is not done: {result:?}"),
        () = begun => {}
    }
    world.arm.lock().cloud.steps = 0;
    driver.delete(&request).await.unwrap();
    assert_eq!((world.counts(), world.calls("vm.put"), world.calls("vm.delete")), ((0, 0, 0), 1, 1));
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
    create(&world.driver, &request).await;
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

#[tokio::test]
async fn a_throttled_request_is_repeated_within_the_call() {
    let world = World::new().await;
    let busy = <Matrix as matrix::Errors>::error(Case::Throttle);
    world.fail("vm.put", Fault::Error(busy), 1);
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!((world.count(), world.calls("vm.put")), (1, 2));
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let world = World::new().await;
    world.fail("vm.get", Fault::Endless, 1);
    assert_eq!(code(world.driver.status(&world.request("a")).await), Code::Unavailable);
    assert_eq!(world.calls("vm.get"), 1);
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
