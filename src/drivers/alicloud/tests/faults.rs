//! Each call of ECS fails in each way: which code, how many VMs, and the result of the next attempt.

use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use mcm_driver::{
    Code, Driver, DriverError, MachineRequest,
    testing::matrix::{self, Case, During, Outcome, Row, UNKNOWN, look_up, usual},
};
use rstest::rstest;
use serde_json::json;

use super::{
    CLUSTER, ROLE, UID_TAG, World, code, driver, driver_that_waits,
    fake::{Ecs, KEY_ID, KEY_SECRET},
    server::{FakeCloud, Fault, Reply},
    spec_with, unmeasured, with_id,
};
use crate::AlibabaCloud;
use mcm_driver::cloud::CloudDriver;

/// A cloud with a driver whose calls end soon, and one that waits.
struct Matrix {
    world: World,
    failing: CloudDriver<AlibabaCloud>,
}

impl matrix::Errors for Matrix {
    fn error(case: Case) -> Reply {
        match case {
            Case::Throttle => Ecs::error(400, "Throttling.User", "request was denied due to user flow control"),
            Case::Auth => Ecs::error(404, "InvalidAccessKeyId.NotFound", "the specified access key is not found"),
            Case::Denied => Ecs::error(403, "Forbidden.RAM", "user not authorized to operate on the resource"),
            Case::StockOut => Ecs::error(403, "OperationDenied.NoStock", "the resource is sold out"),
            Case::Quota => Ecs::error(403, "QuotaExceed.ElasticQuota", "no additional quota is available"),
            _ => Ecs::error(404, "InvalidInstanceId.NotFound", "the specified InstanceId does not exist"),
        }
    }
}

#[async_trait]
impl matrix::World for Matrix {
    async fn start(attempt: Duration) -> Self {
        Self { world: World::new().await, failing: driver(attempt, unmeasured()) }
    }

    fn driver(&self) -> &dyn Driver {
        &self.failing
    }

    fn patient_driver(&self) -> &dyn Driver {
        &self.world.driver
    }

    fn request(&self) -> MachineRequest {
        self.world.request("a1")
    }

    fn fail(&self, call: Option<(&'static str, Fault)>) {
        let faults = call.map(|(name, fault)| (name, fault, 99));
        self.world.ecs.lock().faults = faults.into_iter().collect();
    }

    fn count(&self) -> usize {
        self.world.count()
    }

    fn secrets(&self) -> Vec<&'static str> {
        vec![KEY_ID, KEY_SECRET, "hunter2"]
    }
}

#[rstest]
#[case(During::Create, "DescribeInstances", look_up(0))]
#[case(During::Create, "RunInstances", usual(0, (UNKNOWN, 1), (Some(Code::NotFound), 0)))]
#[case(During::Status, "DescribeInstances", look_up(1))]
#[case(During::StatusById, "DescribeInstances", look_up(1))]
#[case(During::List, "DescribeInstances", look_up(1))]
#[case(During::Delete, "DescribeInstances", look_up(1))]
#[case(During::DeleteById, "DescribeInstances", look_up(1))]
#[case(During::Delete, "DeleteInstance", usual(1, (UNKNOWN, 0), (None, 1)))]
#[case(During::DeleteById, "DeleteInstance", usual(1, (UNKNOWN, 0), (None, 1)))]
#[tokio::test]
async fn a_call_that_fails_has_its_code_and_the_next_attempt_succeeds(
    #[case] during: During,
    #[case] call: &'static str,
    #[case] outcomes: [Outcome; 10],
) {
    matrix::check::<Matrix>(&Row { during, call, outcomes }).await;
}

/// Only a deletion has something to do with two VMs of one Machine.
#[tokio::test]
async fn each_call_has_its_answer_to_two_vms() {
    let world = World::new().await;
    for _ in 0..2 {
        world.put("a1", &[CLUSTER, ROLE, (UID_TAG, "uid-a1")]);
    }
    let request = world.request("a1");
    assert_eq!((code(world.driver.create(&request).await), world.count()), (Code::OutOfRange, 2));
    assert_eq!((code(world.driver.status(&request).await), world.count()), (Code::OutOfRange, 2));
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap().len(), 2);
    let state = world.driver.delete(&request).await.unwrap().unwrap();
    assert_eq!(state, "ECS instance(s) [i-2ze00000000 i-2ze00000001] deleted for machine a1");
    assert_eq!(world.count(), 0);
}

