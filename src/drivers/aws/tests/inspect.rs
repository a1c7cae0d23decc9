//! Findings of the driver about a class, from a fake EC2.

use rstest::rstest;
use serde_json::json;

use super::{
    class,
    fake::{Fault, Shared},
    secret, spec_with, start,
};
use mcm_driver::{
    Code, SecretData,
    inspection::{ResourceFinding, ResourcePresence},
    interface::Driver,
};

fn list(name: &str, items: &str) -> String {
    format!("<{name}>{items}</{name}>")
}

/// An account with all that the class needs.
pub(super) fn furnish(cloud: &Shared) {
    let answers = [
        (
            "GetCallerIdentity",
            "<GetCallerIdentityResult><Arn>arn:aws:iam::1:user/mcm</Arn></GetCallerIdentityResult>".to_owned(),
        ),
        (
            "DescribeImages",
            list(
                "imagesSet",
                "<item><imageState>available</imageState><architecture>x86_64</architecture><name>linux</name></item>",
            ),
        ),
        (
            "DescribeInstanceTypeOfferings",
            list(
                "instanceTypeOfferingSet",
                "<item><location>eu-west-1a</location></item><item><location>eu-west-1b</location></item>",
            ),
        ),
        ("DescribeSubnets", list("subnetSet", &subnet("eu-west-1a", 7))),
        (
            "DescribeSecurityGroups",
            list("securityGroupInfo", "<item><groupId>sg-1</groupId><vpcId>vpc-1</vpcId></item>"),
        ),
        ("DescribeKeyPairs", list("keySet", "<item><keyName>operators</keyName></item>")),
        ("GetInstanceProfile", String::new()),
    ];
    cloud.lock().answers = answers.into();
}

fn subnet(zone: &str, free: u32) -> String {
    format!(
        "<item><subnetId>subnet-1</subnetId><vpcId>vpc-1</vpcId><availabilityZone>{zone}</availabilityZone>\
         <availableIpAddressCount>{free}</availableIpAddressCount></item>"
    )
}

async fn inspect(driver: &dyn Driver, secret: &SecretData) -> Vec<ResourceFinding> {
    let class = class(spec_with(&json!({"keyName": "operators"})));
    driver.inspect(&class, secret).await.unwrap()
}

#[tokio::test]
async fn all_that_a_class_needs_is_looked_for_and_nothing_is_created() {
    let (cloud, driver) = start().await;
    furnish(&cloud);
    let findings = inspect(&driver, &secret()).await;
    assert!(findings.iter().all(|finding| finding.presence == ResourcePresence::Present), "{findings:#?}");
    let said: Vec<String> = findings.iter().map(|finding| format!("{}: {}", finding.path, finding.text)).collect();
    let expected = [
        "Secret: the credentials are those of arn:aws:iam::1:user/mcm",
        "providerSpec.ami: linux, x86_64",
        "providerSpec.machineType: offered in eu-west-1a, eu-west-1b",
        "providerSpec.networkInterfaces[0].subnetID: eu-west-1a, 7 free addresses",
        "providerSpec.networkInterfaces[0].securityGroupIDs: security group sg-1 exists",
        "providerSpec.keyName: the key pair exists",
        "providerSpec.iam.name: the instance profile exists",
        "providerSpec: EC2 would create a VM",
    ];
    assert_eq!(said, expected);
    let cloud = cloud.lock();
    assert!(cloud.instances.is_empty());
    assert!(cloud.sent("RunInstances").iter().all(|params| params["DryRun"] == "true"));
    let filters = |action: &str| cloud.sent(action)[0]["Filter.1.Value.1"].clone();
    let asked = ["DescribeSubnets", "DescribeSecurityGroups", "DescribeKeyPairs", "DescribeInstanceTypeOfferings"];
    assert_eq!(asked.map(filters), ["subnet-1", "sg-1", "operators", "m5.large"]);
    assert_eq!(cloud.sent("GetInstanceProfile")[0]["InstanceProfileName"], "node");
}

const IMAGE: &str = "providerSpec.ami";
const SUBNET: &str = "providerSpec.networkInterfaces[0].subnetID";
const GROUP: &str = "providerSpec.networkInterfaces[0].securityGroupIDs";

