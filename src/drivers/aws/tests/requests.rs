//! Requests of the driver, field by field.

use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    OWNER,
    fake::{Params, tags},
    request, request_for, secret, spec_with, start,
};
use mcm_driver::interface::Driver;

/// Parameters of the RunInstances for a class, without tags.
async fn sent(changes: &Value) -> Params {
    let (cloud, driver) = start().await;
    driver.create(&request_for("m", "uid-m", spec_with(changes))).await.unwrap();
    let mut params = cloud.lock().sent("RunInstances").remove(0);
    params.retain(|key, _| !key.starts_with("TagSpecification."));
    params
}

fn params(pairs: &[(&str, &str)]) -> Params {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

const PLAIN: [(&str, &str); 16] = [
    ("ClientToken", "uid-m"),
    ("ImageId", "ami-1"),
    ("InstanceType", "m5.large"),
    ("MinCount", "1"),
    ("MaxCount", "1"),
    ("UserData", "IyEvYmluL3NoCmVjaG8gaHVudGVyMi1odW50ZXIy"),
    ("IamInstanceProfile.Name", "node"),
    ("BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
    ("BlockDeviceMapping.1.Ebs.VolumeType", "gp3"),
    ("BlockDeviceMapping.1.Ebs.VolumeSize", "50"),
    ("BlockDeviceMapping.1.Ebs.Encrypted", "false"),
    ("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"),
    ("NetworkInterface.1.DeviceIndex", "0"),
    ("NetworkInterface.1.SubnetId", "subnet-1"),
    ("NetworkInterface.1.SecurityGroupId.1", "sg-1"),
    ("NetworkInterface.1.DeleteOnTermination", "true"),
];

fn plain() -> Params {
    params(&PLAIN)
}

#[tokio::test]
async fn a_plain_class_sends_this_and_nothing_else() {
    assert_eq!(sent(&json!({})).await, plain());
}

const NIC: &str = "NetworkInterface.1";
const DISK: &str = "BlockDeviceMapping.1.Ebs";

/// Parameters that differ from the request for the plain class: `more` are added or changed, `less` are absent.
#[rstest]
#[case::ami(json!({"ami": "ami-2"}), &[("ImageId", "ami-2")], &[])]
#[case::machine_type(json!({"machineType": "t3.small"}), &[("InstanceType", "t3.small")], &[])]
#[case::profile_by_arn(json!({"iam": {"arn": "arn:aws:iam::1:instance-profile/n"}}), &[("IamInstanceProfile.Arn", "arn:aws:iam::1:instance-profile/n")], &["IamInstanceProfile.Name"])]
#[case::key(json!({"keyName": "k"}), &[("KeyName", "k")], &[])]
#[case::empty_key(json!({"keyName": ""}), &[], &[])]
#[case::ignored(json!({"ebsOptimized": true, "monitoring": true}), &[], &[])]
#[case::reservation_preference(json!({"capacityReservation": {"capacityReservationPreference": "none"}}), &[("CapacityReservationSpecification.CapacityReservationPreference", "none")], &[])]
#[case::only_reservations(json!({"capacityReservation": {"capacityReservationPreference": "capacity-reservations-only"}}), &[("CapacityReservationSpecification.CapacityReservationPreference", "capacity-reservations-only")], &[])]
#[case::a_newer_market(json!({"instanceMarketOptions": {"marketType": "moon"}}), &[("InstanceMarketOptions.MarketType", "moon")], &[])]
#[case::reservation_id(json!({"capacityReservation": {"capacityReservationId": "cr-1"}}), &[("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId", "cr-1")], &[])]
#[case::reservation_group(json!({"capacityReservation": {"capacityReservationResourceGroupArn": "arn:g"}}), &[("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationResourceGroupArn", "arn:g")], &[])]
#[case::spot(json!({"spotPrice": ""}), &[("InstanceMarketOptions.MarketType", "spot"), ("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time")], &[])]
#[case::spot_price(json!({"spotPrice": "0.1"}), &[("InstanceMarketOptions.MarketType", "spot"), ("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time"), ("InstanceMarketOptions.SpotOptions.MaxPrice", "0.1")], &[])]
#[case::market(json!({"instanceMarketOptions": {"marketType": "capacity-block"}, "spotPrice": "0.1"}), &[("InstanceMarketOptions.MarketType", "capacity-block")], &[])]
#[case::interruptible(json!({"instanceMarketOptions": {"marketType": "interruptible-capacity-reservation"}}), &[("InstanceMarketOptions.MarketType", "interruptible-capacity-reservation")], &[])]
#[case::metadata(json!({"instanceMetadataOptions": {"httpEndpoint": "enabled", "httpTokens": "required", "httpProtocolIpv6": "disabled", "httpPutResponseHopLimit": 2}}), &[("MetadataOptions.HttpEndpoint", "enabled"), ("MetadataOptions.HttpTokens", "required"), ("MetadataOptions.HttpProtocolIpv6", "disabled"), ("MetadataOptions.HttpPutResponseHopLimit", "2")], &[])]
#[case::empty_metadata(json!({"instanceMetadataOptions": {"httpEndpoint": "", "httpTokens": "", "httpProtocolIpv6": ""}}), &[], &[])]
#[case::cpu(json!({"cpuOptions": {"coreCount": 2, "threadsPerCore": 1, "amdSevSnp": "enabled"}}), &[("CpuOptions.CoreCount", "2"), ("CpuOptions.ThreadsPerCore", "1"), ("CpuOptions.AmdSevSnp", "enabled")], &[])]
#[case::placement(json!({"placement": {"tenancy": "host", "hostId": "h-1", "groupId": "pg-1", "partitionNumber": 3, "affinity": "host"}}), &[("Placement.Tenancy", "host"), ("Placement.HostId", "h-1"), ("Placement.GroupId", "pg-1"), ("Placement.PartitionNumber", "3"), ("Placement.Affinity", "host")], &[])]
#[tokio::test]
async fn each_field_of_a_class_is_sent(#[case] changes: Value, #[case] more: &[(&str, &str)], #[case] less: &[&str]) {
    let mut expected = plain();
    expected.retain(|key, _| !less.contains(&key.as_str()));
    expected.extend(params(more));
    assert_eq!(sent(&changes).await, expected);
}

#[rstest]
#[case::iops(json!({"volumeType": "io1", "iops": 500}), &[("VolumeType", "io1"), ("Iops", "500")])]
#[case::io2(json!({"volumeType": "io2", "iops": 500}), &[("VolumeType", "io2"), ("Iops", "500")])]
#[case::no_iops(json!({"iops": 0}), &[])]
#[case::throughput(json!({"throughput": 250}), &[("Throughput", "250")])]
#[case::encrypted(json!({"encrypted": true}), &[("Encrypted", "true")])]
#[case::kept(json!({"deleteOnTermination": false}), &[("DeleteOnTermination", "false")])]
#[case::snapshot(json!({"snapshotID": "snap-1"}), &[("SnapshotId", "snap-1")])]
#[case::ignored(json!({"kmsKeyID": "k"}), &[])]
#[tokio::test]
async fn each_field_of_a_volume_is_sent(#[case] changes: Value, #[case] more: &[(&str, &str)]) {
    let mut ebs = json!({"volumeType": "gp3", "volumeSize": 50});
    ebs.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let mut expected = plain();
    expected.extend(more.iter().map(|(key, value)| (format!("{DISK}.{key}"), (*value).to_owned())));
    assert_eq!(sent(&json!({"blockDevices": [{"deviceName": "/dev/sda", "ebs": ebs}]})).await, expected);
}

#[tokio::test]
async fn the_root_device_has_the_name_of_the_image_and_others_their_own() {
    let ebs = json!({"volumeType": "gp3", "volumeSize": 1});
    let devices = json!([{"deviceName": "/dev/sdf", "ebs": ebs}, {"deviceName": "/root", "ebs": ebs, "noDevice": "x"}]);
    let sent = sent(&json!({"blockDevices": devices})).await;
    let name = |number: u8| sent[&format!("BlockDeviceMapping.{number}.DeviceName")].as_str();
    assert_eq!([name(1), name(2)], ["/dev/sdf", "/dev/xvda"]);
    assert!(!sent.keys().any(|key| key.contains("NoDevice") || key.contains("VirtualName")));
}

#[rstest]
#[case::public(json!({"associatePublicIPAddress": false}), &[("AssociatePublicIpAddress", "false")])]
#[case::description(json!({"description": "d"}), &[("Description", "d")])]
#[case::kept(json!({"deleteOnTermination": false}), &[("DeleteOnTermination", "false")])]
#[case::place(json!({"deviceIndex": 1, "networkCardIndex": 2}), &[("DeviceIndex", "1"), ("NetworkCardIndex", "2")])]
#[case::kind(json!({"interfaceType": "efa"}), &[("InterfaceType", "efa")])]
#[case::no_kind(json!({"interfaceType": ""}), &[])]
#[case::ipv6(json!({"ipv6AddressCount": 1}), &[("Ipv6AddressCount", "1"), ("PrimaryIpv6", "true")])]
#[case::not_primary(json!({"ipv6AddressCount": 1, "primaryIpv6": false}), &[("Ipv6AddressCount", "1"), ("PrimaryIpv6", "false")])]
#[case::primary_alone(json!({"primaryIpv6": true}), &[])]
#[case::prefixes_come_later(json!({"ipv6PrefixCount": 1}), &[])]
#[case::groups(json!({"securityGroupIDs": ["sg-1", "sg-2"]}), &[("SecurityGroupId.2", "sg-2")])]
#[tokio::test]
async fn each_field_of_a_network_interface_is_sent(#[case] changes: Value, #[case] more: &[(&str, &str)]) {
    let mut interface = json!({"subnetID": "subnet-1", "securityGroupIDs": ["sg-1"]});
    interface.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let mut expected = plain();
    expected.extend(more.iter().map(|(key, value)| (format!("{NIC}.{key}"), (*value).to_owned())));
    assert_eq!(sent(&json!({"networkInterfaces": [interface]})).await, expected);
}

#[tokio::test]
async fn further_interfaces_are_numbered_by_their_place() {
    let interface = json!({"subnetID": "subnet-1", "securityGroupIDs": ["sg-1"]});
    let sent = sent(&json!({"networkInterfaces": [interface, interface]})).await;
    assert_eq!(sent["NetworkInterface.2.DeviceIndex"], "1");
}

#[tokio::test]
async fn instance_volumes_and_interfaces_get_the_tags_and_the_name_of_the_machine() {
    let (cloud, driver) = start().await;
    let given = json!({"kubernetes.io/cluster/shoot": "1", "kubernetes.io/role/node": "1", "Name": "x", "team": "a"});
    driver.create(&request_for("m", "uid-m", spec_with(&json!({"tags": given})))).await.unwrap();
    let sent = cloud.lock().sent("RunInstances").remove(0);
    let kinds: Vec<&str> = (1..=3).map(|n| sent[&format!("TagSpecification.{n}.ResourceType")].as_str()).collect();
    assert_eq!(kinds, ["instance", "volume", "network-interface"]);
    let common: BTreeMap<String, String> =
        params(&[("kubernetes.io/cluster/shoot", "1"), ("kubernetes.io/role/node", "1"), ("Name", "m"), ("team", "a")]);
    assert_eq!((tags(&sent, 2), tags(&sent, 3)), (common.clone(), common.clone()));
    let mut of_instance = common;
    of_instance.insert("machine.sapcloud.io/machine-uid".to_owned(), "uid-m".to_owned());
    of_instance.insert("machine.sapcloud.io/owner".to_owned(), OWNER.to_owned());
    assert_eq!(tags(&sent, 1), of_instance);
}

#[rstest]
#[case::annotation(json!({}), r#"{"HostId": "h-1", "tenancy": "host", "GroupName": "g", "AvailabilityZone": "z", "SpreadDomain": "s", "HostResourceGroupArn": "a", "GroupId": "i", "Affinity": "host", "PartitionNumber": 2}"#, &[("HostId", "h-1"), ("Tenancy", "host"), ("GroupName", "g"), ("AvailabilityZone", "z"), ("SpreadDomain", "s"), ("HostResourceGroupArn", "a"), ("GroupId", "i"), ("Affinity", "host"), ("PartitionNumber", "2")])]
#[case::zone_id(json!({}), r#"{"AvailabilityZoneId": "euw1-az1"}"#, &[("AvailabilityZoneId", "euw1-az1")])]
#[case::class_first(json!({"placement": {"tenancy": "dedicated"}}), r#"{"HostId": "h-1"}"#, &[("Tenancy", "dedicated")])]
#[case::empty(json!({}), "", &[])]
#[case::nothing_in_it(json!({}), "{}", &[])]
#[tokio::test]
async fn the_annotation_of_a_machine_places_it(
    #[case] changes: Value,
    #[case] annotation: &str,
    #[case] expected: &[(&str, &str)],
) {
    let (cloud, driver) = start().await;
    let mut request = request_for("m", "uid-m", spec_with(&changes));
    let machine = std::sync::Arc::make_mut(&mut request.machine);
    machine.spec.node_template.metadata.annotations =
        [("machine.sapcloud.io/awsPlacement".to_owned(), annotation.to_owned())].into();
    driver.create(&request).await.unwrap();
    let mut sent = cloud.lock().sent("RunInstances").remove(0);
    sent.retain(|key, _| key.starts_with("Placement."));
    assert_eq!(sent, expected.iter().map(|(key, value)| (format!("Placement.{key}"), (*value).to_owned())).collect());
}

#[tokio::test]
async fn an_annotation_that_is_no_placement_is_refused() {
    let (cloud, driver) = start().await;
    let mut request = request("m");
    let machine = std::sync::Arc::make_mut(&mut request.machine);
    machine.spec.node_template.metadata.annotations =
        [("machine.sapcloud.io/awsPlacement".to_owned(), "{\"partitionNumber\": \"x\"}".to_owned())].into();
    let error = driver.create(&request).await.unwrap_err();
    assert_eq!(error.code.as_str(), "InvalidArgument");
    assert!(error.message.contains("awsPlacement.partitionNumber"), "{}", error.message);
    assert_eq!(cloud.lock().instances.len(), 0);
}

#[tokio::test]
async fn creation_looks_reads_the_image_runs_and_looks() {
    let (cloud, driver) = start().await;
    driver.create(&request("a")).await.unwrap();
    driver.create(&request("b")).await.unwrap();
    let actions: Vec<String> = cloud.lock().requests.iter().map(|(action, _)| action.clone()).collect();
    let first = ["DescribeInstances", "DescribeImages", "RunInstances", "DescribeInstances"];
    let second = ["DescribeInstances", "RunInstances", "DescribeInstances"];
    assert_eq!(actions, [&first[..], &second[..]].concat(), "the root device of an image is asked for once");
    assert_eq!(cloud.lock().sent("DescribeImages"), [params(&[("ImageId.1", "ami-1")])]);
    assert_eq!(cloud.lock().signers, BTreeSet::from(["AKIDEXAMPLE".to_owned()]));
    let look_up = params(&[
        ("Filter.1.Name", "tag:Name"),
        ("Filter.1.Value.1", "a"),
        ("Filter.2.Name", "tag-key"),
        ("Filter.2.Value.1", "kubernetes.io/cluster/shoot"),
        ("Filter.3.Name", "tag-key"),
        ("Filter.3.Value.1", "kubernetes.io/role/node"),
        ("MaxResults", "1000"),
    ]);
    assert_eq!(cloud.lock().sent("DescribeInstances").first(), Some(&look_up));
}

#[tokio::test]
async fn a_list_asks_for_existing_vms_with_both_markers() {
    let (cloud, driver) = start().await;
    let request = request("a");
    driver.list(&request.class, &secret()).await.unwrap();
    let expected = params(&[
        ("Filter.1.Name", "tag-key"),
        ("Filter.1.Value.1", "kubernetes.io/cluster/shoot"),
        ("Filter.2.Name", "tag-key"),
        ("Filter.2.Value.1", "kubernetes.io/role/node"),
        ("Filter.3.Name", "instance-state-name"),
        ("Filter.3.Value.1", "pending"),
        ("Filter.3.Value.2", "running"),
        ("Filter.3.Value.3", "stopping"),
        ("Filter.3.Value.4", "stopped"),
        ("MaxResults", "1000"),
    ]);
    assert_eq!(cloud.lock().sent("DescribeInstances"), [expected]);
}
