//! Calls that end while Google works, and the next ones, which continue.

use std::time::Duration;

use futures::future::join_all;
use rstest::rstest;

use super::{Patience, World, access, code, driver, fake::Fault, unmeasured};
use crate::GcpCloud;
use mcm_driver::{
    Code, DriverError, MachineRequest,
    cloud::{CloudDriver, PollTiming},
    interface::Driver,
};

fn pausing(request: MachineRequest) -> MachineRequest {
    MachineRequest { may_pause: true, ..request }
}

/// Makes a call until it is over, as the controller does; returns how often it paused.
async fn until_over<T>(call: impl AsyncFn() -> Result<T, DriverError>) -> (usize, Result<T, DriverError>) {
    let mut pauses = 0;
    loop {
        match call().await {
            Err(DriverError { call_again_in: Some(_), .. }) => pauses += 1,
            other => return (pauses, other),
        }
    }
}

fn calls(world: &World) -> Vec<&'static str> {
    world.gce.lock().sent.iter().map(|sent| sent.call).collect()
}

#[tokio::test]
async fn a_creation_ends_while_google_works_and_the_next_call_continues_it() {
    let world = World::new().await;
    let request = pausing(world.request("a"));
    let paused = world.driver.create(&request).await.unwrap_err();
    assert_eq!((paused.code, paused.call_again_in.is_some()), (Code::Unavailable, true), "{paused}");
    assert_eq!(calls(&world), ["token", "instances.list", "instances.insert"], "it does not wait");
    let (pauses, vm) = until_over(async || world.driver.create(&request).await).await;
    assert_eq!((pauses, vm.unwrap().last_known_state.unwrap().starts_with("Created ")), (1, true));
    assert_eq!(calls(&world)[3..], ["zoneOperations.list", "zoneOperations.list", "instances.list"]);
    assert_eq!(world.inserts_and_vms(), (1, 1));
}

#[tokio::test]
async fn a_creation_that_fails_meanwhile_says_why() {
    let world = World::new().await;
    world.gce.lock().failing.push_back(vec!["ZONE_RESOURCE_POOL_EXHAUSTED"]);
    let request = pausing(world.request("a"));
    let (pauses, failed) = until_over(async || world.driver.create(&request).await).await;
    let failed = failed.unwrap_err();
    assert!(pauses > 0);
    assert_eq!((failed.code, failed.last_known_state.as_deref()), (Code::ResourceExhausted, Some("Spent requests: 1")));
    assert_eq!(world.inserts_and_vms(), (1, 0), "no other request before the machine has stored that");
    world.driver.create(&world.request("b")).await.expect("another machine has requests of its own");
}

#[tokio::test]
async fn a_machine_whose_vm_is_being_created_is_not_deleted_before_it_is_there() {
    let world = World::new().await;
    world.gce.lock().steps = 5;
    let request = pausing(world.request("a"));
    world.driver.create(&request).await.unwrap_err();
    world.gce.lock().vms.values_mut().for_each(|vm| vm.hidden = usize::MAX);
    let early = [world.driver.status(&request).await.unwrap_err(), world.driver.delete(&request).await.unwrap_err()];
    for error in early {
        assert_eq!((error.code, error.call_again_in.is_some()), (Code::Unavailable, true), "{error}");
    }
    let error = world.driver.status(&world.request("a")).await.unwrap_err();
    assert_eq!((error.code, error.call_again_in), (Code::Unavailable, None), "who may not pause is not told to");
    world.gce.lock().vms.values_mut().for_each(|vm| vm.hidden = 0);
    let (_, deleted) = until_over(async || world.driver.delete(&request).await).await;
    deleted.unwrap();
    assert_eq!(world.count(), 0, "no VM is left behind");
}

#[tokio::test]
async fn a_deletion_ends_while_google_works_and_the_next_call_continues_it() {
    let world = World::new().await;
    world.put("a", "RUNNING");
    let request = pausing(world.request("a"));
    let (pauses, deleted) = until_over(async || world.driver.delete(&request).await).await;
    deleted.unwrap();
    assert_eq!((pauses, world.count()), (2, 0));
    let expected = ["token", "instances.list", "instances.delete", "zoneOperations.list", "zoneOperations.list"];
    assert_eq!(calls(&world), expected, "it is deleted once");
}

#[tokio::test]
async fn a_creation_whose_call_was_dropped_is_continued_and_says_why_it_failed() {
    let world = World::new().await;
    {
        let mut gce = world.gce.lock();
        gce.steps = 50;
        gce.failing.push_back(vec!["QUOTA_EXCEEDED"]);
    }
    let pace = PollTiming { total: Duration::from_secs(60), ..world.driver.0.patience.pace };
    let patience = Patience { pace, ..world.driver.0.patience };
    let driver = CloudDriver(GcpCloud::new(access(&world.url, Duration::from_secs(20)), patience, unmeasured()));
    let (request, is_begun) = (world.request("a"), async || {
        while world.gce.lock().inserts == 0 || calls(&world).last() != Some(&"zoneOperations.list") {
            tokio::task::yield_now().await;
        }
    });
    tokio::select! {
        biased;
        result = driver.create(&request) => panic!("{result:?}"),
        () = is_begun() => {}
    }
    assert_eq!(code(driver.create(&request).await), Code::ResourceExhausted);
    assert_eq!(world.gce.lock().inserts, 1);
}

