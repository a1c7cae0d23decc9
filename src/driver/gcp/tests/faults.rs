//! Each call of Google fails in each way: which code, how many VMs, and whether the next attempt succeeds.

use std::time::Duration;

use futures::future::join_all;
use rstest::rstest;

use super::{World, driver, fake::Fault, with_id};
use crate::driver::{Code, DriverError, MachineRequest, gcp::GcpDriver, interface::Driver};

const THROTTLE: Fault = Fault::Error("rateLimitExceeded", 403);
const STOCK_OUT: Fault = Fault::Error("resourcePoolExhausted", 503);
const QUOTA: Fault = Fault::Error("quotaExceeded", 403);
const AUTH: Fault = Fault::Error("authError", 401);
const DENIED: Fault = Fault::Error("forbidden", 403);
const NOT_FOUND: Fault = Fault::Error("notFound", 404);
const DOWN: Fault = Fault::Status(503);

/// A cloud, and a driver for the call that fails. Only where there is no answer does it give up soon: a slow machine is no
/// fault.
async fn start_with(fault: Fault) -> (World, GcpDriver) {
    let world = World::new().await;
    let seconds = if fault == Fault::Timeout { 0.3 } else { 20.0 };
    let failing = driver(&world.url, Duration::from_secs_f64(seconds));
    (world, failing)
}

/// A code as the call fails with it, and how many VMs there are after it.
type Outcome = (Code, usize);

async fn after(
    world: &World,
    name: &'static str,
    fault: Fault,
    call: impl Future<Output = Result<(), DriverError>>,
) -> Outcome {
    world.gce.lock().faults.push((name, fault, 9_999));
    let error = call.await.unwrap_err();
    world.gce.lock().faults.clear();
    for secret in ["PRIVATE KEY", "ya29", "hunter2", "eyJ"] {
        assert!(!error.message.contains(secret), "{error}");
    }
    assert_eq!(error.message.matches('[').count(), error.message.matches(']').count(), "{error}");
    (error.code, world.count())
}

#[rstest]
#[case("instances.insert", Fault::LostAnswer, (Code::Unknown, 1))]
#[case("instances.insert", Fault::Timeout, (Code::DeadlineExceeded, 0))]
#[case("instances.insert", Fault::Malformed, (Code::Unknown, 0))]
#[case("instances.insert", Fault::Foreign, (Code::Unknown, 0))]
#[case("instances.insert", THROTTLE, (Code::Unavailable, 0))]
#[case("instances.insert", DOWN, (Code::Unavailable, 0))]
#[case("instances.insert", AUTH, (Code::Unauthenticated, 0))]
#[case("instances.insert", DENIED, (Code::PermissionDenied, 0))]
#[case("instances.insert", STOCK_OUT, (Code::ResourceExhausted, 0))]
#[case("instances.insert", QUOTA, (Code::ResourceExhausted, 0))]
#[case::an_image("instances.insert", NOT_FOUND, (Code::InvalidArgument, 0))]
#[case("zoneOperations.get", Fault::LostAnswer, (Code::DeadlineExceeded, 1))]
#[case("zoneOperations.get", Fault::Timeout, (Code::DeadlineExceeded, 1))]
#[case("zoneOperations.get", Fault::Malformed, (Code::DeadlineExceeded, 1))]
#[case("zoneOperations.get", Fault::Foreign, (Code::DeadlineExceeded, 1))]
#[case("zoneOperations.get", THROTTLE, (Code::DeadlineExceeded, 1))]
#[case("zoneOperations.get", DOWN, (Code::DeadlineExceeded, 1))]
#[case("zoneOperations.get", AUTH, (Code::Unauthenticated, 1))]
#[case("zoneOperations.get", DENIED, (Code::PermissionDenied, 1))]
#[case("zoneOperations.get", NOT_FOUND, (Code::InvalidArgument, 1))]
#[case("instances.list", Fault::LostAnswer, (Code::Unknown, 0))]
#[case("instances.list", Fault::Timeout, (Code::DeadlineExceeded, 0))]
#[case("instances.list", Fault::Malformed, (Code::Unknown, 0))]
#[case("instances.list", Fault::Foreign, (Code::Unknown, 0))]
#[case("instances.list", THROTTLE, (Code::Unavailable, 0))]
#[case("instances.list", DOWN, (Code::Unavailable, 0))]
#[case("instances.list", AUTH, (Code::Unauthenticated, 0))]
#[case("instances.list", DENIED, (Code::PermissionDenied, 0))]
#[case::the_project("instances.list", NOT_FOUND, (Code::InvalidArgument, 0))]
#[case::of_a_proxy("instances.list", Fault::Status(404), (Code::Unknown, 0))]
#[case("token", Fault::LostAnswer, (Code::Unknown, 0))]
#[case("token", Fault::Timeout, (Code::DeadlineExceeded, 0))]
#[case("token", Fault::Malformed, (Code::Unknown, 0))]
#[case("token", THROTTLE, (Code::Unavailable, 0))]
#[case("token", DOWN, (Code::Unavailable, 0))]
#[case("token", Fault::Error("invalid_grant", 400), (Code::Unauthenticated, 0))]
#[tokio::test]
async fn a_creation_that_fails_says_why_and_the_next_leads_to_one_vm(
    #[case] name: &'static str,
    #[case] fault: Fault,
    #[case] expected: Outcome,
) {
    let (world, failing) = start_with(fault).await;
    let request = world.request("a");
    let call = async { failing.create(&request).await.map(drop) };
    assert_eq!(after(&world, name, fault, call).await, expected);
    let vm = create(&world.driver, &request).await;
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm);
    assert_eq!(world.count(), 1);
}

