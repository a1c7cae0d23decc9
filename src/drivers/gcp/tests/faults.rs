//! Each call of Google fails in each way: which code, how many VMs, and whether the next attempt succeeds.

use std::time::{Duration, Instant};

use futures::future::join_all;
use rstest::rstest;

use super::{World, code, driver, fake::Fault, with_id};
use crate::GcpDriver;
use mcm_driver::{Code, DriverError, MachineRequest, interface::Driver};

const THROTTLE: Fault = Fault::Error("rateLimitExceeded", 403);
const STOCK_OUT: Fault = Fault::Error("resourcePoolExhausted", 503);
const QUOTA: Fault = Fault::Error("quotaExceeded", 403);
const AUTH: Fault = Fault::Error("authError", 401);
const DENIED: Fault = Fault::Error("forbidden", 403);
const NOT_FOUND: Fault = Fault::Error("notFound", 404);
const DOWN: Fault = Fault::Status(503);

/// The columns of the matrix: what each call fails with. Two VMs of one machine cannot be: names are unique in a zone.
const FAULTS: [Fault; 11] = [
    Fault::LostAnswer,
    THROTTLE,
    DOWN,
    Fault::Timeout,
    Fault::Malformed,
    Fault::Foreign,
    AUTH,
    DENIED,
    STOCK_OUT,
    QUOTA,
    NOT_FOUND,
];

/// Code of the driver's error, `None` for a success, and the number of VMs afterwards.
type Outcome = (Option<Code>, usize);

/// The outcome of each column.
type Row = [Outcome; FAULTS.len()];

/// The usual outcomes of a call, with so many VMs after each, and those of a lost answer and of what was not found.
const fn row(vms: usize, lost: Outcome, not_found: Outcome) -> Row {
    [
        lost,
        (Some(Code::Unavailable), vms),
        (Some(Code::Unavailable), vms),
        (Some(Code::DeadlineExceeded), vms),
        (UNKNOWN, vms),
        (UNKNOWN, vms),
        (Some(Code::Unauthenticated), vms),
        (Some(Code::PermissionDenied), vms),
        (Some(Code::ResourceExhausted), vms),
        (Some(Code::ResourceExhausted), vms),
        not_found,
    ]
}

/// The same of a look at an operation, which is repeated until there is no time left.
const fn row_of_operation(vms: usize, lost: Outcome) -> Row {
    let late = (Some(Code::DeadlineExceeded), vms);
    let exhausted = (Some(Code::ResourceExhausted), vms);
    [
        lost,
        late,
        late,
        late,
        late,
        late,
        (Some(Code::Unauthenticated), vms),
        (Some(Code::PermissionDenied), vms),
        exhausted,
        exhausted,
        (Some(Code::InvalidArgument), vms),
    ]
}

/// The same of a look at several operations: without the permission for it, each is read alone.
const fn row_of_listed(vms: usize, lost: Outcome, denied: Outcome) -> Row {
    let mut row = row_of_operation(vms, lost);
    row[7] = denied;
    row
}

const UNKNOWN: Option<Code> = Some(Code::Unknown);
const INVALID: Option<Code> = Some(Code::InvalidArgument);

/// A cloud, and a driver for the call that fails. Only where there is no answer does it give up soon: a slow machine is no
/// fault.
async fn start_with(fault: Fault) -> (World, GcpDriver) {
    let world = World::new().await;
    let seconds = if fault == Fault::Timeout { 3.0 } else { 20.0 };
    let failing = driver(&world.url, Duration::from_secs_f64(seconds));
    (world, failing)
}

async fn after(
    world: &World,
    name: &'static str,
    fault: Fault,
    call: impl Future<Output = Result<(), DriverError>>,
) -> Outcome {
    if name == "zoneOperations.get" {
        // Single operations are read only without the permission to list them.
        world.gce.lock().faults.push(("zoneOperations.list", DENIED, 9_999));
    }
    world.gce.lock().faults.push((name, fault, 9_999));
    let error = call.await.err();
    world.gce.lock().faults.clear();
    if let Some(error) = &error {
        for secret in ["PRIVATE KEY", "ya29", "hunter2", "eyJ"] {
            assert!(!error.message.contains(secret), "{error}");
        }
        assert_eq!(error.message.matches('[').count(), error.message.matches(']').count(), "{error}");
    }
    (error.map(|error| error.code), world.count())
}