#[rstest]
#[case::stock("stock", "OperationDenied.NoStock")]
#[case::addresses("addresses", "QuotaExceeded.PrivateIpAddress")]
#[tokio::test]
async fn a_used_up_resource_lets_the_autoscaler_use_another_pool(#[case] what: &str, #[case] name: &str) {
    let world = World::new().await;
    let set = |left| {
        let mut ecs = world.ecs.lock();
        *(if what == "stock" { &mut ecs.cloud.stock } else { &mut ecs.cloud.addresses }) = left;
    };
    let request = world.request("a1");
    set(0);
    for attempt in 1..=3 {
        let error = world.driver.create(&request).await.unwrap_err();
        assert_eq!(error.code, Code::ResourceExhausted);
        assert!(error.message.contains(name), "{error}");
        assert_eq!(world.calls("RunInstances"), attempt, "one call says it");
    }
    // ECS gives the answer of a creation that it refused to each with the same token.
    set(1);
    world.driver.create(&request).await.unwrap();
    assert_eq!(world.count(), 1);
    let tokens: Vec<String> = world.ecs.lock().sent("RunInstances").iter().map(|sent| token_of(&sent.query)).collect();
    assert_eq!(tokens, ["uid-a1", "uid-a1-1", "uid-a1-2", "uid-a1-3"]);
}

#[tokio::test]
async fn a_class_that_was_corrected_gets_its_vm_at_once() {
    let world = World::new().await;
    let wrong = world.request_for("a1", "uid-a1", spec_with(&json!({"imageID": "m-none"})));
    assert_eq!(code(world.driver.create(&wrong).await), Code::InvalidArgument);
    world.driver.create(&world.request("a1")).await.unwrap();
    assert_eq!((world.count(), world.calls("RunInstances")), (1, 2));
}

fn token_of(query: &str) -> String {
    super::fake::pairs(query).into_iter().find(|(name, _)| name == "ClientToken").unwrap().1
}

#[tokio::test]
async fn a_creation_that_ends_after_its_time_out_is_not_made_twice() {
    let world = World::new().await;
    let hasty = driver(Duration::from_millis(300), unmeasured());
    world.fail("RunInstances", Fault::Late(Duration::from_secs(1)), 3);
    let request = world.request("a1");
    assert_eq!(code(hasty.create(&request).await), Code::DeadlineExceeded);
    let vm = world.driver.create(&request).await.unwrap();
    // The late requests have the same token.
    while world.ecs.lock().cloud.created == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.count(), 1);
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm.provider_id);
}

#[tokio::test]
async fn new_user_data_do_not_make_a_second_vm() {
    let world = World::new().await;
    let mut request = world.request("a1");
    let hasty = driver(Duration::from_millis(500), unmeasured());
    world.ecs.lock().cloud.hides = 3;
    world.fail("RunInstances", Fault::LostAnswer, 9);
    assert_eq!(code(hasty.create(&request).await), Code::Unknown);
    world.ecs.lock().faults.clear();
    // The bootstrap token is another one by now, and ECS does not show the VM yet.
    request.secret.0.insert("userData".to_owned(), b"another token".to_vec());
    assert_eq!(code(world.driver.create(&request).await), Code::Aborted);
    let vm = create(&world.driver, &request).await;
    assert_eq!((vm.as_str(), world.count()), ("cn-beijing.i-2ze00000000", 1));
}

#[tokio::test]
async fn the_token_of_a_vm_that_is_gone_is_given_up_after_some_time() {
    let world = World::new().await;
    let request = world.request("a1");
    world.fail("RunInstances", Fault::LostAnswer, 9);
    let hasty = driver(Duration::from_millis(500), unmeasured());
    assert_eq!(code(hasty.create(&request).await), Code::Unknown);
    {
        let mut ecs = world.ecs.lock();
        ecs.faults.clear();
        ecs.cloud.take("i-2ze00000000");
    }
    assert_eq!(code(world.driver.create(&request).await), Code::DeadlineExceeded, "it could be shown yet");
    assert_eq!(world.count(), 0);
    let impatient = driver_that_waits(Duration::from_secs(20), Duration::ZERO, unmeasured());
    assert_eq!(code(impatient.create(&request).await), Code::DeadlineExceeded);
    assert_eq!(impatient.create(&request).await.unwrap().provider_id, "cn-beijing.i-2ze00000001");
    assert_eq!(world.count(), 1);
}

/// ECS showed an empty list to such a user until the end of 2025, and other clouds with its API may do so.
#[tokio::test]
async fn a_user_who_sees_nothing_gets_no_second_vm() {
    let world = World::new().await;
    world.ecs.lock().cloud.is_blind = true;
    let request = MachineRequest { may_pause: true, ..world.request("a1") };
    let impatient = driver_that_waits(Duration::from_secs(20), Duration::ZERO, unmeasured());
    for _ in 0..5 {
        assert!(code(impatient.create(&request).await).is_transient());
    }
    assert_eq!((world.calls("RunInstances"), world.ecs.lock().cloud.created), (5, 1));
    let found = impatient.inspect(&request.class, &request.secret).await.unwrap();
    assert!(found[0].text.contains("Forbidden.RAM"), "{found:?}");
}

#[tokio::test]
async fn a_vm_that_is_not_shown_yet_pauses_the_calls_of_controllers() {
    let world = World::new().await;
    world.ecs.lock().cloud.hides = 2;
    let request = MachineRequest { may_pause: true, ..world.request("a1") };
    let mut pauses = 0;
    while let Err(error) = world.driver.create(&request).await {
        assert!(error.call_again_in.is_some(), "{error}");
        pauses += 1;
    }
    assert_eq!((pauses > 0, world.count()), (true, 1));
}