#[rstest]
#[case(Fault::LostAnswer, Code::Unknown)]
#[case(Fault::Timeout, Code::DeadlineExceeded)]
#[case(Fault::Malformed, Code::Unknown)]
#[case(Fault::Foreign, Code::Unknown)]
#[case(THROTTLE, Code::Unavailable)]
#[case(DOWN, Code::Unavailable)]
#[case(AUTH, Code::Unauthenticated)]
#[case(DENIED, Code::PermissionDenied)]
#[case(NOT_FOUND, Code::InvalidArgument)]
#[tokio::test]
async fn a_look_up_that_fails_never_says_that_there_is_no_vm(#[case] fault: Fault, #[case] expected: Code) {
    let (world, failing) = start_with(fault).await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    let known = with_id(request.clone(), "gce:///my-project/europe-west1-b/a");
    for request in [&request, &known] {
        let status = async { failing.status(request).await.map(drop) };
        assert_eq!(after(&world, "instances.list", fault, status).await, (expected, 1));
        let delete = async { failing.delete(request).await.map(drop) };
        assert_eq!(after(&world, "instances.list", fault, delete).await, (expected, 1));
    }
    let list = async { failing.list(&request.class, &request.secret).await.map(drop) };
    assert_eq!(after(&world, "instances.list", fault, list).await, (expected, 1));
    world.driver.status(&request).await.unwrap();
}

#[rstest]
#[case("instances.delete", Fault::LostAnswer, (Code::Unknown, 1))]
#[case("instances.delete", Fault::Timeout, (Code::DeadlineExceeded, 1))]
#[case("instances.delete", Fault::Malformed, (Code::Unknown, 1))]
#[case("instances.delete", THROTTLE, (Code::Unavailable, 1))]
#[case("instances.delete", DOWN, (Code::Unavailable, 1))]
#[case("instances.delete", AUTH, (Code::Unauthenticated, 1))]
#[case("instances.delete", DENIED, (Code::PermissionDenied, 1))]
#[case::being_created("instances.delete", Fault::Error("resourceNotReady", 400), (Code::Unavailable, 1))]
#[case("zoneOperations.get", Fault::LostAnswer, (Code::DeadlineExceeded, 0))]
#[case("zoneOperations.get", DOWN, (Code::DeadlineExceeded, 1))]
#[case("zoneOperations.get", DENIED, (Code::PermissionDenied, 1))]
#[tokio::test]
async fn a_deletion_that_fails_says_why_and_the_next_succeeds(
    #[case] name: &'static str,
    #[case] fault: Fault,
    #[case] expected: Outcome,
) {
    let (world, failing) = start_with(fault).await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    let call = async { failing.delete(&request).await.map(drop) };
    assert_eq!(after(&world, name, fault, call).await, expected);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn a_deletion_is_never_repeated_without_a_look() {
    let world = World::new().await;
    world.put_for("a", "uid-a");
    world.gce.lock().faults.push(("instances.delete", Fault::LostAnswer, 1));
    world.driver.delete(&world.request("a")).await.unwrap_err();
    assert_eq!(world.gce.lock().bodies("instances.delete").len(), 1);
    {
        let mut gce = world.gce.lock();
        gce.vms.clear();
    }
    // Meanwhile the name belongs to another machine.
    world.put_for("a", "another");
    world.driver.delete(&world.request("a")).await.unwrap();
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn a_vm_that_is_gone_when_it_is_deleted_is_a_success() {
    let world = World::new().await;
    world.put("a", "RUNNING");
    world.gce.lock().faults.push(("instances.delete", NOT_FOUND, 1));
    world.driver.delete(&world.request("a")).await.unwrap();
}

#[tokio::test]
async fn one_failure_is_forgiven_within_the_call() {
    let world = World::new().await;
    for fault in [Fault::LostAnswer, THROTTLE, DOWN] {
        world.gce.lock().faults.extend(["instances.insert", "instances.list", "token"].map(|name| (name, fault, 1)));
        let name = format!("m-{fault:?}").to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let driver = driver(&world.url, Duration::from_secs(20));
        driver.create(&world.request(name.trim_end_matches('-'))).await.unwrap();
    }
    assert_eq!(world.count(), 3);
}

/// Repeats a creation as the controller does, until it succeeds.
async fn create(driver: &GcpDriver, request: &MachineRequest) -> String {
    loop {
        // The controller looks first.
        let found = match driver.status(request).await {
            Err(error) if error.code == Code::NotFound => driver.create(request).await,
            other => other,
        };
        match found {
            Ok(vm) => return vm.provider_id,
            Err(error) => assert!(error.code.is_transient(), "{error}"),
        }
    }
}

#[tokio::test]
async fn five_hundred_machines_get_five_hundred_vms_although_every_tenth_answer_is_lost() {
    let world = World::new().await;
    world.gce.lock().lost_every = Some(10);
    let requests: Vec<MachineRequest> = (0..500).map(|number| world.request(&format!("m-{number}"))).collect();
    let mut ids = join_all(requests.iter().map(|request| create(&world.driver, request))).await;
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), world.count()), (500, 500));
    assert!(world.gce.lock().inserts > 500, "answers were lost");
    let look_ups = world.gce.lock().bodies("instances.list").len();
    assert!(look_ups < 500, "{look_ups} look-ups for 500 machines");
}
