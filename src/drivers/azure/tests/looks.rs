//! The pace at which the driver polls changes of Azure, and its behaviour without reports on operations.

use std::time::{Duration, Instant};

use mcm_driver::{
    Code, Driver, MachineRequest,
    cloud::{HttpLimits, PollTiming},
};
use rstest::rstest;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{
    CLUSTER, ROLE, UID_TAG, World, code, driver_of,
    fake::{Arm, URN},
    id_of,
    server::{Fault, Reply},
    spec_with, unmeasured, with_id,
};

const MILLI: Duration = Duration::from_millis(1);

/// The driver of a process that began no change.
fn next(pace: PollTiming) -> mcm_driver::cloud::CloudDriver<crate::AzureVms> {
    let limits =
        HttpLimits { attempt: 20_000 * MILLI, call: 60_000 * MILLI, attempts: 2, pause: MILLI, slowest: 1000.0 };
    driver_of(limits, pace, unmeasured())
}

/// Compute refuses more than 12 reads of one VM in a minute.
#[rstest]
#[case::created("Creating")]
#[case::deleted("Deleting")]
#[tokio::test]
async fn looks_at_a_change_of_an_earlier_process_become_rare(#[case] state: &str) {
    let world = World::new().await;
    {
        let cloud = &mut world.arm.lock().cloud;
        cloud.put("a", &json!({CLUSTER: "1", ROLE: "1", UID_TAG: "uid-a"}));
        cloud.vm_mut("a")["properties"]["provisioningState"] = json!(state);
    }
    let pace = PollTiming { first: 2 * MILLI, longest: 40 * MILLI, total: 5000 * MILLI };
    let (next, request) = (next(pace), MachineRequest { may_pause: true, ..world.request("a") });
    let (began, mut last) = (Instant::now(), Duration::ZERO);
    while began.elapsed() < 600 * MILLI {
        let error = next.status(&request).await.unwrap_err();
        let pause = error.call_again_in.unwrap();
        assert!(error.code == Code::Unavailable && pause >= last, "{error}");
        last = pause;
        sleep(pause).await;
    }
    assert_eq!(last, pace.longest);
    assert!(world.calls("vm.get") < 40, "{} looks", world.calls("vm.get"));
}

/// Reports are at the subscription, where an account may have no right to read.
#[rstest]
#[case::no_right(Arm::error(403, "AuthorizationFailed", "The client does not have authorization."))]
#[case::another_name(Arm::error(404, "OperationNotFound", "The operation was not found."))]
#[case::gone(Arm::error(410, "Gone", "The report is gone."))]
#[case::version(Arm::error(400, "NoRegisteredProviderFound", "No provider was found for this version."))]
#[case::of_no_name(Reply { status: 404, body: String::new() })]
#[tokio::test]
async fn a_change_without_a_report_ends_with_the_state_of_its_resource(#[case] refusal: Reply) {
    let world = World::new().await;
    world.fail("operation.get", Fault::Error(refusal), 9999);
    {
        let cloud = &mut world.arm.lock().cloud;
        (cloud.steps, cloud.steps_of_parts) = (6, 2);
    }
    for may_pause in [false, true] {
        let request = MachineRequest { may_pause, ..world.request("a") };
        let done = async {
            while let Err(error) = world.driver.create(&request).await {
                assert!(error.call_again_in.is_some(), "{error}");
            }
            let known = with_id(request.clone(), &id_of("a"));
            while let Err(error) = world.driver.delete(&known).await {
                assert!(error.call_again_in.is_some(), "{error}");
            }
        };
        timeout(2000 * MILLI, done).await.unwrap();
        assert_eq!(world.counts(), (0, 0, 0));
    }
    assert_eq!((world.calls("vm.put"), world.calls("vm.delete")), (2, 2));
}

/// A report that cannot be had for a moment is awaited, and a stock-out in it is not lost.
#[tokio::test]
async fn a_report_that_is_not_there_for_a_moment_is_awaited() {
    let world = World::new().await;
    world.fail("operation.get", Fault::Status(503), 9);
    let request = MachineRequest { may_pause: true, ..world.request("a") };
    let mut codes = Vec::new();
    while let Err(error) = world.driver.create(&request).await {
        codes.push(error.code);
    }
    assert!(codes.iter().all(|code| *code == Code::Unavailable), "{codes:?}");
    assert_eq!((world.count(), world.calls("vm.put")), (1, 1));
}

