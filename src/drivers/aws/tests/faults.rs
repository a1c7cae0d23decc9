//! Each call of EC2 fails in each way: which code, how many VMs, and whether the next attempt succeeds.

use std::time::{Duration, Instant};

use futures::future::join_all;
use rstest::rstest;
use serde_json::json;

use super::{
    code, driver, driver_that_waits, driver_within,
    fake::{Bucket, Fault, Shared},
    limits, request, request_for, spec_with, start, start_cloud, with_id,
};
use crate::AwsDriver;
use mcm_driver::{Code, DriverError, MachineRequest, cloud::HttpLimits, guard::DriverGuards, interface::Driver};

const THROTTLE: Fault = Fault::Error("RequestLimitExceeded", 503);
const STOCK_OUT: Fault = Fault::Error("InsufficientInstanceCapacity", 500);
const QUOTA: Fault = Fault::Error("VcpuLimitExceeded", 400);
const AUTH: Fault = Fault::Error("AuthFailure", 401);
const DENIED: Fault = Fault::Error("UnauthorizedOperation", 403);
const DOWN: Fault = Fault::Status(503);

/// The columns of the matrix: what each call fails with. The last column is the name of what was not found.
const FAULTS: [Fault; 9] =
    [Fault::LostAnswer, THROTTLE, DOWN, Fault::Timeout, Fault::Malformed, AUTH, DENIED, STOCK_OUT, QUOTA];
const COLUMNS: usize = FAULTS.len() + 1;

/// Code of the driver's error, `None` for a success, and the number of VMs afterwards.
type Outcome = (Option<Code>, usize);

/// The outcome of each column.
type Row = [Outcome; COLUMNS];

/// The usual outcomes of a call, with so many VMs after each, and those of a lost answer and of what was not found.
const fn row(vms: usize, lost: Outcome, not_found: Outcome) -> Row {
    [
        lost,
        (Some(Code::Unavailable), vms),
        (Some(Code::Unavailable), vms),
        (Some(Code::DeadlineExceeded), vms),
        (Some(Code::Unknown), vms),
        (Some(Code::Unauthenticated), vms),
        (Some(Code::PermissionDenied), vms),
        (Some(Code::ResourceExhausted), vms),
        (Some(Code::ResourceExhausted), vms),
        not_found,
    ]
}

/// The cells of a row: fault and outcome.
fn cells(not_found: &'static str, row: Row) -> impl Iterator<Item = (Fault, Outcome)> {
    FAULTS.into_iter().chain([Fault::Error(not_found, 400)]).zip(row)
}

/// A cloud, a driver for the call that fails, and one for what follows. Only where there is no answer does the first give up
/// soon: a slow machine is no fault.
async fn start_with(fault: Fault) -> (Shared, AwsDriver, AwsDriver) {
    let (cloud, url) = start_cloud().await;
    let first = match fault {
        Fault::Timeout => driver_that_waits(&url, Duration::from_millis(300)),
        _ => driver(&url),
    };
    (cloud, first, driver(&url))
}

async fn after(
    cloud: &Shared,
    action: &'static str,
    fault: Fault,
    call: impl Future<Output = Result<(), DriverError>>,
) -> Outcome {
    cloud.lock().faults.push((action, fault, 99));
    let error = call.await.err();
    cloud.lock().faults.clear();
    if let Some(error) = &error {
        for secret in ["AKIDEXAMPLE", "top-secret-key", "hunter2"] {
            assert!(!error.message.contains(secret), "{error}");
        }
        assert_eq!(error.message.matches('[').count(), error.message.matches(']').count(), "{error}");
    }
    (error.map(|error| error.code), cloud.lock().alive().len())
}

const IMAGE: &str = "InvalidAMIID.NotFound";
const SUBNET: &str = "InvalidSubnetID.NotFound";
const INSTANCE: &str = "InvalidInstanceID.NotFound";
const INTERFACE: &str = "InvalidNetworkInterfaceID.NotFound";
const UNKNOWN: Option<Code> = Some(Code::Unknown);

