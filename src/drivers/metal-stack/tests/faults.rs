//! Each call of metal-api fails in each way: which code, how many machines, and the result of the next attempt.

use rstest::rstest;

use super::{
    World, code,
    fake::MetalApi,
    server::{FakeCloud, Fault, Reply},
    with_id,
};
use mcm_driver::{
    Code,
    interface::Driver,
    testing::{
        matrix::{self, During, Outcome, Row, UNKNOWN, look_up, usual},
        suite::{created, with_state},
    },
};

#[rstest]
#[case(During::Create, "machine.find", look_up(0))]
#[case(During::Create, "machine.allocate", usual(0, (UNKNOWN, 1), (Some(Code::InvalidArgument), 0)))]
#[case(During::Status, "machine.find", look_up(1))]
#[case(During::StatusById, "machine.find", look_up(1))]
#[case(During::List, "machine.find", look_up(1))]
#[case(During::Delete, "machine.find", look_up(1))]
#[case(During::DeleteById, "machine.find", look_up(1))]
#[case(During::Delete, "machine.free", usual(1, (UNKNOWN, 0), (None, 1)))]
#[case(During::DeleteById, "machine.free", usual(1, (UNKNOWN, 0), (None, 1)))]
#[tokio::test]
async fn a_call_that_fails_has_its_code_and_the_next_attempt_succeeds(
    #[case] during: During,
    #[case] call: &'static str,
    #[case] outcomes: [Outcome; 10],
) {
    matrix::check::<World>(&Row { during, call, outcomes }).await;
}

#[tokio::test]
async fn an_allocation_that_was_carried_out_before_an_error_inside_of_the_cloud_is_not_made_twice() {
    let world = World::new().await;
    world.fail("machine.allocate", broken(), 1);
    let request = world.request("a");
    let error = world.driver.create(&request).await.unwrap_err();
    assert!(error.code == Code::Unavailable && error.message.contains("database"), "{error}");
    created(&world.driver, &with_state(request, error.last_known_state.as_deref())).await;
    assert_eq!((world.count(), world.calls("machine.allocate")), (1, 1));
}

/// metal-api did what it was asked for, and then broke.
fn broken() -> Fault {
    Fault::CarriedOut(MetalApi::new(0).error(500, "Internal cannot reach the database"))
}

#[rstest]
#[case::lost(Fault::LostAnswer, Code::Unknown)]
#[case::broken(broken(), Code::Unavailable)]
#[tokio::test]
async fn a_machine_is_freed_once_whatever_the_answer(#[case] fault: Fault, #[case] expected: Code) {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    world.fail("machine.free", fault, 1);
    assert_eq!(code(world.driver.delete(&request).await), expected);
    assert_eq!(world.calls("machine.free"), 1, "another Machine may have the server by now");
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.calls("machine.free"), 1);
}

#[tokio::test]
async fn a_locked_machine_is_not_freed() {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    world.metal.lock().cloud.machines.values_mut().for_each(|machine| machine.is_locked = true);
    assert_eq!(code(world.driver.delete(&request).await), Code::FailedPrecondition);
}

#[rstest]
#[case::stock(0, None, 10, Code::ResourceExhausted)]
#[case::quota(5, Some(0), 10, Code::ResourceExhausted)]
#[case::addresses(5, None, 0, Code::ResourceExhausted)]
#[tokio::test]
async fn a_used_up_resource_lets_the_autoscaler_use_another_pool(
    #[case] machines: usize,
    #[case] quota: Option<usize>,
    #[case] addresses: usize,
    #[case] expected: Code,
) {
    for has_plain_errors in [false, true] {
        let world = World::with(machines).await;
        {
            let mut metal = world.metal.lock();
            let cloud = &mut metal.cloud;
            (cloud.quota, cloud.addresses, cloud.has_plain_errors) = (quota, addresses, has_plain_errors);
        }
        let error = world.driver.create(&world.request("a")).await.unwrap_err();
        assert_eq!((error.code, error.last_known_state), (expected, None), "{}", error.message);
        assert_eq!(world.calls("machine.allocate"), 1);
    }
}

/// A part of a list must not pass for all of it.
#[rstest]
#[case::id("id")]
#[case::allocation("allocation")]
#[case::partition("partition")]
#[tokio::test]
async fn a_list_with_an_entry_that_cannot_be_read_is_an_error(#[case] field: &str) {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    let mut servers = {
        let mut metal = world.metal.lock();
        let find = metal.sent("machine.find")[0].clone();
        serde_json::from_str::<serde_json::Value>(&metal.cloud.answer(&find).body).unwrap()
    };
    servers[0].as_object_mut().unwrap().remove(field);
    world.fail("machine.find", Fault::Error(Reply { status: 200, body: servers.to_string() }), 9);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unknown);
    assert_eq!(code(world.driver.status(&request).await), Code::Unknown);
}

/// A proxy that lacks a method sends this answer, and the controller would take it for a driver that cannot read VMs.
#[rstest]
#[case::of_metal_api(Fault::Error(Reply { status: 501, body: r#"{"statuscode": 501, "message": "no"}"#.to_owned() }))]
#[case::of_a_proxy(Fault::Status(501))]
#[tokio::test]
async fn a_look_up_that_is_not_implemented_is_not_an_absence(#[case] fault: Fault) {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    world.fail("machine.find", fault, 99);
    let known = with_id(request.clone(), &vm.provider_id);
    for request in [&request, &known] {
        assert_eq!(code(world.driver.status(request).await), Code::Internal);
        assert_eq!(code(world.driver.delete(request).await), Code::Internal);
    }
    assert_eq!(world.count(), 1);
}
