//! Each call of the cloud fails in each way: which code, how many VMs, and the result of the next attempt.

use mcm_driver::testing::suite::{created, with_state};
use std::time::Duration;

use mcm_driver::{
    Code, MachineRequest,
    interface::Driver,
    testing::{
        matrix::{self, During, Outcome, Row, UNKNOWN, look_up, usual},
        server::{Fault, Reply},
    },
};
use rstest::rstest;
use serde_json::{Value, json};

use super::{World, code, driver, driver_that_settles, spec_with, unmeasured};

pub(super) const BUSY: &str = "The limit on maximum number of active operations has exceeded.";

/// Without a token nothing is known, whatever the reason.
const fn login(vms: usize) -> [Outcome; 10] {
    let refused = (Some(Code::Unauthenticated), vms);
    let mut outcomes = look_up(vms);
    let mut case = 5;
    while case < outcomes.len() {
        outcomes[case] = refused;
        case += 1;
    }
    outcomes
}

#[rstest]
#[case(During::Create, "endpoint.list", look_up(0))]
#[case(During::Create, "token.create", login(0))]
#[case(During::Create, "instance.list", look_up(0))]
#[case(During::Create, "instance.create", usual(0, (UNKNOWN, 1), (Some(Code::InvalidArgument), 0)))]
#[case(During::Create, "operation.get", usual(1, (UNKNOWN, 1), (Some(Code::Aborted), 1)))]
#[case(During::Create, "instance.get", usual(1, (UNKNOWN, 1), (Some(Code::Aborted), 1)))]
#[case(During::Status, "token.create", login(1))]
#[case(During::Status, "instance.list", look_up(1))]
#[case(During::StatusById, "token.create", login(1))]
#[case(During::StatusById, "instance.get", usual(1, (UNKNOWN, 1), (Some(Code::NotFound), 1)))]
#[case(During::List, "token.create", login(1))]
#[case(During::List, "instance.list", look_up(1))]
#[case(During::Delete, "instance.list", look_up(1))]
#[case(During::Delete, "instance.delete", usual(1, (UNKNOWN, 0), (None, 1)))]
#[case(During::Delete, "operation.get", usual(0, (UNKNOWN, 0), (None, 0)))]
#[case(During::DeleteById, "token.create", login(1))]
#[case(During::DeleteById, "instance.get", usual(1, (UNKNOWN, 1), (None, 1)))]
#[case(During::DeleteById, "instance.delete", usual(1, (UNKNOWN, 0), (None, 1)))]
#[case(During::DeleteById, "operation.get", usual(0, (UNKNOWN, 0), (None, 0)))]
#[tokio::test]
async fn a_call_that_fails_has_its_code_and_the_next_attempt_succeeds(
    #[case] during: During,
    #[case] call: &'static str,
    #[case] outcomes: [Outcome; 10],
) {
    matrix::check::<World>(&Row { during, call, outcomes }).await;
}

#[tokio::test]
async fn a_request_without_an_answer_is_carried_out_once() {
    let world = World::new().await;
    let request = world.request("a");
    world.fail("instance.create", Fault::LostAnswer, 1);
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!((error.code, world.count()), (Code::Unknown, 1));
    let request = with_state(request, error.last_known_state.as_deref());
    let vm = world.driver.create(&request).await.unwrap();
    assert_eq!((world.count(), world.calls("instance.create")), (1, 1), "it is found by its name");
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm.provider_id);
}