#[rstest]
#[case("RunInstances", SUBNET, row(0, (UNKNOWN, 1), (Some(Code::InvalidArgument), 0)))]
#[case("DescribeImages", IMAGE, row(0, (UNKNOWN, 0), (Some(Code::NotFound), 0)))]
#[case("DescribeInstances", INSTANCE, row(0, (UNKNOWN, 0), (UNKNOWN, 0)))]
#[tokio::test]
async fn a_creation_that_fails_says_why_and_the_next_leads_to_one_vm(
    #[case] action: &'static str,
    #[case] not_found: &'static str,
    #[case] row: Row,
) {
    join_all(cells(not_found, row).map(async |(fault, expected)| {
        let (cloud, failing, driver) = start_with(fault).await;
        let request = request("a");
        let call = async { failing.create(&request).await.map(drop) };
        assert_eq!(after(&cloud, action, fault, call).await, expected, "{action} {fault:?}");
        let vm = driver.create(&request).await.unwrap();
        assert_eq!(driver.status(&request).await.unwrap(), vm);
        assert_eq!(cloud.lock().instances.len(), 1, "{action} {fault:?}");
    }))
    .await;
}

#[tokio::test]
async fn a_page_that_is_not_of_ec2_says_nothing_about_a_vm() {
    let (cloud, driver) = start().await;
    let request = request("a");
    let call = async { driver.status(&request).await.map(drop) };
    assert_eq!(after(&cloud, "DescribeInstances", Fault::Status(404), call).await, (UNKNOWN, 0));
}

#[tokio::test]
async fn an_answer_without_a_list_is_not_an_empty_one() {
    let (cloud, driver) = start().await;
    cloud.lock().answers.insert("DescribeInstances", "<requestId>1</requestId>".to_owned());
    let request = request("a");
    assert_eq!(driver.status(&request).await.unwrap_err().code, Code::Unknown);
    assert_eq!(driver.list(&request.class, &request.secret).await.unwrap_err().code, Code::Unknown);
}

#[tokio::test]
async fn a_look_up_that_fails_never_says_that_there_is_no_vm() {
    join_all(cells(INSTANCE, row(1, (UNKNOWN, 1), (UNKNOWN, 1))).map(async |(fault, expected)| {
        let (cloud, failing, driver) = start_with(fault).await;
        let request = request("a");
        let vm = driver.create(&request).await.unwrap();
        let known = with_id(request.clone(), &vm.provider_id);
        for request in [&request, &known] {
            let status = async { failing.status(request).await.map(drop) };
            assert_eq!(after(&cloud, "DescribeInstances", fault, status).await, expected, "status {fault:?}");
            let delete = async { failing.delete(request).await.map(drop) };
            assert_eq!(after(&cloud, "DescribeInstances", fault, delete).await, expected, "delete {fault:?}");
        }
        let list = async { failing.list(&request.class, &request.secret).await.map(drop) };
        assert_eq!(after(&cloud, "DescribeInstances", fault, list).await, expected, "list {fault:?}");
        assert_eq!(driver.status(&request).await.unwrap(), vm);
    }))
    .await;
}

#[tokio::test]
async fn a_deletion_that_fails_says_why_and_the_next_succeeds() {
    // A VM that is gone is a success.
    let protected = (Fault::Error("OperationNotPermitted", 400), (Some(Code::FailedPrecondition), 1));
    join_all(cells(INSTANCE, row(1, (UNKNOWN, 0), (None, 1))).chain([protected]).map(async |(fault, expected)| {
        let (cloud, failing, driver) = start_with(fault).await;
        let request = request("a");
        driver.create(&request).await.unwrap();
        let call = async { failing.delete(&request).await.map(drop) };
        assert_eq!(after(&cloud, "TerminateInstances", fault, call).await, expected, "{fault:?}");
        driver.delete(&request).await.unwrap();
        assert_eq!(cloud.lock().alive().len(), 0, "{fault:?}");
    }))
    .await;
}

