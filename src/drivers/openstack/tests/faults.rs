//! Each call of OpenStack fails in each way: which code, how many servers, and the result of the next attempt.

use mcm_driver::testing::suite::{self, created, with_state};
use std::time::Duration;

use mcm_driver::{
    Code,
    interface::Driver,
    testing::matrix::{self, During, Outcome, Row, UNKNOWN, look_up, usual},
};
use rstest::rstest;
use serde_json::Value;

use super::{
    World, code, driver_that_settles,
    fake::{self},
    server::{FakeCloud, Fault, Reply},
    unmeasured,
};

/// Something before the server cannot be created.
const fn part() -> [Outcome; 10] {
    usual(0, (UNKNOWN, 0), (Some(Code::InvalidArgument), 0))
}

#[rstest]
#[case(During::Create, "token.create", look_up(0))]
#[case(During::Create, "server.list", look_up(0))]
#[case(During::Create, "image.list", look_up(0))]
#[case(During::Create, "flavor.list", look_up(0))]
#[case(During::Create, "port.list", look_up(0))]
#[case(During::Create, "group.list", look_up(0))]
#[case(During::Create, "port.create", part())]
#[case(During::Create, "port.tag", look_up(0))]
#[case(During::Create, "volume.list", look_up(0))]
#[case(During::Create, "volume.create", part())]
#[case(During::Create, "server.create", usual(0, (UNKNOWN, 1), (Some(Code::InvalidArgument), 0)))]
#[case(During::Create, "server.get", usual(1, (UNKNOWN, 1), (Some(Code::Aborted), 1)))]
#[case(During::Status, "token.create", look_up(1))]
#[case(During::Status, "server.list", look_up(1))]
#[case(During::Status, "port.list", look_up(1))]
#[case(During::StatusById, "token.create", look_up(1))]
#[case(During::StatusById, "server.get", usual(1, (UNKNOWN, 1), (Some(Code::NotFound), 1)))]
#[case(During::List, "token.create", look_up(1))]
#[case(During::List, "server.list", look_up(1))]
#[case(During::Delete, "token.create", look_up(1))]
#[case(During::Delete, "server.list", look_up(1))]
#[case(During::Delete, "server.delete", usual(1, (UNKNOWN, 0), (Some(Code::DeadlineExceeded), 1)))]
#[case(During::Delete, "port.list", look_up(0))]
#[case(During::Delete, "port.delete", usual(0, (UNKNOWN, 0), (None, 0)))]
#[case(During::Delete, "volume.list", look_up(0))]
#[case(During::Delete, "volume.delete", usual(0, (UNKNOWN, 0), (None, 0)))]
#[case(During::DeleteById, "server.get", usual(1, (UNKNOWN, 1), (Some(Code::DeadlineExceeded), 1)))]
#[case(During::DeleteById, "server.delete", usual(1, (UNKNOWN, 0), (Some(Code::DeadlineExceeded), 1)))]
#[tokio::test]
async fn a_call_that_fails_has_its_code_and_the_next_attempt_succeeds(
    #[case] during: During,
    #[case] call: &'static str,
    #[case] outcomes: [Outcome; 10],
) {
    matrix::check::<World>(&Row { during, call, outcomes }).await;
}

#[rstest]
#[case("server.create")]
#[case("port.create")]
#[case("volume.create")]
#[tokio::test]
async fn a_request_that_is_carried_out_after_its_time_out_is_not_made_twice(#[case] call: &'static str) {
    let (mut world, minute) = (World::new().await, Duration::from_secs(60));
    let hasty = driver_that_settles(Duration::from_secs(1), minute, unmeasured());
    world.driver = driver_that_settles(minute, Duration::from_secs(6), unmeasured());
    world.fail(call, Fault::Late(Duration::from_secs(4)), 1);
    let request = world.request_with_parts("a");
    let error = hasty.create(&request).await.unwrap_err();
    assert_eq!((error.code, world.count()), (Code::DeadlineExceeded, 0));
    let request = with_state(request, error.last_known_state.as_deref());
    // The next process neither sends another request nor reports the server absent.
    assert_eq!(code(world.driver.create(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.status(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.delete(&request).await), Code::Unavailable);
    created(&world.driver, &request).await;
    assert_eq!((world.counts(), world.calls(call)), ((1, 1, 1), 1));
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.counts(), (0, 0, 0));
}

/// A service may store a resource and then break.
#[rstest]
#[case("server.create")]
#[case("port.create")]
#[case("volume.create")]
#[tokio::test]
async fn a_request_that_was_carried_out_before_an_error_inside_of_the_cloud_is_not_made_twice(
    #[case] call: &'static str,
) {
    let world = World::new().await;
    world.fail(call, Fault::CarriedOut(fake::nova(500, "computeFault", "Unexpected API Error.")), 1);
    let request = world.request_with_parts("a");
    let error = world.driver.create(&request).await.unwrap_err();
    assert!(error.code == Code::Unavailable && error.message.contains("Unexpected API Error"), "{error}");
    created(&world.driver, &with_state(request, error.last_known_state.as_deref())).await;
    assert_eq!((world.counts(), world.calls(call)), ((1, 1, 1), 1));
}

/// A list may lack a new server for a moment.
#[tokio::test]
async fn one_empty_list_does_not_show_that_a_request_had_no_effect() {
    let world = World::new().await;
    let settles = Duration::from_millis(1);
    let (first, next) = [(); 2].map(|()| driver_that_settles(Duration::from_secs(20), settles, unmeasured())).into();
    world.openstack.lock().cloud.unlisted = 1;
    world.fail("server.create", Fault::LostAnswer, 1);
    let request = world.request("a");
    let error = first.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::Unknown);
    created(&next, &with_state(request, error.last_known_state.as_deref())).await;
    assert_eq!((world.count(), world.calls("server.create")), (1, 1));
}

/// A part of a list must not pass for all of it.
#[rstest]
#[case::id("id")]
#[case::name("name")]
#[case::status("status")]
#[case::metadata("metadata")]
#[tokio::test]
async fn a_list_with_an_entry_that_cannot_be_read_is_an_error(#[case] field: &str) {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    let mut servers = {
        let mut openstack = world.openstack.lock();
        let list = openstack.sent("server.list")[0].clone();
        serde_json::from_str::<Value>(&openstack.cloud.answer(&list).body).unwrap()
    };
    servers["servers"][0].as_object_mut().unwrap().remove(field);
    world.fail("server.list", Fault::Error(Reply { status: 200, body: servers.to_string() }), 9);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unknown);
    assert_eq!(code(world.driver.status(&request).await), Code::Unknown);
}

#[rstest]
#[case("server.create")]
#[case("port.create")]
#[case("volume.create")]
#[tokio::test]
async fn each_machine_gets_one_server_with_its_parts_although_answers_are_lost(#[case] lost: &'static str) {
    let world = World::new().await;
    let requests: Vec<_> = (0..200).map(|number| world.request_with_parts(&format!("m-{number}"))).collect();
    suite::create_each(&world, lost, &requests).await;
    assert_eq!((world.counts(), world.calls(lost), world.calls("token.create")), ((200, 200, 200), 200, 1));
    suite::delete_each(&world, &requests).await;
    assert_eq!((world.counts(), world.calls("server.delete")), ((0, 0, 0), 200));
}
