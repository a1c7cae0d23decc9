//! Each call of Google fails in each way: which code, how many VMs, and whether the next attempt succeeds.

use std::time::{Duration, Instant};

use rstest::rstest;
use tokio::time::timeout;

use super::{World, code, driver, fake::Fault, flows::id, with_id};
use mcm_driver::{
    Code,
    interface::Driver,
    testing::matrix::{self, During, Outcome, Row, UNKNOWN, usual},
};

const THROTTLE: Fault = Fault::Error("rateLimitExceeded", 403);
const DOWN: Fault = Fault::Status(503);
const INVALID: Option<Code> = Some(Code::InvalidArgument);
const LATE: Option<Code> = Some(Code::DeadlineExceeded);

/// A failed look-up never proves that a VM is absent.
const fn look_up(vms: usize) -> [Outcome; 10] {
    usual(vms, (UNKNOWN, vms), (INVALID, vms))
}

/// A look at an operation is repeated until there is no time left.
const fn operation(vms: usize) -> [Outcome; 10] {
    let mut all = usual(vms, (LATE, vms), (INVALID, vms));
    let mut case = 1;
    while case < 5 {
        all[case] = (LATE, vms);
        case += 1;
    }
    all
}

/// The same of a look at several operations: without the permission for it, each is read alone.
const fn operations(vms: usize, denied: Outcome) -> [Outcome; 10] {
    let mut all = operation(vms);
    all[6] = denied;
    all
}

/// Two VMs of one machine cannot be: names are unique in a zone.
#[rstest]
#[case(During::Create, "instances.insert", usual(0, (UNKNOWN, 1), (INVALID, 0)))]
#[case(During::Create, "zoneOperations.get", operation(1))]
#[case(During::Create, "zoneOperations.list", operations(1, (None, 1)))]
#[case(During::Create, "instances.list", look_up(0))]
#[case(During::Create, "token", look_up(0))]
#[case(During::Status, "instances.list", look_up(1))]
#[case(During::Status, "token", look_up(1))]
#[case(During::StatusById, "instances.list", look_up(1))]
#[case(During::StatusById, "token", look_up(1))]
#[case(During::List, "instances.list", look_up(1))]
#[case(During::List, "token", look_up(1))]
#[case(During::Delete, "instances.list", look_up(1))]
#[case(During::DeleteById, "instances.list", look_up(1))]
#[case(During::DeleteById, "token", look_up(1))]
#[case(During::Delete, "instances.delete", usual(1, (UNKNOWN, 0), (None, 1)))]
#[case(During::DeleteById, "instances.delete", usual(1, (UNKNOWN, 0), (None, 1)))]
#[case(During::Delete, "zoneOperations.get", operation(0))]
#[case(During::Delete, "zoneOperations.list", operations(0, (None, 0)))]
#[tokio::test]
async fn a_call_that_fails_has_its_code_and_the_next_attempt_succeeds(
    #[case] during: During,
    #[case] call: &'static str,
    #[case] outcomes: [Outcome; 10],
) {
    matrix::check::<World>(&Row { during, call, outcomes }).await;
}

#[rstest]
#[case::of_something_else("instances.list", Fault::Foreign, Code::Unknown)]
#[case::credentials("token", Fault::Error("invalid_grant", 400), Code::Unauthenticated)]
#[tokio::test]
async fn what_else_a_look_up_may_fail_with_says_nothing_about_a_vm(
    #[case] name: &'static str,
    #[case] fault: Fault,
    #[case] expected: Code,
) {
    let world = World::new().await;
    let request = world.request("a");
    world.gce.lock().faults.push((name, fault, 9_999));
    assert_eq!(code(world.driver.status(&request).await), expected);
}

/// It would fill the memory.
#[rstest]
#[case::list("instances.list", During::List)]
#[case::insertion("instances.insert", During::Create)]
#[case::deletion("instances.delete", During::DeleteById)]
#[case::token("token", During::List)]
#[tokio::test]
async fn an_answer_without_end_ends_a_call(#[case] call: &'static str, #[case] during: During) {
    let world = World::new().await;
    world.put_for("a", "uid-a");
    world.gce.lock().faults.push((call, Fault::Endless, 9_999));
    let (request, other) = (world.request("a"), world.request("b"));
    let known = with_id(request.clone(), &id("a"));
    let error = match during {
        During::Create => world.driver.create(&other).await.map(drop),
        During::DeleteById => world.driver.delete(&known).await.map(drop),
        _ => world.driver.list(&request.class, &request.secret).await.map(drop),
    };
    let error = error.unwrap_err();
    assert!(error.code == Code::Unavailable && error.message.contains("more than 67108864 bytes"), "{error}");
    assert_eq!(world.gce.lock().of_call(call).count(), 1, "another answer would be as large");
}

#[tokio::test]
async fn a_look_at_an_operation_without_end_is_given_up() {
    let world = World::new().await;
    world.gce.lock().faults.push(("zoneOperations.list", Fault::Endless, 1));
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!(world.inserts_and_vms(), (1, 1));
}

/// Each page names another one, so the list has no end.
#[tokio::test]
async fn pages_without_end_are_given_up() {
    let world = World::new().await;
    world.put("a", "RUNNING");
    world.gce.lock().has_endless_pages = true;
    let request = world.request("a");
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap_err();
    let status = world.driver.status(&with_id(request, &id("a"))).await.unwrap_err();
    for error in [listed, status] {
        assert!(error.code == Code::Unavailable && error.message.contains("more than 1000 pages"), "{error}");
    }
    assert_eq!(world.count(), 1);
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

#[tokio::test]
async fn a_vm_that_is_being_created_is_deleted_by_a_later_attempt() {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    world.gce.lock().faults.push(("instances.delete", Fault::Error("resourceNotReady", 400), 9_999));
    assert_eq!((code(world.driver.delete(&request).await), world.count()), (Code::Unavailable, 1));
    world.gce.lock().faults.clear();
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

/// Google counts lists, look-ups of operations, other reads and changes apart.
#[tokio::test]
async fn a_pause_of_one_quota_delays_no_call_of_another() {
    const BUSY: &str = r#"{"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED", "details":
        [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "100s"}]}}"#;
    let world = World::new().await;
    world.gce.lock().faults.push(("instances.list", Fault::Reply(BUSY, 429), 1));
    let request = world.request("a");
    let listed = timeout(Duration::from_millis(500), world.driver.status(&request)).await;
    assert!(listed.is_err(), "the list waits as long as Google asks: {listed:?}");
    let read = timeout(Duration::from_secs(20), world.driver.capacity(&request.class, &request.secret)).await;
    assert_eq!(code(read.unwrap()), Code::InvalidArgument);
}