/// One resource provider throttles.
#[rstest]
#[case::orphans("graph.query")]
#[case::network("nic.get")]
#[tokio::test]
async fn a_service_that_throttles_holds_up_no_other_one(#[case] call: &'static str) {
    let world = World::new().await;
    world.driver.create(&world.request("b")).await.unwrap();
    let limits = HttpLimits { attempt: 20_000 * MILLI, call: 60_000 * MILLI, attempts: 1, pause: MILLI, slowest: 0.2 };
    let pace = PollTiming { first: 2 * MILLI, longest: 5 * MILLI, total: 5000 * MILLI };
    let driver = driver_of(limits, pace, unmeasured());
    let throttled = Arm::error(429, "RateLimiting", "Please provide below info when asking for support.");
    world.fail(call, Fault::Error(throttled), 1);
    let request = world.request("a");
    let known = with_id(world.request("b"), &id_of("b"));
    let throttled = async || match call {
        "graph.query" => driver.list(&request.class, &request.secret).await.map(drop),
        _ => driver.create(&request).await.map(drop),
    };
    assert_eq!(code(throttled().await), Code::Unavailable);
    for _ in 0..5 {
        timeout(1000 * MILLI, driver.status(&known)).await.unwrap().unwrap();
    }
    assert!(
        timeout(200 * MILLI, async { while throttled().await.is_ok() {} }).await.is_err(),
        "the service itself waits"
    );
}

/// Compute limits the calls about each VM, and those of the subscription.
#[rstest]
#[case::of_the_vm(&[("retry-after", "60"), ("x-ms-ratelimit-remaining-resource", "Microsoft.Compute/LowCostGetResource;0")], true)]
#[case::of_the_subscription(
    &[("retry-after", "60"), ("x-ms-ratelimit-remaining-resource", "Microsoft.Compute/LowCostGetSubscriptionMaximum;0")],
    false,
)]
#[tokio::test]
async fn a_vm_that_compute_throttles_holds_up_no_other_one(
    #[case] headers: &'static [(&'static str, &'static str)],
    #[case] others_go_on: bool,
) {
    let world = World::new().await;
    let known = ["a", "b"].map(|name| with_id(world.request(name), &id_of(name)));
    for request in &known {
        world.driver.create(request).await.unwrap();
    }
    let limits =
        HttpLimits { attempt: 20_000 * MILLI, call: 60_000 * MILLI, attempts: 1, pause: MILLI, slowest: 1000.0 };
    let driver = driver_of(limits, PollTiming { first: MILLI, longest: MILLI, total: 5000 * MILLI }, unmeasured());
    let refusal = Arm::error(429, "OperationNotAllowed", "The server rejected the request.");
    world.fail("vm.get", Fault::ErrorWith(refusal, headers), 1);
    let [a, b] = &known;
    assert_eq!(code(driver.status(a).await), Code::Unavailable);
    assert!(timeout(200 * MILLI, driver.status(a)).await.is_err(), "the VM itself waits");
    let patience = if others_go_on { 10_000 * MILLI } else { 200 * MILLI };
    assert_eq!(timeout(patience, driver.status(b)).await.is_ok(), others_go_on);
    let changes = async {
        driver.create(&world.request("c")).await.unwrap();
        driver.delete(b).await.unwrap();
    };
    assert_eq!(timeout(patience, changes).await.is_ok(), others_go_on);
}

#[tokio::test]
async fn nothing_else_is_read_while_a_part_is_made() {
    let world = World::new().await;
    world.arm.lock().cloud.steps_of_parts = 20;
    let image = ("properties.storageProfile.imageReference", json!({"urn": URN}));
    let request = MachineRequest { may_pause: true, ..world.request_for("a", "uid-a", spec_with(&[image])) };
    let mut pauses = 0;
    while let Err(error) = world.driver.create(&request).await {
        assert!(error.call_again_in.is_some(), "{error}");
        pauses += 1;
    }
    assert!(pauses > 10 && world.count() == 1, "{pauses} pauses");
    let reads = ["vm.get", "image.get", "terms.get"].map(|call| world.calls(call));
    assert_eq!(reads, [2; 3], "before the network interface and before the VM");
}
