//! Each call of EC2 fails in each way: which code, how many VMs, and whether the next attempt succeeds.

use std::time::Duration;

use futures::future::join_all;
use rstest::rstest;
use serde_json::json;

use super::{
    driver, driver_that_waits,
    fake::{Fault, Shared},
    request, request_for, spec_with, start, start_cloud,
};
use crate::driver::{Code, DriverError, MachineRequest, aws::AwsDriver, interface::Driver};

const THROTTLE: Fault = Fault::Error("RequestLimitExceeded", 503);
const STOCK_OUT: Fault = Fault::Error("InsufficientInstanceCapacity", 500);
const QUOTA: Fault = Fault::Error("VcpuLimitExceeded", 400);
const AUTH: Fault = Fault::Error("AuthFailure", 401);
const DENIED: Fault = Fault::Error("UnauthorizedOperation", 403);
const NOT_FOUND: Fault = Fault::Error("InvalidSubnetID.NotFound", 400);
const DOWN: Fault = Fault::Status(503);

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

/// A code as the call fails with it, and how many VMs there are after it.
type Outcome = (Code, usize);

async fn after(
    cloud: &Shared,
    action: &'static str,
    fault: Fault,
    call: impl Future<Output = Result<(), DriverError>>,
) -> Outcome {
    cloud.lock().faults.push((action, fault, 99));
    let error = call.await.unwrap_err();
    cloud.lock().faults.clear();
    for secret in ["AKIDEXAMPLE", "top-secret-key", "hunter2"] {
        assert!(!error.message.contains(secret), "{error}");
    }
    assert_eq!(error.message.matches('[').count(), error.message.matches(']').count(), "{error}");
    (error.code, cloud.lock().alive().len())
}

#[rstest]
#[case("RunInstances", Fault::LostAnswer, (Code::Unknown, 1))]
#[case("RunInstances", Fault::Timeout, (Code::DeadlineExceeded, 0))]
#[case("RunInstances", Fault::Malformed, (Code::Unknown, 0))]
#[case("RunInstances", THROTTLE, (Code::Unavailable, 0))]
#[case("RunInstances", DOWN, (Code::Unavailable, 0))]
#[case("RunInstances", AUTH, (Code::Unauthenticated, 0))]
#[case("RunInstances", DENIED, (Code::PermissionDenied, 0))]
#[case("RunInstances", STOCK_OUT, (Code::ResourceExhausted, 0))]
#[case("RunInstances", QUOTA, (Code::ResourceExhausted, 0))]
#[case("RunInstances", NOT_FOUND, (Code::InvalidArgument, 0))]
#[case("DescribeImages", Fault::LostAnswer, (Code::Unknown, 0))]
#[case("DescribeImages", Fault::Timeout, (Code::DeadlineExceeded, 0))]
#[case("DescribeImages", Fault::Malformed, (Code::Unknown, 0))]
#[case("DescribeImages", THROTTLE, (Code::Unavailable, 0))]
#[case("DescribeImages", DOWN, (Code::Unavailable, 0))]
#[case("DescribeImages", AUTH, (Code::Unauthenticated, 0))]
#[case("DescribeImages", DENIED, (Code::PermissionDenied, 0))]
#[case("DescribeInstances", Fault::LostAnswer, (Code::Unknown, 0))]
#[case("DescribeInstances", Fault::Timeout, (Code::DeadlineExceeded, 0))]
#[case("DescribeInstances", Fault::Malformed, (Code::Unknown, 0))]
#[case("DescribeInstances", THROTTLE, (Code::Unavailable, 0))]
#[case("DescribeInstances", DOWN, (Code::Unavailable, 0))]
#[case("DescribeInstances", AUTH, (Code::Unauthenticated, 0))]
#[case("DescribeInstances", DENIED, (Code::PermissionDenied, 0))]
#[case::of_a_proxy("DescribeInstances", Fault::Status(404), (Code::Unknown, 0))]
#[tokio::test]
async fn a_creation_that_fails_says_why_and_the_next_leads_to_one_vm(
    #[case] action: &'static str,
    #[case] fault: Fault,
    #[case] expected: Outcome,
) {
    let (cloud, failing, driver) = start_with(fault).await;
    let request = request("a");
    let call = async { failing.create(&request).await.map(drop) };
    assert_eq!(after(&cloud, action, fault, call).await, expected);
    let vm = driver.create(&request).await.unwrap();
    assert_eq!(driver.status(&request).await.unwrap(), vm);
    assert_eq!(cloud.lock().instances.len(), 1);
}

