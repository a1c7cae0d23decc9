//! Each call of ECS fails in each way: which code, how many VMs, and the result of the next attempt.

use mcm_driver::testing::suite::{self, created};
use std::time::Duration;

use mcm_driver::{
    Code, Driver, MachineRequest,
    testing::matrix::{self, Case, During, Outcome, Row, UNKNOWN, look_up, usual},
};
use rstest::rstest;
use serde_json::json;

use super::{
    World, code, driver, driver_that_waits,
    server::{FakeCloud, Fault, Reply},
    spec_with, unmeasured, with_id,
};

#[rstest]
#[case(During::Create, "DescribeInstances", look_up(0))]
#[case(During::Create, "RunInstances", usual(0, (UNKNOWN, 1), (Some(Code::InvalidArgument), 0)))]
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
    matrix::check::<World>(&Row { during, call, outcomes }).await;
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
    let vm = created(&world.driver, &request).await;
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

/// Until the end of 2025 ECS showed no VMs to a user without the permission. Now it refuses.
#[tokio::test]
async fn a_missing_permission_is_not_an_absence() {
    let world = World::new().await;
    let request = world.request("a1");
    let known = with_id(request.clone(), &world.driver.create(&request).await.unwrap().provider_id);
    let denied = <World as suite::World>::error(Case::Denied);
    world.fail("DescribeInstances", Fault::Error(denied), 99);
    for request in [&request, &known] {
        assert_eq!(code(world.driver.status(request).await), Code::PermissionDenied);
        assert_eq!(code(world.driver.delete(request).await), Code::PermissionDenied);
    }
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::PermissionDenied);
    assert_eq!(world.count(), 1);
}