#[rstest]
#[case::image("DescribeImages", list("imagesSet", ""), IMAGE, "there is no image ami-1 in eu-west-1")]
#[case::image_in_the_making(
    "DescribeImages",
    list("imagesSet", "<item><imageState>pending</imageState></item>"),
    IMAGE,
    "image ami-1 is pending"
)]
#[case::machine_type(
    "DescribeInstanceTypeOfferings",
    list("instanceTypeOfferingSet", ""),
    "providerSpec.machineType",
    "eu-west-1 does not offer m5.large"
)]
#[case::subnet("DescribeSubnets", list("subnetSet", ""), SUBNET, "there is no subnet subnet-1")]
#[case::full_subnet("DescribeSubnets", list("subnetSet", &subnet("eu-west-1a", 0)), SUBNET, "subnet subnet-1 has no free address")]
#[case::zone_without_the_type("DescribeSubnets", list("subnetSet", &subnet("eu-west-1c", 7)), SUBNET, "subnet subnet-1 is in eu-west-1c, which does not offer m5.large")]
#[case::group("DescribeSecurityGroups", list("securityGroupInfo", ""), GROUP, "there is no security group sg-1")]
#[case::group_elsewhere(
    "DescribeSecurityGroups",
    list("securityGroupInfo", "<item><groupId>sg-1</groupId><vpcId>vpc-2</vpcId></item>"),
    GROUP,
    "security group sg-1 is of vpc-2, the subnet of vpc-1"
)]
#[case::key_pair("DescribeKeyPairs", list("keySet", ""), "providerSpec.keyName", "there is no key pair operators")]
#[tokio::test]
async fn what_is_missing_is_named_and_nothing_else(
    #[case] action: &'static str,
    #[case] answer: String,
    #[case] path: &str,
    #[case] text: &str,
) {
    let (cloud, driver) = start().await;
    furnish(&cloud);
    cloud.lock().answers.insert(action, answer);
    let mut findings = inspect(&driver, &secret()).await;
    findings.retain(|finding| finding.presence != ResourcePresence::Present);
    assert_eq!(findings, [ResourceFinding::missing(path, text)]);
}

#[rstest]
#[case::profile(
    "GetInstanceProfile",
    Fault::Error("NoSuchEntity", 404),
    "providerSpec.iam.name",
    ResourcePresence::Missing
)]
#[case::not_permitted(
    "GetInstanceProfile",
    Fault::Error("AccessDenied", 403),
    "providerSpec.iam.name",
    ResourcePresence::Unknown
)]
#[case::away("DescribeImages", Fault::Status(503), IMAGE, ResourcePresence::Unknown)]
#[case::no_xml("DescribeSecurityGroups", Fault::Malformed, GROUP, ResourcePresence::Unknown)]
#[case::may_not_create(
    "RunInstances",
    Fault::Error("UnauthorizedOperation", 403),
    "providerSpec",
    ResourcePresence::Unknown
)]
#[case::would_be_refused(
    "RunInstances",
    Fault::Error("InvalidParameterCombination", 400),
    "providerSpec",
    ResourcePresence::Missing
)]
#[tokio::test]
async fn a_call_that_fails_says_that_something_is_missing_only_if_that_is_certain(
    #[case] action: &'static str,
    #[case] fault: Fault,
    #[case] path: &str,
    #[case] presence: ResourcePresence,
) {
    let (cloud, driver) = start().await;
    furnish(&cloud);
    cloud.lock().faults = vec![(action, fault, 9)];
    let mut findings = inspect(&driver, &secret()).await;
    findings.retain(|finding| finding.path == path);
    assert_eq!(findings.iter().map(|finding| finding.presence).collect::<Vec<_>>(), [presence], "{findings:?}");
    assert!(!findings[0].text.contains("top-secret-key"));
}

#[tokio::test]
async fn with_wrong_credentials_nothing_else_is_asked() {
    let (cloud, driver) = start().await;
    furnish(&cloud);
    cloud.lock().faults = vec![("GetCallerIdentity", Fault::Error("InvalidClientTokenId", 403), 9)];
    let findings = inspect(&driver, &secret()).await;
    let only: Vec<_> = findings.iter().map(|finding| (finding.path.as_str(), finding.presence)).collect();
    assert_eq!(only, [("Secret", ResourcePresence::Missing)]);
    assert!(findings[0].text.starts_with(Code::Unauthenticated.as_str()), "{findings:?}");
    assert_eq!(cloud.lock().requests.len(), 1);
}

#[tokio::test]
async fn a_secret_without_user_data_is_named() {
    let (cloud, driver) = start().await;
    furnish(&cloud);
    let mut secret = secret();
    secret.0.remove("userData");
    let findings = inspect(&driver, &secret).await;
    let missing: Vec<_> = findings.iter().filter(|one| one.presence == ResourcePresence::Missing).collect();
    assert_eq!(missing.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["Secret"], "{missing:?}");
}