#[rstest]
#[case(Fault::LostAnswer, Code::Unknown)]
#[case(Fault::Timeout, Code::DeadlineExceeded)]
#[case(Fault::Malformed, Code::Unknown)]
#[case(THROTTLE, Code::Unavailable)]
#[case(DOWN, Code::Unavailable)]
#[case(AUTH, Code::Unauthenticated)]
#[case(DENIED, Code::PermissionDenied)]
#[tokio::test]
async fn a_look_up_that_fails_never_says_that_there_is_no_vm(#[case] fault: Fault, #[case] expected: Code) {
    let (cloud, failing, driver) = start_with(fault).await;
    let request = request("a");
    let vm = driver.create(&request).await.unwrap();
    let status = async { failing.status(&request).await.map(drop) };
    assert_eq!(after(&cloud, "DescribeInstances", fault, status).await, (expected, 1));
    let list = async { failing.list(&request.class, &request.secret).await.map(drop) };
    assert_eq!(after(&cloud, "DescribeInstances", fault, list).await, (expected, 1));
    let delete = async { failing.delete(&request).await.map(drop) };
    assert_eq!(after(&cloud, "DescribeInstances", fault, delete).await, (expected, 1));
    assert_eq!(driver.status(&request).await.unwrap(), vm);
}

#[rstest]
#[case(Fault::LostAnswer, (Code::Unknown, 0))]
#[case(Fault::Timeout, (Code::DeadlineExceeded, 1))]
#[case(Fault::Malformed, (Code::Unknown, 1))]
#[case(THROTTLE, (Code::Unavailable, 1))]
#[case(DOWN, (Code::Unavailable, 1))]
#[case(AUTH, (Code::Unauthenticated, 1))]
#[case(DENIED, (Code::PermissionDenied, 1))]
#[case::protected(Fault::Error("OperationNotPermitted", 400), (Code::FailedPrecondition, 1))]
#[tokio::test]
async fn a_deletion_that_fails_says_why_and_the_next_succeeds(#[case] fault: Fault, #[case] expected: Outcome) {
    let (cloud, failing, driver) = start_with(fault).await;
    let request = request("a");
    driver.create(&request).await.unwrap();
    let call = async { failing.delete(&request).await.map(drop) };
    assert_eq!(after(&cloud, "TerminateInstances", fault, call).await, expected);
    driver.delete(&request).await.unwrap();
    assert_eq!(cloud.lock().alive().len(), 0);
}

#[tokio::test]
async fn a_vm_that_is_gone_when_it_is_terminated_is_a_success() {
    let (cloud, driver) = start().await;
    driver.create(&request("a")).await.unwrap();
    cloud.lock().faults.push(("TerminateInstances", Fault::Error("InvalidInstanceID.NotFound", 400), 1));
    driver.delete(&request("a")).await.unwrap();
}

#[rstest]
#[case("ModifyNetworkInterfaceAttribute", Fault::LostAnswer)]
#[case("ModifyNetworkInterfaceAttribute", THROTTLE)]
#[case("AssignIpv6Addresses", Fault::LostAnswer)]
#[case("AssignIpv6Addresses", DOWN)]
#[case("AssignIpv6Addresses", NOT_FOUND)]
#[tokio::test]
async fn an_initialization_that_fails_is_completed_by_the_next(#[case] action: &'static str, #[case] fault: Fault) {
    let (cloud, driver) = start().await;
    let interface = json!({"subnetID": "s", "securityGroupIDs": ["sg"], "ipv6PrefixCount": 1});
    let spec = spec_with(&json!({"srcAndDstChecksEnabled": false, "networkInterfaces": [interface]}));
    let request = request_for("a", "uid-a", spec);
    driver.create(&request).await.unwrap();
    // The SDK repeats what has no answer, so one failure more than it has attempts.
    let call = async { driver.initialize(&request).await.map(drop) };
    assert_eq!(after(&cloud, action, fault, call).await, (Code::Uninitialized, 1));
    driver.initialize(&request).await.unwrap();
    driver.status(&request).await.unwrap();
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
