//! Each call of EC2 fails in each way: which code, how many VMs, and whether the next attempt succeeds.

use std::time::{Duration, Instant};

use futures::future::join_all;
use rstest::rstest;
use serde_json::json;

use super::{
    driver_within,
    fake::{Bucket, Fault},
    limits, request, request_for, spec_with, start, start_cloud,
    suite::World,
};
use mcm_driver::{
    Code, MachineRequest,
    cloud::HttpLimits,
    guard::DriverGuards,
    interface::Driver,
    testing::{
        code,
        matrix::{self, CASES, Case, During, Outcome, Row, UNKNOWN, fault_of, look_up, usual},
        suite::{World as _, created},
    },
};

const THROTTLE: Fault = Fault::Error("RequestLimitExceeded", 503);
const DOWN: Fault = Fault::Status(503);

#[rstest]
#[case(During::Create, "RunInstances", usual(0, (UNKNOWN, 1), (Some(Code::InvalidArgument), 0)))]
#[case(During::Create, "DescribeImages", usual(0, (UNKNOWN, 0), (Some(Code::NotFound), 0)))]
#[case(During::Create, "DescribeInstances", look_up(0))]
#[case(During::Status, "DescribeInstances", look_up(1))]
#[case(During::StatusById, "DescribeInstances", look_up(1))]
#[case(During::List, "DescribeInstances", look_up(1))]
#[case(During::Delete, "DescribeInstances", look_up(1))]
#[case(During::DeleteById, "DescribeInstances", look_up(1))]
#[case(During::Delete, "TerminateInstances", usual(1, (UNKNOWN, 0), (None, 1)))]
#[case(During::DeleteById, "TerminateInstances", usual(1, (UNKNOWN, 0), (None, 1)))]
#[tokio::test]
async fn a_call_that_fails_has_its_code_and_the_next_attempt_succeeds(
    #[case] during: During,
    #[case] call: &'static str,
    #[case] outcomes: [Outcome; 10],
) {
    matrix::check::<World>(&Row { during, call, outcomes }).await;
}

#[tokio::test]
async fn a_protected_vm_is_not_deleted() {
    let (cloud, driver) = start().await;
    driver.create(&request("a")).await.unwrap();
    cloud.lock().faults.push(("TerminateInstances", Fault::Error("OperationNotPermitted", 400), 99));
    assert_eq!(code(driver.delete(&request("a")).await), Code::FailedPrecondition);
    cloud.lock().faults.clear();
    driver.delete(&request("a")).await.unwrap();
    assert_eq!(cloud.lock().alive().len(), 0);
}

#[tokio::test]
async fn an_answer_without_a_list_is_not_an_empty_one() {
    let (cloud, driver) = start().await;
    cloud.lock().answers.insert("DescribeInstances", "<requestId>1</requestId>".to_owned());
    let request = request("a");
    assert_eq!(driver.status(&request).await.unwrap_err().code, Code::Unknown);
    assert_eq!(driver.list(&request.class, &request.secret).await.unwrap_err().code, Code::Unknown);
}

#[rstest]
#[case("DescribeInstances")]
#[case("ModifyNetworkInterfaceAttribute")]
#[case("AssignIpv6Addresses")]
#[tokio::test]
async fn an_initialization_that_fails_is_completed_by_the_next(#[case] action: &'static str) {
    join_all(CASES.map(async |case| {
        let world = World::new().await;
        let (failing, driver) = (world.driver_with(Duration::from_millis(300), Duration::ZERO), world.patient());
        let interface = json!({"subnetID": "s", "securityGroupIDs": ["sg-1"], "ipv6PrefixCount": 1});
        let spec = spec_with(&json!({"srcAndDstChecksEnabled": false, "networkInterfaces": [interface]}));
        let request = request_for("a", "uid-a", spec);
        driver.create(&request).await.unwrap();
        world.switch().fail(action, fault_of::<World>(case), 99);
        let failing = if case == Case::TimeOut { &failing } else { &driver };
        assert_eq!(code(failing.initialize(&request).await), Code::Uninitialized, "{action} {case:?}");
        world.switch().clear();
        driver.initialize(&request).await.unwrap();
        driver.status(&request).await.unwrap();
    }))
    .await;
}

#[tokio::test]
async fn one_failure_is_forgiven_within_the_call() {
    let (cloud, driver) = start().await;
    for fault in [Fault::LostAnswer, THROTTLE, DOWN] {
        cloud.lock().faults.push(("RunInstances", fault, 1));
        let name = format!("m-{fault:?}").to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        driver.create(&request(&name)).await.unwrap();
    }
    assert_eq!(cloud.lock().instances.len(), 3);
}

/// Other users of the account need the requests that we would waste.
#[tokio::test]
async fn throttled_creations_waste_few_calls() {
    const MACHINES: usize = 40;
    let (cloud, url) = start_cloud().await;
    let limits = HttpLimits { slowest: HttpLimits::default().slowest, ..limits(Duration::from_secs(20)) };
    let driver = driver_within(&url, limits, DriverGuards::unobserved().observer);
    cloud.lock().bucket = Some(Bucket { most: 5.0, per_second: 5.0, tokens: 5.0, filled: Instant::now() });
    let requests: Vec<MachineRequest> = (0..MACHINES).map(|number| request(&format!("m-{number}"))).collect();
    join_all(requests.iter().map(|request| created(&driver, request))).await;
    let cloud = cloud.lock();
    assert_eq!(cloud.instances.len(), MACHINES);
    assert!(cloud.runs * 2 <= MACHINES * 5, "{} calls for {MACHINES} VMs", cloud.runs);
}
