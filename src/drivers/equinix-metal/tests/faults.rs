//! Each call of the API fails in each way: which code, how many devices, and the result of the next attempt.

use mcm_driver::testing::suite::{self, created};

use mcm_driver::{
    Code, Driver,
    testing::matrix::{self, Case, During, Outcome, Row, UNKNOWN, look_up, usual},
};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    World, code,
    fake::{MetalApi, PLAN},
    server::{FakeCloud, Fault, Reply},
    spec_with, with_id,
};

/// A device that the API refuses to show is looked for in the list, and a device that it reports absent is absent.
const fn get(hidden: Outcome, not_found: Outcome) -> [Outcome; 10] {
    let mut outcomes = usual(1, (UNKNOWN, 1), not_found);
    outcomes[6] = hidden;
    outcomes
}

#[rstest]
#[case(During::Create, "device.list", look_up(0))]
#[case(During::Create, "device.create", usual(0, (UNKNOWN, 1), (Some(Code::InvalidArgument), 0)))]
#[case(During::Status, "device.list", look_up(1))]
#[case(During::StatusById, "device.get", get((None, 1), (Some(Code::NotFound), 1)))]
#[case(During::List, "device.list", look_up(1))]
#[case(During::Delete, "device.list", look_up(1))]
#[case(During::DeleteById, "device.get", get((None, 0), (None, 1)))]
#[case(During::Delete, "device.delete", usual(1, (UNKNOWN, 0), (None, 1)))]
#[case(During::DeleteById, "device.delete", usual(1, (UNKNOWN, 0), (None, 1)))]
#[tokio::test]
async fn a_call_that_fails_has_its_code_and_the_next_attempt_succeeds(
    #[case] during: During,
    #[case] call: &'static str,
    #[case] outcomes: [Outcome; 10],
) {
    matrix::check::<World>(&Row { during, call, outcomes }).await;
}

/// The API refuses to show a device that failed.
#[rstest]
#[case::and_exists(true)]
#[case::and_is_gone(false)]
#[tokio::test]
async fn a_device_that_is_not_shown_is_absent_only_if_the_list_lacks_it(#[case] exists: bool) {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    {
        let mut metal = world.metal.lock();
        let id = metal.cloud.devices[0].id.clone();
        metal.cloud.hidden.insert(id.clone());
        if !exists {
            metal.cloud.take(&id);
        }
    }
    let known = with_id(request, &vm.provider_id);
    match world.driver.status(&known).await {
        Ok(found) => assert!(exists && found.provider_id == vm.provider_id),
        Err(error) => assert!(!exists && error.code == Code::NotFound, "{error}"),
    }
    world.driver.delete(&known).await.unwrap();
    assert_eq!((world.count(), world.calls("device.delete")), (0, usize::from(exists)));
}

#[tokio::test]
async fn a_token_without_permissions_says_nothing_about_devices() {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    let denied = <World as suite::World>::error(Case::Denied);
    for call in ["device.get", "device.list"] {
        world.fail(call, Fault::Error(denied.clone()), 99);
    }
    let known = with_id(request, &vm.provider_id);
    assert_eq!(code(world.driver.status(&known).await), Code::PermissionDenied);
    assert_eq!((code(world.driver.delete(&known).await), world.count()), (Code::PermissionDenied, 1));
}

/// The next order would be a second device.
#[rstest]
#[case::without_an_answer(Fault::LostAnswer, Code::Unknown, 1)]
#[case::throttled(Fault::Error(MetalApi::new(0).error(429, "Too many requests")), Code::Unavailable, 0)]
#[case::with_a_wrong_token(Fault::Error(MetalApi::new(0).error(401, "Invalid authentication token")), Code::Unauthenticated, 0)]
#[tokio::test]
async fn an_order_for_a_reservation_that_was_not_refused_is_the_last(
    #[case] fault: Fault,
    #[case] expected: Code,
    #[case] devices: usize,
) {
    let world = World::new().await;
    world.metal.lock().cloud.reservations = [("r-1".to_owned(), true), ("r-2".to_owned(), true)].into();
    world.fail("device.create", fault, 99);
    let request = world.request_for("a", "uid-a", spec_with(&json!({"reservationIDs": ["r-1", "r-2"]})));
    assert_eq!((code(world.driver.create(&request).await), world.count()), (expected, devices));
    for sent in world.metal.lock().sent("device.create") {
        let body: Value = serde_json::from_str(&sent.body).unwrap();
        assert_eq!(body["hardware_reservation_id"], "r-1");
    }
    world.metal.lock().faults.clear();
    created(&world.driver, &request).await;
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn a_device_is_deleted_once_whatever_the_answer() {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    world.fail("device.delete", Fault::LostAnswer, 1);
    assert_eq!(code(world.driver.delete(&request).await), Code::Unknown);
    world.driver.delete(&request).await.unwrap();
    assert_eq!((world.count(), world.calls("device.delete")), (0, 1));
}

#[rstest]
#[case::stock(0, None)]
#[case::quota(5, Some(0))]
#[tokio::test]
async fn a_used_up_resource_lets_the_autoscaler_use_another_pool(#[case] servers: usize, #[case] quota: Option<usize>) {
    let world = World::with(servers).await;
    world.metal.lock().cloud.quota = quota;
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!((error.code, error.last_known_state), (Code::ResourceExhausted, None), "{}", error.message);
    assert_eq!(world.calls("device.create"), 1);
}

/// A part of a list must not pass for all of it.
#[rstest]
#[case::id("/devices/0/id")]
#[case::name("/devices/0/hostname")]
#[case::metro("/devices/0/metro")]
#[case::state("/devices/0/state")]
#[case::devices("/devices")]
#[case::pages("/meta")]
#[tokio::test]
async fn a_list_with_a_part_that_cannot_be_read_is_an_error(#[case] pointer: &str) {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    let mut list = {
        let mut metal = world.metal.lock();
        let sent = metal.sent("device.list")[0].clone();
        serde_json::from_str::<Value>(&metal.cloud.answer(&sent).body).unwrap()
    };
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    list.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field);
    world.fail("device.list", Fault::Error(Reply { status: 200, body: list.to_string() }), 9);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unknown);
    assert_eq!(code(world.driver.status(&request).await), Code::Unknown);
}

#[tokio::test]
async fn each_machine_gets_one_device_although_answers_are_lost_and_lists_have_pages() {
    let world = World::with(300).await;
    world.metal.lock().cloud.largest_page = 64;
    let requests: Vec<_> = (0..200).map(|number| world.request(&format!("m-{number}"))).collect();
    suite::create_each(&world, "device.create", &requests).await;
    assert_eq!((world.calls("device.create"), world.metal.lock().cloud.free[PLAN]), (200, 100));
}