#[rstest]
#[case("instances.insert", row(0, (UNKNOWN, 1), (INVALID, 0)))]
#[case("zoneOperations.get", row_of_operation(1, (Some(Code::DeadlineExceeded), 1)))]
#[case("zoneOperations.list", row_of_listed(1, (Some(Code::DeadlineExceeded), 1), (None, 1)))]
#[case("instances.list", row(0, (UNKNOWN, 0), (INVALID, 0)))]
#[case("token", row(0, (UNKNOWN, 0), (INVALID, 0)))]
#[tokio::test]
async fn a_creation_that_fails_says_why_and_the_next_leads_to_one_vm(#[case] name: &'static str, #[case] row: Row) {
    join_all(FAULTS.into_iter().zip(row).map(async |(fault, expected)| {
        let (world, failing) = start_with(fault).await;
        let request = world.request("a");
        let call = async { failing.create(&request).await.map(drop) };
        assert_eq!(after(&world, name, fault, call).await, expected, "{name} {fault:?}");
        let vm = create(&world.driver, &request).await;
        assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm);
        assert_eq!(world.count(), 1, "{name} {fault:?}");
    }))
    .await;
}

#[rstest]
#[case::of_a_proxy("instances.list", Fault::Status(404), Code::Unknown)]
#[case::credentials("token", Fault::Error("invalid_grant", 400), Code::Unauthenticated)]
#[tokio::test]
async fn what_else_a_look_up_may_fail_with_says_nothing_about_a_vm(
    #[case] name: &'static str,
    #[case] fault: Fault,
    #[case] expected: Code,
) {
    let world = World::new().await;
    let request = world.request("a");
    let call = async { world.driver.status(&request).await.map(drop) };
    assert_eq!(after(&world, name, fault, call).await, (Some(expected), 0));
}

#[rstest]
#[case("instances.list")]
#[case("token")]
#[tokio::test]
async fn a_look_up_that_fails_never_says_that_there_is_no_vm(#[case] name: &'static str) {
    join_all(FAULTS.into_iter().zip(row(1, (UNKNOWN, 1), (INVALID, 1))).map(async |(fault, expected)| {
        let (world, failing) = start_with(fault).await;
        let request = world.request("a");
        world.driver.create(&request).await.unwrap();
        let known = with_id(request.clone(), "gce:///my-project/europe-west1-b/a");
        for request in [&request, &known] {
            let status = async { failing.status(request).await.map(drop) };
            assert_eq!(after(&world, name, fault, status).await, expected, "status: {name} {fault:?}");
            let delete = async { failing.delete(request).await.map(drop) };
            assert_eq!(after(&world, name, fault, delete).await, expected, "delete: {name} {fault:?}");
        }
        let list = async { failing.list(&request.class, &request.secret).await.map(drop) };
        assert_eq!(after(&world, name, fault, list).await, expected, "list: {name} {fault:?}");
        world.driver.status(&request).await.unwrap();
    }))
    .await;
}

#[rstest]
// A VM that is gone is a success.
#[case("instances.delete", row(1, (UNKNOWN, 1), (None, 1)))]
#[case("zoneOperations.get", row_of_operation(1, (Some(Code::DeadlineExceeded), 0)))]
#[case("zoneOperations.list", row_of_listed(1, (Some(Code::DeadlineExceeded), 0), (None, 0)))]
#[tokio::test]
async fn a_deletion_that_fails_says_why_and_the_next_succeeds(#[case] name: &'static str, #[case] row: Row) {
    let not_ready = (Fault::Error("resourceNotReady", 400), (Some(Code::Unavailable), 1));
    let being_created = [not_ready].into_iter().filter(|_| name == "instances.delete");
    join_all(FAULTS.into_iter().zip(row).chain(being_created).map(async |(fault, expected)| {
        let (world, failing) = start_with(fault).await;
        let request = world.request("a");
        world.driver.create(&request).await.unwrap();
        let call = async { failing.delete(&request).await.map(drop) };
        assert_eq!(after(&world, name, fault, call).await, expected, "{name} {fault:?}");
        world.driver.delete(&request).await.unwrap();
        assert_eq!(world.count(), 0, "{name} {fault:?}");
    }))
    .await;
}

#[tokio::test]
async fn a_deletion_is_never_repeated_without_a_look() {
    let world = World::new().await;
    world.put_for("a", "uid-a");
    {
        let mut gce = world.gce.lock();
        // The deletion is carried out at once.
        gce.steps = 0;
        gce.faults.push(("instances.delete", Fault::LostAnswer, 1));
    }
    world.driver.delete(&world.request("a")).await.unwrap_err();
    assert_eq!(world.gce.lock().bodies("instances.delete").len(), 1);
    assert_eq!(world.count(), 0);
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

#[tokio::test]
async fn a_pause_that_google_asks_for_is_kept() {
    let world = World::new().await;
    world.gce.lock().faults.push(("instances.insert", Fault::Later, 1));
    let start = Instant::now();
    world.driver.create(&world.request("a")).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
    assert_eq!(world.inserts_and_vms(), (2, 1));
}

/// User data and tokens go to the endpoint of the account only.
#[tokio::test]
async fn a_redirection_is_not_followed() {
    let world = World::new().await;
    world.gce.lock().faults.push(("instances.insert", Fault::Moved, 99));
    assert_eq!(code(world.driver.create(&world.request("a")).await), Code::Unknown);
    assert_eq!(world.inserts_and_vms(), (2, 0), "two attempts");
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