/// A part of a list must not pass for all of it.
#[rstest]
#[case::id("InstanceId")]
#[case::name("InstanceName")]
#[case::status("Status")]
#[tokio::test]
async fn a_list_with_an_entry_that_cannot_be_read_is_an_error(#[case] field: &str) {
    let world = World::new().await;
    let request = world.request("a1");
    let known = with_id(request.clone(), &world.driver.create(&request).await.unwrap().provider_id);
    let mut answer = {
        let mut ecs = world.ecs.lock();
        let describe = ecs.sent("DescribeInstances").pop().unwrap();
        // Its nonce was used.
        ecs.cloud.forget_nonces();
        serde_json::from_str::<serde_json::Value>(&ecs.cloud.answer(&describe).body).unwrap()
    };
    answer["Instances"]["Instance"][0].as_object_mut().unwrap().remove(field).unwrap();
    world.fail("DescribeInstances", Fault::Error(Reply { status: 200, body: answer.to_string() }), 99);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unknown);
    for request in [request, known] {
        assert_eq!(code(world.driver.status(&request).await), Code::Unknown);
        assert_eq!(code(world.driver.delete(&request).await), Code::Unknown);
    }
    assert_eq!(world.count(), 1);
}

#[rstest]
#[case::without_instances(r#"{"RequestId": "r"}"#)]
#[case::null(r#"{"RequestId": "r", "Instances": null}"#)]
#[case::without_a_list(r#"{"RequestId": "r", "Instances": {}}"#)]
#[tokio::test]
async fn an_answer_without_a_list_is_not_an_absence(#[case] body: &str) {
    let world = World::new().await;
    let request = world.request("a1");
    world.driver.create(&request).await.unwrap();
    world.fail("DescribeInstances", Fault::Error(Reply { status: 200, body: body.to_owned() }), 99);
    assert_eq!(code(world.driver.status(&request).await), Code::Unknown);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unknown);
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let world = World::new().await;
    world.fail("DescribeInstances", Fault::Endless, 9);
    assert_eq!(code(world.driver.status(&world.request("a1")).await), Code::Unavailable);
    assert_eq!(world.calls("DescribeInstances"), 1);
}

#[tokio::test]
async fn a_page_of_a_proxy_is_not_an_absence() {
    let world = World::new().await;
    let request = world.request("a1");
    let vm = world.driver.create(&request).await.unwrap();
    world.fail("DescribeInstances", Fault::Status(404), 99);
    assert_eq!(code(world.driver.status(&with_id(request, &vm.provider_id)).await), Code::Unknown);
}

/// Until the end of 2025 ECS showed no VMs to a user without the permission. Now it refuses.
#[tokio::test]
async fn a_missing_permission_is_not_an_absence() {
    let world = World::new().await;
    let request = world.request("a1");
    let known = with_id(request.clone(), &world.driver.create(&request).await.unwrap().provider_id);
    let denied = <Matrix as matrix::Errors>::error(Case::Denied);
    world.fail("DescribeInstances", Fault::Error(denied), 99);
    for request in [&request, &known] {
        assert_eq!(code(world.driver.status(request).await), Code::PermissionDenied);
        assert_eq!(code(world.driver.delete(request).await), Code::PermissionDenied);
    }
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::PermissionDenied);
    assert_eq!(world.count(), 1);
}

/// Looks for the VM and repeats a creation as the controllers do, until it succeeds.
async fn create(driver: &dyn Driver, request: &MachineRequest) -> String {
    drop(driver.status(request).await);
    loop {
        match driver.create(request).await {
            Ok(vm) => return vm.provider_id,
            Err(error) => assert!(error.code.is_transient(), "{error}"),
        }
    }
}

#[tokio::test]
async fn two_hundred_machines_get_two_hundred_vms_although_every_tenth_answer_is_lost() {
    let world = World::new().await;
    world.ecs.lock().lost_every = Some(("RunInstances", 10));
    world.ecs.lock().cloud.hides = 1;
    let requests: Vec<_> = (0..200).map(|number| world.request(&format!("m-{number}"))).collect();
    let mut ids = join_all(requests.iter().map(|request| create(&world.driver, request))).await;
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), world.count(), world.ecs.lock().cloud.created), (200, 200, 200));
    let (runs, looks) = (world.calls("RunInstances"), world.calls("DescribeInstances"));
    assert!(runs <= 230 && looks < 100, "{runs} creations and {looks} look-ups for 200 machines");
    world.assert_valid_requests();
    // Deletions share look-ups in the same way.
    let deletions = requests.iter().map(|request| world.driver.delete(request));
    let failed: Vec<DriverError> = join_all(deletions).await.into_iter().filter_map(Result::err).collect();
    assert_eq!((failed, world.count(), world.calls("DeleteInstance")), (vec![], 0, 200));
    let looks = world.calls("DescribeInstances") - looks;
    assert!(looks < 50, "{looks} look-ups");
}