/// The instance may be created after the list was made.
#[tokio::test]
async fn a_request_that_is_carried_out_after_its_time_out_is_not_made_twice() {
    let (mut world, minute) = (World::new().await, Duration::from_secs(60));
    let hasty = driver_that_settles(Duration::from_secs(1), minute, unmeasured());
    world.driver = driver_that_settles(minute, minute, unmeasured());
    world.fail("instance.create", Fault::Late(Duration::from_secs(5)), 1);
    let request = world.request("a");
    let error = hasty.create(&request).await.unwrap_err();
    assert_eq!((error.code, world.count()), (Code::DeadlineExceeded, 0));
    let request = with_state(request, error.last_known_state.as_deref());
    // The next process neither sends another request nor reports that there is no VM.
    assert_eq!(code(world.driver.create(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.status(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.delete(&request).await), Code::Unavailable);
    let vm = created(&world.driver, &request).await;
    assert_eq!((world.count(), world.calls("instance.create")), (1, 1));
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm);
}

#[tokio::test]
async fn a_repeated_request_has_the_same_key_and_begins_nothing_new() {
    let world = World::new().await;
    world.yandex.lock().cloud.steps = 9;
    let request = world.request("a");
    world.fail("instance.create", Fault::LostAnswer, 1);
    world.driver.create(&request).await.unwrap_err();
    // The cloud does not show the instance yet, and a new process has no memory.
    let hidden = std::mem::take(&mut world.yandex.lock().cloud.instances);
    let restarted = driver(Duration::from_secs(20), unmeasured());
    restarted.create(&MachineRequest { may_pause: true, ..request.clone() }).await.unwrap_err();
    world.yandex.lock().cloud.instances.extend(hidden);
    let keys: Vec<String> = {
        let yandex = world.yandex.lock();
        let sent = yandex.sent("instance.create");
        sent.iter().map(|request| request.headers["idempotency-key"].clone()).collect()
    };
    assert_eq!((keys.len(), &keys[0]), (2, &keys[1]));
    assert_eq!(world.yandex.lock().cloud.created, 1);
    created(&restarted, &request).await;
    assert_eq!((world.count(), world.yandex.lock().cloud.created), (1, 1));
}

#[tokio::test]
async fn a_throttled_creation_is_repeated_within_the_call() {
    let world = World::new().await;
    let busy = world.yandex.lock().cloud.error(8, BUSY);
    world.fail("instance.create", Fault::Error(busy), 1);
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!((world.count(), world.calls("instance.create")), (1, 2));
}

#[rstest]
#[case::quota(Some(0), None)]
#[case::stock(None, Some(0))]
#[tokio::test]
async fn a_used_up_resource_lets_the_autoscaler_use_another_pool(
    #[case] quota: Option<usize>,
    #[case] hosts: Option<usize>,
) {
    let world = World::new().await;
    {
        let mut yandex = world.yandex.lock();
        (yandex.cloud.quota, yandex.cloud.hosts) = (quota, hosts);
    }
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!((error.code, world.count(), world.calls("instance.create")), (Code::ResourceExhausted, 0, 1), "{error}");
    assert_eq!(error.message.contains("quota compute.instances.count of 12"), quota.is_some(), "{error}");
}

#[tokio::test]
async fn public_addresses_that_are_used_up_let_the_autoscaler_use_another_pool() {
    let world = World::new().await;
    world.yandex.lock().cloud.addresses = vec![("198.51.100.1".to_owned(), true), ("198.51.100.9".to_owned(), false)];
    let interfaces = json!([
        {"subnetID": "e9bsubnet", "assignPublicIPAddress": true, "publicIPAddresses": ["198.51.100.1", "198.51.100.2"]}
    ]);
    let request = world.request_for("a", "uid-a", spec_with(&json!({"networkInterfaceSpecs": interfaces})));
    assert_eq!(code(world.driver.create(&request).await), Code::ResourceExhausted);
    assert_eq!(world.calls("instance.create"), 0);
}

/// The cloud remembers requests that failed.
#[tokio::test]
async fn the_next_request_after_a_failed_one_is_another() {
    let world = World::new().await;
    world.yandex.lock().cloud.failing.extend([(8, "Not enough resources"), (13, "Internal error")]);
    let mut request = world.request("a");
    for expected in [Code::ResourceExhausted, Code::Internal] {
        let error = world.driver.create(&request).await.unwrap_err();
        assert_eq!((error.code, world.count()), (expected, 0), "{error}");
        request = with_state(request, error.last_known_state.as_deref());
    }
    world.driver.create(&request).await.unwrap();
    assert_eq!((world.count(), world.calls("instance.create")), (1, 3), "the number of the request is stored");
}

#[tokio::test]
async fn requests_that_a_killed_process_spent_are_skipped() {
    let world = World::new().await;
    world.yandex.lock().cloud.failing.extend([(13, "Internal error"); 3]);
    let request = world.request("a");
    for number in 0..3 {
        let state = format!("Spent requests: {number}");
        let request = if number == 0 { request.clone() } else { with_state(request.clone(), Some(&state)) };
        world.driver.create(&request).await.unwrap_err();
    }
    // The machine has no state, because no error was stored.
    driver(Duration::from_secs(20), unmeasured()).create(&request).await.unwrap();
    assert_eq!((world.count(), world.calls("instance.create")), (1, 7));
}

#[tokio::test]
async fn a_machine_whose_vm_is_no_more_gets_another_one() {
    let world = World::new().await;
    let request = world.request("a");
    let first = world.driver.create(&request).await.unwrap().provider_id;
    let id = first.rsplit('/').next().unwrap().to_owned();
    world.yandex.lock().cloud.take(&id);
    let second = world.driver.create(&request).await.unwrap().provider_id;
    assert_ne!(first, second);
    assert_eq!((world.count(), world.yandex.lock().cloud.created), (1, 2));
}

#[tokio::test]
async fn a_cloud_that_forgot_its_operations_does_not_stop_a_creation() {
    let world = World::new().await;
    let request = MachineRequest { may_pause: true, ..world.request("a") };
    let paused = world.driver.create(&request).await.unwrap_err();
    let request = with_state(request, paused.last_known_state.as_deref());
    {
        let mut yandex = world.yandex.lock();
        yandex.cloud.forget_operations();
        yandex.cloud.instances.values_mut().for_each(|instance| instance["status"] = "RUNNING".into());
    }
    created(&world.driver, &MachineRequest { may_pause: false, ..request }).await;
    assert_eq!((world.count(), world.yandex.lock().cloud.created), (1, 1));
}

/// A part of a list must not pass for all of it.
#[rstest]
#[case::id("id")]
#[case::zone("zoneId")]
#[case::folder("folderId")]
#[tokio::test]
async fn a_list_with_an_entry_that_cannot_be_read_is_an_error(#[case] field: &str) {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    let mut instance = world.yandex.lock().cloud.instances.values().next().unwrap().clone();
    instance.as_object_mut().unwrap().remove(field);
    let body = json!({"instances": [instance]}).to_string();
    world.fail("instance.list", Fault::Error(Reply { status: 200, body }), 9);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unknown);
    assert_eq!(code(world.driver.status(&request).await), Code::Unknown);
}

#[rstest]
#[case(json!({"error": "of something else"}))]
#[case(json!([]))]
#[tokio::test]
async fn an_answer_of_something_else_is_not_an_empty_list(#[case] body: Value) {
    let world = World::new().await;
    let request = world.request("a");
    world.fail("instance.list", Fault::Error(Reply { status: 200, body: body.to_string() }), 9);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unknown);
    assert_eq!(code(world.driver.delete(&request).await), Code::Unknown);
}
