//! The capacity of VMs, from a fake EC2.

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    class,
    fake::{Fault, Shared},
    secret, spec_with, start,
};
use mcm_driver::{
    Code,
    capacity::{GpuCapacity, VmCapacity},
    interface::Driver,
};

const TYPES: &str = "DescribeInstanceTypes";
const ARM: &str = "<item>arm64</item>";
/// EC2 shows both for types of Intel.
const INTEL: &str = "<item>i386</item><item>x86_64</item>";

fn answer(cloud: &Shared, architectures: &str, gpus: &str) {
    let item = format!(
        "<item><instanceType>m5.large</instanceType><vCpuInfo><defaultVCpus>2</defaultVCpus><defaultCores>1</defaultCores>\
         <defaultThreadsPerCore>2</defaultThreadsPerCore></vCpuInfo><memoryInfo><sizeInMiB>7680</sizeInMiB></memoryInfo>\
         <processorInfo><supportedArchitectures>{architectures}</supportedArchitectures></processorInfo>{gpus}</item>"
    );
    let subnet = "<item><subnetId>subnet-1</subnetId><vpcId>vpc-1</vpcId><availabilityZone>eu-west-1c</availabilityZone>\
                  <availableIpAddressCount>7</availableIpAddressCount></item>";
    let mut cloud = cloud.lock();
    cloud.answers.insert(TYPES, format!("<instanceTypeSet>{item}</instanceTypeSet>"));
    cloud.answers.insert("DescribeSubnets", format!("<subnetSet>{subnet}</subnetSet>"));
}

fn gpus(maker: &str) -> String {
    format!(
        "<gpuInfo><gpus><item><name>T4</name><manufacturer>{maker}</manufacturer><count>4</count></item></gpus></gpuInfo>"
    )
}

#[rstest]
#[case::plain(json!({}), INTEL, String::new(), 2, "amd64", GpuCapacity::NONE)]
#[case::arm(json!({}), ARM, String::new(), 2, "arm64", GpuCapacity::NONE)]
#[case::gpus(json!({}), INTEL, gpus("NVIDIA"), 2, "amd64", GpuCapacity { resource: Some("nvidia.com/gpu"), count: 4 })]
#[case::cores_of_the_class(
    json!({"cpuOptions": {"coreCount": 1, "threadsPerCore": 1}}), INTEL, String::new(), 1, "amd64", GpuCapacity::NONE
)]
#[tokio::test]
async fn a_vm_has_the_capacity_of_its_type_and_the_disk_of_its_class(
    #[case] changes: Value,
    #[case] architectures: &str,
    #[case] of_type: String,
    #[case] cpus: u64,
    #[case] architecture: &'static str,
    #[case] gpus: GpuCapacity,
) {
    let (cloud, driver) = start().await;
    answer(&cloud, architectures, &of_type);
    let capacity = driver.capacity(&class(spec_with(&changes)), &secret()).await.unwrap();
    let expected = VmCapacity {
        instance_type: "m5.large".to_owned(),
        region: "eu-west-1".to_owned(),
        zone: Some("eu-west-1c".to_owned()),
        cpus,
        memory_mib: 7680,
        gpus: Some(gpus),
        architecture: Some(architecture),
        disk_gib: Some(50),
    };
    assert_eq!(capacity, expected);
    assert_eq!(cloud.lock().sent(TYPES)[0]["Filter.1.Value.1"], "m5.large");
}

#[rstest]
#[case::absent(None, "<instanceTypeSet></instanceTypeSet>", Code::InvalidArgument)]
#[case::forbidden(Some(Fault::Error("UnauthorizedOperation", 403)), "", Code::PermissionDenied)]
#[case::without_memory(
    None,
    "<instanceTypeSet><item><vCpuInfo><defaultVCpus>2</defaultVCpus></vCpuInfo></item></instanceTypeSet>",
    Code::Internal
)]
#[tokio::test]
async fn a_type_that_cannot_be_read_has_no_capacity(
    #[case] fault: Option<Fault>,
    #[case] answer: &str,
    #[case] code: Code,
) {
    let (cloud, driver) = start().await;
    cloud.lock().answers.insert(TYPES, answer.to_owned());
    cloud.lock().faults.extend(fault.map(|fault| (TYPES, fault, 9)));
    let error = driver.capacity(&class(spec_with(&json!({}))), &secret()).await.unwrap_err();
    assert_eq!(error.code, code, "{error}");
    assert!(!error.message.contains("top-secret-key"));
}

/// A subnet that cannot be read hides the zone only.
#[tokio::test]
async fn the_zone_is_unknown_without_the_subnet() {
    let (cloud, driver) = start().await;
    answer(&cloud, INTEL, "");
    cloud.lock().faults = vec![("DescribeSubnets", Fault::Error("UnauthorizedOperation", 403), 9)];
    let capacity = driver.capacity(&class(spec_with(&json!({}))), &secret()).await.unwrap();
    assert_eq!((capacity.zone, capacity.cpus), (None, 2));
}

#[tokio::test]
async fn classes_with_one_key_have_one_capacity() {
    let (_, driver) = start().await;
    let key = |changes: &Value| driver.capacity_key(&class(spec_with(changes)));
    let first = key(&json!({})).unwrap();
    assert_eq!(key(&json!({"ami": "ami-2", "keyName": "other"})).as_ref(), Some(&first));
    for change in [
        json!({"machineType": "m5.xlarge"}),
        json!({"region": "eu-west-2"}),
        json!({"cpuOptions": {"coreCount": 1, "threadsPerCore": 1}}),
        json!({"blockDevices": [{"ebs": {"volumeType": "gp3", "volumeSize": 51}}]}),
        json!({"networkInterfaces": [{"subnetID": "subnet-2", "securityGroupIDs": ["sg-1"]}]}),
    ] {
        assert_ne!(key(&change).unwrap(), first, "{change}");
    }
    assert_eq!(key(&json!({"machineType": null})), None);
}