#[rstest]
#[case("DescribeInstances", INSTANCE)]
#[case("ModifyNetworkInterfaceAttribute", INTERFACE)]
#[case("AssignIpv6Addresses", INTERFACE)]
#[tokio::test]
async fn an_initialization_that_fails_is_completed_by_the_next(
    #[case] action: &'static str,
    #[case] not_found: &'static str,
) {
    join_all(cells(not_found, [(Some(Code::Uninitialized), 1); COLUMNS]).map(async |(fault, expected)| {
        let (cloud, failing, driver) = start_with(fault).await;
        let interface = json!({"subnetID": "s", "securityGroupIDs": ["sg-1"], "ipv6PrefixCount": 1});
        let spec = spec_with(&json!({"srcAndDstChecksEnabled": false, "networkInterfaces": [interface]}));
        let request = request_for("a", "uid-a", spec);
        driver.create(&request).await.unwrap();
        let call = async { failing.initialize(&request).await.map(drop) };
        assert_eq!(after(&cloud, action, fault, call).await, expected, "{action} {fault:?}");
        driver.initialize(&request).await.unwrap();
        driver.status(&request).await.unwrap();
    }))
    .await;
}

/// Only a deletion knows what to do with two VMs of a machine.
#[tokio::test]
async fn each_call_has_its_answer_to_two_vms() {
    let (cloud, driver) = start().await;
    let spec = spec_with(&json!({"srcAndDstChecksEnabled": false}));
    let request = request_for("a", "uid-a", spec);
    driver.create(&request).await.unwrap();
    {
        let mut cloud = cloud.lock();
        let (id, mut other) = cloud.instances.pop_first().unwrap();
        cloud.instances.insert(id, other.clone());
        other.id = "i-other".to_owned();
        cloud.instances.insert(other.id.clone(), other);
    }
    let count = || cloud.lock().alive().len();
    assert_eq!((code(driver.create(&request).await), count()), (Code::OutOfRange, 2));
    assert_eq!((code(driver.status(&request).await), count()), (Code::OutOfRange, 2));
    assert_eq!((code(driver.initialize(&request).await), count()), (Code::Uninitialized, 2));
    assert_eq!(driver.list(&request.class, &request.secret).await.unwrap().len(), 2);
    driver.delete(&request).await.unwrap();
    assert_eq!(count(), 0);
}

#[tokio::test]
async fn a_vm_that_is_gone_when_it_is_terminated_is_a_success() {
    let (cloud, driver) = start().await;
    driver.create(&request("a")).await.unwrap();
    cloud.lock().faults.push(("TerminateInstances", Fault::Error("InvalidInstanceID.NotFound", 400), 1));
    driver.delete(&request("a")).await.unwrap();
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

/// Repeats a creation as the controller does, until it succeeds.
async fn create(driver: &AwsDriver, request: &MachineRequest) -> String {
    loop {
        match driver.create(request).await {
            Ok(vm) => return vm.provider_id,
            Err(error) => assert!(error.code.is_transient(), "{error}"),
        }
    }
}

#[tokio::test]
async fn five_hundred_machines_get_five_hundred_vms_although_every_tenth_answer_is_lost() {
    let (cloud, driver) = start().await;
    cloud.lock().lost_every = Some(10);
    let requests: Vec<MachineRequest> = (0..500).map(|number| request(&format!("m-{number}"))).collect();
    let mut ids = join_all(requests.iter().map(|request| create(&driver, request))).await;
    ids.sort();
    ids.dedup();
    let cloud = cloud.lock();
    assert_eq!((ids.len(), cloud.instances.len()), (500, 500));
    assert!(cloud.runs > 500, "answers were lost");
    let look_ups = cloud.sent("DescribeInstances").len();
    assert!(look_ups < 500, "{look_ups} look-ups for 500 machines");
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
    join_all(requests.iter().map(|request| create(&driver, request))).await;
    let cloud = cloud.lock();
    assert_eq!(cloud.instances.len(), MACHINES);
    assert!(cloud.runs * 2 <= MACHINES * 5, "{} calls for {MACHINES} VMs", cloud.runs);
}
