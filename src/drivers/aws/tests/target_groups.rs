//! Targets of load balancers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeAddress;
use rstest::rstest;

use super::{
    code,
    fake::{Fault, Params, Shared},
    flows::put,
    request, start, with_id,
};
use crate::AwsCloud;
use mcm_api::load_balancer::{InstanceGroup, LoadBalancer, TargetGroup};
use mcm_driver::{Code, Driver, DriverError, MachineRequest, cloud::CloudDriver};

pub(super) const ARN: &str = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/cp/1";

pub(super) fn group(arn: &str) -> LoadBalancer {
    LoadBalancer::AwsTargetGroup(TargetGroup { arn: arn.to_owned() })
}

/// The cloud has a target group with targets of a type.
pub(super) fn add_group(cloud: &Shared, type_: &str) {
    let member = format!("<member><TargetType>{type_}</TargetType></member>");
    let answers = [
        ("DescribeTargetGroups", format!("<R><TargetGroups>{member}</TargetGroups></R>")),
        ("RegisterTargets", "<R/>".to_owned()),
        ("DeregisterTargets", "<R/>".to_owned()),
    ];
    cloud.lock().answers.extend(answers);
}

/// A target group with targets of a type, and a machine with a VM.
async fn world(type_: &str) -> (Shared, CloudDriver<AwsCloud>, MachineRequest) {
    let (cloud, driver) = start().await;
    add_group(&cloud, type_);
    put(&cloud, "i-1", &[("Name", "a"), ("machine.sapcloud.io/machine-uid", "uid-a")], "running");
    let mut request = with_id(request("a"), "aws:///eu-west-1/i-1");
    let address = |type_: &str, address: &str| NodeAddress { type_: type_.to_owned(), address: address.to_owned() };
    Arc::make_mut(&mut request.machine).status.get_or_insert_default().addresses =
        vec![address("Hostname", "a"), address("InternalIP", "10.0.0.1"), address("ExternalIP", "192.0.2.1")];
    (cloud, driver, request)
}

#[rstest]
#[case::instances("instance", "i-1")]
#[case::addresses("ip", "10.0.0.1")]
#[tokio::test]
async fn a_target_is_an_instance_or_its_private_address(#[case] type_: &str, #[case] target: &str) {
    let (cloud, driver, request) = world(type_).await;
    driver.register(&request, &group(ARN)).await.unwrap();
    driver.deregister(&request, &group(ARN)).await.unwrap();
    for action in ["RegisterTargets", "DeregisterTargets"] {
        let sent = cloud.lock().sent(action);
        let sent: Vec<_> =
            sent.iter().map(|sent| (sent["TargetGroupArn"].clone(), sent["Targets.member.1.Id"].clone())).collect();
        assert_eq!(sent, [(ARN.to_owned(), target.to_owned())], "{action}");
    }
}

/// A network plugin gives a VM addresses of pods after its registration, and each may be the first in the status.
#[rstest]
#[case::that_are_ignored_if_they_are_no_targets(0, vec![vec!["10.0.9.7", "10.0.0.1"]])]
#[case::that_are_refused(1, vec![vec!["10.0.9.7", "10.0.0.1"], vec!["10.0.9.7"], vec!["10.0.0.1"]])]
#[tokio::test]
async fn the_first_address_of_a_vm_joins_a_group_and_all_leave_it(
    #[case] refusals: usize,
    #[case] left: Vec<Vec<&str>>,
) {
    let (cloud, driver, mut request) = world("ip").await;
    let address = NodeAddress { type_: "InternalIP".to_owned(), address: "10.0.9.7".to_owned() };
    Arc::make_mut(&mut request.machine).status.get_or_insert_default().addresses.insert(0, address);
    driver.register(&request, &group(ARN)).await.unwrap();
    cloud.lock().faults.push(("DeregisterTargets", Fault::Error("InvalidTarget", 400), refusals));
    driver.deregister(&request, &group(ARN)).await.unwrap();
    let targets = |action| {
        let sent = cloud.lock().sent(action);
        let all = |one: &Params| {
            let names = (1..).map(|number| format!("Targets.member.{number}.Id"));
            names.map_while(|name| one.get(&name).cloned()).collect::<Vec<_>>()
        };
        sent.iter().map(all).collect::<Vec<_>>()
    };
    assert_eq!(targets("RegisterTargets"), [["10.0.0.1"]]);
    assert_eq!(targets("DeregisterTargets"), left);
}

#[rstest]
#[case::of_functions("lambda", ARN, Code::InvalidArgument)]
#[case::of_another_region(
    "instance",
    "arn:aws:elasticloadbalancing:us-east-1:1:targetgroup/cp/1",
    Code::InvalidArgument
)]
#[tokio::test]
async fn a_group_that_cannot_have_the_vm_is_refused(#[case] type_: &str, #[case] arn: &str, #[case] expected: Code) {
    let (cloud, driver, request) = world(type_).await;
    assert_eq!(code(driver.register(&request, &group(arn)).await), expected);
    assert_eq!(code(driver.deregister(&request, &group(arn)).await), expected);
    assert!(cloud.lock().sent("RegisterTargets").is_empty());
}

#[tokio::test]
async fn a_load_balancer_of_another_cloud_is_not_served() {
    let (cloud, driver, request) = world("instance").await;
    let other = LoadBalancer::GcpInstanceGroups(vec![InstanceGroup::default()]);
    assert_eq!(code(driver.register(&request, &other).await), Code::Unimplemented);
    assert_eq!(code(driver.deregister(&request, &other).await), Code::Unimplemented);
    assert!(cloud.lock().requests.is_empty());
}

fn outcome(answer: Result<(), DriverError>) -> Option<Code> {
    answer.err().map(|error| error.code)
}

/// Only an error of AWS itself proves that the group is absent.
#[rstest]
#[case::no_group("DescribeTargetGroups", Fault::Error("TargetGroupNotFound", 400), Some(Code::NotFound))]
#[case::deleted_meanwhile("DeregisterTargets", Fault::Error("TargetGroupNotFound", 400), Some(Code::NotFound))]
#[case::no_target("DeregisterTargets", Fault::Error("InvalidTarget", 400), None)]
#[case::refused("DeregisterTargets", Fault::Error("AccessDenied", 403), Some(Code::PermissionDenied))]
#[case::proxy("DescribeTargetGroups", Fault::Status(404), Some(Code::Unknown))]
#[case::lost("DeregisterTargets", Fault::LostAnswer, Some(Code::Unknown))]
#[tokio::test]
async fn a_deregistration_ends_with_a_clear_answer(
    #[case] action: &'static str,
    #[case] fault: Fault,
    #[case] expected: Option<Code>,
) {
    let (cloud, driver, request) = world("instance").await;
    cloud.lock().faults.push((action, fault, 99));
    assert_eq!(outcome(driver.deregister(&request, &group(ARN)).await), expected);
}

/// AWS registers only VMs that run.
#[tokio::test]
async fn a_vm_that_does_not_run_yet_is_registered_later() {
    let (cloud, driver, request) = world("instance").await;
    cloud.lock().faults.push(("RegisterTargets", Fault::Error("InvalidTarget", 400), 1));
    assert_eq!(code(driver.register(&request, &group(ARN)).await), Code::FailedPrecondition);
    driver.register(&request, &group(ARN)).await.unwrap();
}