#[tokio::test]
async fn a_vm_that_an_earlier_process_creates_is_not_left_behind_by_a_deletion() {
    let world = World::new().await;
    world.gce.lock().steps = 9;
    let request = pausing(world.request("a"));
    world.driver.create(&request).await.unwrap_err();
    world.gce.lock().vms.values_mut().for_each(|vm| vm.hidden = usize::MAX);
    let restarted = driver(&world.url, Duration::from_secs(20));
    let early = restarted.delete(&request).await.unwrap_err();
    assert_eq!((early.code, early.call_again_in.is_some()), (Code::Unavailable, true), "{early}");
    let id = world.gce.lock().queries("instances.insert")[0]["requestId"].clone();
    let filter = world.gce.lock().queries("zoneOperations.list")[0]["filter"].clone();
    assert!(filter.contains(&format!("(clientOperationId = \"{id}\")")), "{filter}");
    world.gce.lock().vms.values_mut().for_each(|vm| vm.hidden = 0);
    let (_, deleted) = until_over(async || restarted.delete(&request).await).await;
    deleted.unwrap();
    assert_eq!(world.count(), 0);
}

/// The first look-up began before the end of a creation, and its operation is read after that.
#[tokio::test]
async fn a_vm_whose_creation_ends_during_a_deletion_is_not_left_behind() {
    let world = World::new().await;
    world.driver.create(&world.request("a")).await.unwrap();
    world.gce.lock().vms.values_mut().for_each(|vm| vm.hidden = 1);
    let restarted = driver(&world.url, Duration::from_secs(20));
    restarted.delete(&world.request("a")).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[rstest]
#[case::unknown_is_not_absent(Fault::Status(503), Some(Code::Unavailable))]
#[case::as_gardeners_driver_needs_no_permission(Fault::Error("forbidden", 403), None)]
#[tokio::test]
async fn a_machine_without_a_vm_is_deleted_unless_a_creation_may_run(
    #[case] fault: Fault,
    #[case] expected: Option<Code>,
) {
    let world = World::new().await;
    world.gce.lock().faults.push(("zoneOperations.list", fault, 9_999));
    let deleted = world.driver.delete(&world.request("a")).await;
    assert_eq!(deleted.err().map(|error| error.code), expected);
}

#[tokio::test]
async fn three_hundred_operations_are_followed_by_few_requests() {
    let world = World::new().await;
    // A tenth of the real times.
    world.gce.lock().operation_time = Some(Duration::from_secs(3));
    let millis = Duration::from_millis;
    let pace = PollTiming { first: millis(100), longest: millis(500), total: Duration::from_secs(60) };
    let patience = Patience { window: millis(50), pace };
    let driver = CloudDriver(GcpCloud::new(access(&world.url, Duration::from_secs(20)), patience, unmeasured()));
    let requests: Vec<MachineRequest> = (0..300).map(|number| world.request(&format!("m-{number}"))).collect();
    let created = join_all(requests.iter().map(|request| driver.create(request))).await;
    assert!(created.iter().all(Result::is_ok), "{created:?}");
    let gce = world.gce.lock();
    let looks = gce.sent.iter().filter(|sent| sent.call.starts_with("zoneOperations.")).count();
    assert!(looks <= 100, "{looks} looks at 300 operations");
}

#[tokio::test]
async fn an_account_that_may_not_list_operations_looks_at_each() {
    let world = World::new().await;
    world.gce.lock().faults.push(("zoneOperations.list", Fault::Error("forbidden", 403), 9_999));
    for name in ["a", "b"] {
        world.driver.create(&world.request(name)).await.unwrap();
    }
    let expected =
        ["instances.insert", "zoneOperations.list", "zoneOperations.get", "zoneOperations.get", "instances.list"];
    assert_eq!(calls(&world)[2..7], expected);
    assert_eq!(world.gce.lock().of_call("zoneOperations.list").count(), 1, "it is remembered");
}

#[tokio::test]
async fn a_look_that_is_throttled_is_not_repeated_at_once() {
    let world = World::new().await;
    world.gce.lock().faults.push(("zoneOperations.list", Fault::Error("rateLimitExceeded", 403), 1));
    let request = pausing(world.request("a"));
    world.driver.create(&request).await.unwrap_err();
    world.driver.create(&request).await.unwrap_err();
    assert_eq!(world.gce.lock().of_call("zoneOperations.list").count(), 1);
    let (_, vm) = until_over(async || world.driver.create(&request).await).await;
    vm.unwrap();
}

#[rstest]
#[case::by_another_client(true, None)]
#[case::something_else_is_missing(false, Some(Code::InvalidArgument))]
#[tokio::test]
async fn a_vm_that_is_gone_before_its_deletion_is_carried_out_is_a_success(
    #[case] is_gone: bool,
    #[case] expected: Option<Code>,
) {
    let world = World::new().await;
    world.put("a", "RUNNING");
    world.gce.lock().overtaken.push_back(is_gone);
    let request = pausing(world.request("a"));
    let (_, deleted) = until_over(async || world.driver.delete(&request).await).await;
    assert_eq!((deleted.err().map(|error| error.code), world.count()), (expected, usize::from(!is_gone)));
}
