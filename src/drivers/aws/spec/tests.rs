//! Valid and invalid classes, with the problems that are reported.

use rstest::rstest;
use serde_json::{Value, json};

use super::{Placement, Spec, placement_of_annotation};
use mcm_driver::spec::ClassProblems;

fn spec() -> Value {
    json!({
        "apiVersion": "mcm.gardener.cloud/v1alpha1",
        "ami": "ami-1", "region": "eu-west-1", "machineType": "m5.large", "iam": {"name": "node"},
        "blockDevices": [{"ebs": {"volumeType": "gp3", "volumeSize": 50}}],
        "networkInterfaces": [{"subnetID": "subnet-1", "securityGroupIDs": ["sg-1"]}],
        "tags": {"kubernetes.io/cluster/shoot": "1", "kubernetes.io/role/node": "1"},
    })
}

/// Sets a value by its JSON pointer; `null` removes it.
fn changed(pointer: &str, value: Value) -> Value {
    let mut spec = spec();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = spec.pointer_mut(parent).unwrap();
    match (parent, value) {
        (Value::Object(object), Value::Null) => drop(object.remove(key)),
        (Value::Object(object), value) => drop(object.insert(key.to_owned(), value)),
        (parent, value) => parent[key.parse::<usize>().unwrap()] = value,
    }
    spec
}

fn problems(value: &Value) -> ClassProblems {
    let mut problems = ClassProblems::default();
    Spec::read(value, &mut problems);
    problems
}

fn texts(value: &Value) -> (Vec<String>, Vec<String>) {
    let ClassProblems { errors, warnings, .. } = problems(value);
    let texts = |all: Vec<_>| all.iter().map(ToString::to_string).collect();
    (texts(errors), texts(warnings))
}

#[test]
fn a_class_with_what_is_required_is_valid() {
    assert_eq!(problems(&spec()), ClassProblems::default());
}

#[rstest]
#[case::ami("/ami", Value::Null, "providerSpec.ami: expected a non-empty string, found nothing")]
#[case::ami_is_a_number("/ami", json!(7), "providerSpec.ami: expected a non-empty string, found the number 7")]
#[case::region("/region", json!(""), "providerSpec.region: expected a non-empty string, found an empty string")]
#[case::region_leads_elsewhere("/region", json!("example.com/"), r#"providerSpec.region: expected letters, digits and hyphens, found the string "example.com/""#)]
#[case::machine_type(
    "/machineType",
    Value::Null,
    "providerSpec.machineType: expected a non-empty string, found nothing"
)]
#[case::no_profile("/iam", Value::Null, "providerSpec.iam: expected name or arn, found neither")]
#[case::empty_profile("/iam", json!({"name": ""}), "providerSpec.iam: expected name or arn, found neither")]
#[case::two_profiles("/iam/arn", json!("arn"), "providerSpec.iam: expected either name or arn, found both")]
#[case::no_devices("/blockDevices", json!([]), "providerSpec.blockDevices: expected at least one block device, found none")]
#[case::no_ebs(
    "/blockDevices/0/ebs",
    Value::Null,
    "providerSpec.blockDevices[0].ebs: expected an object, found nothing"
)]
#[case::volume_size("/blockDevices/0/ebs/volumeSize", json!(0), "providerSpec.blockDevices[0].ebs.volumeSize: expected a whole number of at least 1, found the number 0")]
#[case::iops("/blockDevices/0/ebs/iops", json!(-1), "providerSpec.blockDevices[0].ebs.iops: expected a whole number of at least 0, found the number -1")]
#[case::iops_of_io1("/blockDevices/0/ebs/volumeType", json!("io1"), "providerSpec.blockDevices[0].ebs.iops: expected more than 0 for volumeType io1, found nothing")]
#[case::throughput("/blockDevices/0/ebs/throughput", json!(0), "providerSpec.blockDevices[0].ebs.throughput: expected a whole number of at least 1, found the number 0")]
#[case::encrypted("/blockDevices/0/ebs/encrypted", json!("yes"), r#"providerSpec.blockDevices[0].ebs.encrypted: expected true or false, found the string "yes""#)]
#[case::reservations("/capacityReservation", json!({"capacityReservationId": "a", "capacityReservationResourceGroupArn": "b"}), "providerSpec.capacityReservation: expected either capacityReservationId or capacityReservationResourceGroupArn, found both")]
#[case::preference_and_id("/capacityReservation", json!({"capacityReservationId": "a", "capacityReservationPreference": "open"}), "providerSpec.capacityReservation: expected either capacityReservationPreference or a reservation, found both")]
#[case::no_interfaces("/networkInterfaces", json!([]), "providerSpec.networkInterfaces: expected at least one network interface, found none")]
#[case::subnet(
    "/networkInterfaces/0/subnetID",
    Value::Null,
    "providerSpec.networkInterfaces[0].subnetID: expected a non-empty string, found nothing"
)]
#[case::no_groups("/networkInterfaces/0/securityGroupIDs", json!([]), "providerSpec.networkInterfaces[0].securityGroupIDs: expected at least one security group, found none")]
#[case::blank_group("/networkInterfaces/0/securityGroupIDs", json!(["sg-1", " "]), r#"providerSpec.networkInterfaces[0].securityGroupIDs[1]: expected a string that is not blank, found the string " ""#)]
#[case::device_index("/networkInterfaces/0/deviceIndex", json!(-1), "providerSpec.networkInterfaces[0].deviceIndex: expected a whole number of at least 0, found the number -1")]
#[case::network_card("/networkInterfaces/0/networkCardIndex", json!(-1), "providerSpec.networkInterfaces[0].networkCardIndex: expected a whole number of at least 0, found the number -1")]
#[case::no_market("/instanceMarketOptions", json!({}), "providerSpec.instanceMarketOptions.marketType: expected one of spot, capacity-block, interruptible-capacity-reservation, found nothing")]
#[case::spot_price("/spotPrice", json!(0.5), "providerSpec.spotPrice: expected a string, found a fractional number")]
#[case::checks("/srcAndDstChecksEnabled", json!("no"), r#"providerSpec.srcAndDstChecksEnabled: expected true or false, found the string "no""#)]
#[case::cluster(
    "/tags/kubernetes.io~1cluster~1shoot",
    Value::Null,
    "providerSpec.tags: expected a key that contains kubernetes.io/cluster/, found none"
)]
#[case::role(
    "/tags/kubernetes.io~1role~1node",
    Value::Null,
    "providerSpec.tags: expected a key that contains kubernetes.io/role/, found none"
)]
#[case::tag("/tags/x", json!(1), "providerSpec.tags.x: expected a string, found the number 1")]
#[case::hops("/instanceMetadataOptions", json!({"httpPutResponseHopLimit": 65}), "providerSpec.instanceMetadataOptions.httpPutResponseHopLimit: expected a whole number from 0 to 64, found the number 65")]
#[case::cores_alone("/cpuOptions", json!({"coreCount": 2}), "providerSpec.cpuOptions: expected both coreCount and threadsPerCore, or neither, found one")]
#[case::threads("/cpuOptions", json!({"coreCount": 2, "threadsPerCore": 3}), "providerSpec.cpuOptions.threadsPerCore: expected a whole number from 1 to 2, found the number 3")]
#[case::host("/placement", json!({"hostId": "h-1", "tenancy": "dedicated"}), "providerSpec.placement.hostId: needs tenancy host")]
#[case::partition("/placement", json!({"partitionNumber": 0}), "providerSpec.placement.partitionNumber: expected a whole number of at least 1, found the number 0")]
fn a_wrong_field_is_told_with_its_path(#[case] pointer: &str, #[case] value: Value, #[case] expected: &str) {
    let spec = if pointer.contains('~') {
        let mut spec = spec();
        let key = pointer.trim_start_matches("/tags/").replace("~1", "/");
        spec["tags"].as_object_mut().unwrap().remove(&key).unwrap();
        spec
    } else {
        changed(pointer, value)
    };
    let (errors, _) = texts(&spec);
    assert_eq!(errors.first().map(String::as_str), Some(expected), "{errors:?}");
}

/// A cloud has values that are newer than this program.
#[rstest]
#[case("/blockDevices/0/ebs/volumeType", json!("gp4"), "providerSpec.blockDevices[0].ebs.volumeType", "gp4")]
#[case("/networkInterfaces/0/interfaceType", json!("ena"), "providerSpec.networkInterfaces[0].interfaceType", "ena")]
#[case("/capacityReservation", json!({"capacityReservationPreference": "maybe"}), "providerSpec.capacityReservation.capacityReservationPreference", "maybe")]
#[case("/instanceMarketOptions", json!({"marketType": "on-demand"}), "providerSpec.instanceMarketOptions.marketType", "on-demand")]
#[case("/instanceMetadataOptions", json!({"httpEndpoint": "on"}), "providerSpec.instanceMetadataOptions.httpEndpoint", "on")]
#[case("/instanceMetadataOptions", json!({"httpTokens": "on"}), "providerSpec.instanceMetadataOptions.httpTokens", "on")]
#[case("/instanceMetadataOptions", json!({"httpProtocolIpv6": "on"}), "providerSpec.instanceMetadataOptions.httpProtocolIpv6", "on")]
#[case("/cpuOptions", json!({"amdSevSnp": "x"}), "providerSpec.cpuOptions.amdSevSnp", "x")]
#[case("/placement", json!({"tenancy": "x"}), "providerSpec.placement.tenancy", "x")]
#[case("/placement", json!({"affinity": "x"}), "providerSpec.placement.affinity", "x")]
fn an_unknown_value_of_a_known_field_is_a_warning(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] path: &str,
    #[case] found: &str,
) {
    let (errors, warnings) = texts(&changed(pointer, value));
    assert_eq!((errors, warnings.len()), (vec![], 1), "{warnings:?}");
    let start = format!("{path}: the string \"{found}\" is none of ");
    assert!(warnings[0].starts_with(&start) && warnings[0].ends_with(": sent to the cloud as it is"), "{warnings:?}");
}

#[rstest]
#[case(json!("capacity-reservations-only"))]
#[case(json!("open"))]
#[case(json!("none"))]
#[case(json!(""))]
fn preferences_of_ec2_are_known(#[case] value: Value) {
    let spec = changed("/capacityReservation", json!({"capacityReservationPreference": value}));
    assert_eq!(problems(&spec), ClassProblems::default());
}

/// Limits of EC2 that the class alone exceeds.
#[rstest]
#[case::iops_of_gp2("/blockDevices/0/ebs", json!({"volumeType": "gp2", "volumeSize": 50, "iops": 100}), Some("providerSpec.blockDevices[0].ebs.iops: a volume of type gp2 takes none"))]
#[case::throughput_of_gp2("/blockDevices/0/ebs", json!({"volumeType": "gp2", "volumeSize": 50, "throughput": 125}), Some("providerSpec.blockDevices[0].ebs.throughput: a volume of type gp2 takes none"))]
#[case::throughput_of_io1("/blockDevices/0/ebs", json!({"volumeType": "io1", "volumeSize": 50, "iops": 100, "throughput": 125}), Some("providerSpec.blockDevices[0].ebs.throughput: a volume of type io1 takes none"))]
#[case::little("/blockDevices/0/ebs/throughput", json!(124), Some("providerSpec.blockDevices[0].ebs.throughput: expected at least 125 MiB/s, found 124"))]
#[case::too_much_for_its_iops("/blockDevices/0/ebs/throughput", json!(1000), Some("providerSpec.blockDevices[0].ebs.throughput: expected at most 750 MiB/s with 3000 iops (4 iops for each MiB/s), found 1000"))]
#[case::with_more_iops("/blockDevices/0/ebs", json!({"volumeType": "gp3", "volumeSize": 50, "iops": 4000, "throughput": 1000}), None)]
#[case::of_a_newer_type("/blockDevices/0/ebs", json!({"volumeType": "gp4", "volumeSize": 50, "iops": 1, "throughput": 9000}), None)]
#[case::reserved_key("/tags/aws:x", json!("1"), Some("providerSpec.tags.aws:x: keys that begin with aws: are reserved"))]
#[case::reserved_key("/tags/AWS:x", json!("1"), Some("providerSpec.tags.AWS:x: keys that begin with aws: are reserved"))]
#[case::long_value("/tags/x", json!("v".repeat(257)), Some("providerSpec.tags.x: a value has at most 256 characters"))]
#[case::long_value("/tags/x", json!("ä".repeat(256)), None)]
#[case::negative_price("/spotPrice", json!("-1"), Some(r#"providerSpec.spotPrice: expected a price in dollars, more than 0, found the string "-1""#))]
#[case::no_price("/spotPrice", json!("cheap"), Some(r#"providerSpec.spotPrice: expected a price in dollars, more than 0, found the string "cheap""#))]
#[case::no_limit("/spotPrice", json!(""), None)]
#[case::name_of_a_group("/networkInterfaces/0/securityGroupIDs", json!(["default"]), Some(r#"providerSpec.networkInterfaces[0].securityGroupIDs[0]: expected an ID such as sg-0123, not a name, found the string "default""#))]
fn limits_of_ec2_are_checked(#[case] pointer: &str, #[case] value: Value, #[case] expected: Option<&str>) {
    assert_eq!(texts(&changed(pointer, value)).0, expected.map(str::to_owned).into_iter().collect::<Vec<_>>());
}

/// EC2 takes 50 tags, and three of them are ours if there is room.
#[rstest]
#[case(47, false, None, None)]
#[case(48, true, None, None)]
#[case(
    48,
    false,
    None,
    Some("48 tags leave no room for machine.sapcloud.io/owner: no VM shows its namespace, as with Gardener's driver")
)]
#[case(
    49,
    false,
    None,
    Some(
        "49 tags leave no room for machine.sapcloud.io/machine-uid and machine.sapcloud.io/owner: no VM shows its machine and its namespace, as with Gardener's driver"
    )
)]
#[case(50, false, Some("50 tags and the name of the machine are 51: EC2 takes 50"), None)]
#[case(60, false, Some("60 tags and the name of the machine are 61: EC2 takes 50"), None)]
fn tags_are_counted_with_ours(
    #[case] count: usize,
    #[case] has_name: bool,
    #[case] error: Option<&str>,
    #[case] warning: Option<&str>,
) {
    let mut spec = spec();
    let tags = spec["tags"].as_object_mut().unwrap();
    if has_name {
        tags.insert("Name".to_owned(), json!("x"));
    }
    for number in tags.len()..count {
        tags.insert(format!("tag-{number}"), json!("x"));
    }
    let with_path = |text: Option<&str>| text.map(|text| format!("providerSpec.tags: {text}"));
    let (errors, warnings) = texts(&spec);
    assert_eq!(errors, with_path(error).into_iter().collect::<Vec<_>>());
    let of_tags: Vec<String> = warnings.into_iter().filter(|one| one.starts_with("providerSpec.tags:")).collect();
    assert_eq!(of_tags, with_path(warning).into_iter().collect::<Vec<_>>());
}

#[test]
fn a_long_key_is_refused_and_a_group_that_is_given_twice_is_a_warning() {
    let key = "k".repeat(129);
    let (errors, _) = texts(&changed(&format!("/tags/{key}"), json!("1")));
    assert!(errors.len() == 1 && errors[0].ends_with("a key has 1 to 128 characters"), "{errors:?}");
    let (errors, warnings) = texts(&changed("/networkInterfaces/0/securityGroupIDs", json!(["sg-1", "sg-1"])));
    assert_eq!(
        (errors.len(), warnings),
        (0, vec!["providerSpec.networkInterfaces[0].securityGroupIDs[1]: given twice".to_owned()])
    );
}

fn with_names(names: &[&str]) -> Value {
    let device = |name: &&str| json!({"deviceName": name, "ebs": {"volumeType": "gp3", "volumeSize": 1}});
    changed("/blockDevices", names.iter().map(device).collect())
}

#[rstest]
#[case::an_only_name_does_not_count(&["whatever"], &[])]
#[case(&["/root", "/dev/sdf", "/dev/xvda", "/dev/xvdcz"], &[])]
#[case::no_root(&["/dev/sdf", "/dev/sdg"], &["providerSpec.blockDevices: expected one device with deviceName /root, found 0"])]
#[case::two_roots(&["/root", "/root"], &["providerSpec.blockDevices: expected one device with deviceName /root, found 2"])]
#[case::twice(&["/root", "/dev/sdf", "/dev/sdf"], &["providerSpec.blockDevices[2].deviceName: /dev/sdf is there twice"])]
#[case::empty(&["/root", ""], &["providerSpec.blockDevices[1].deviceName: expected /root or a name such as /dev/sdf or /dev/xvdba, found an empty string"])]
#[case::wrong(&["/root", "/dev/sda1"], &[r#"providerSpec.blockDevices[1].deviceName: expected /root or a name such as /dev/sdf or /dev/xvdba, found the string "/dev/sda1""#])]
#[case::wrong_letter(&["/root", "/dev/xvdd"], &[r#"providerSpec.blockDevices[1].deviceName: expected /root or a name such as /dev/sdf or /dev/xvdba, found the string "/dev/xvdd""#])]
fn several_devices_have_names(#[case] names: &[&str], #[case] expected: &[&str]) {
    assert_eq!(texts(&with_names(names)).0, expected);
}

#[rstest]
#[case("/ebsOptimized", json!(true), "providerSpec.ebsOptimized: accepted and not sent to AWS, as in Gardener's driver")]
#[case("/monitoring", json!(true), "providerSpec.monitoring: accepted and not sent to AWS, as in Gardener's driver")]
#[case("/blockDevices/0/noDevice", json!("x"), "providerSpec.blockDevices[0].noDevice: accepted and not sent to AWS, as in Gardener's driver")]
#[case("/blockDevices/0/virtualName", json!("x"), "providerSpec.blockDevices[0].virtualName: accepted and not sent to AWS, as in Gardener's driver")]
#[case("/blockDevices/0/ebs/kmsKeyID", json!("x"), "providerSpec.blockDevices[0].ebs.kmsKeyID: accepted and not sent to AWS, as in Gardener's driver")]
#[case("/networkInterfaces/0/primaryIpv6", json!(true), "providerSpec.networkInterfaces[0].primaryIpv6: ignored without ipv6AddressCount")]
#[case("/amii", json!("x"), "providerSpec.amii: unknown field, ignored: did you mean ami?")]
#[case("/tags/kubernetes.io~1cluster~1b", json!("x"), "providerSpec.tags: 2 keys contain kubernetes.io/cluster/: the first in order marks the VMs")]
fn what_has_no_effect_is_a_warning(#[case] pointer: &str, #[case] value: Value, #[case] expected: &str) {
    let mut spec = changed(&pointer.replace("/tags/kubernetes.io~1cluster~1b", "/x"), value);
    if pointer.contains('~') {
        spec.as_object_mut().unwrap().remove("x");
        spec["tags"]["kubernetes.io/cluster/b"] = json!("1");
    }
    assert_eq!(texts(&spec), (vec![], vec![expected.to_owned()]));
}

#[test]
fn spot_price_beside_market_options_is_a_warning() {
    let mut spec = changed("/spotPrice", json!("1"));
    spec["instanceMarketOptions"] = json!({"marketType": "spot"});
    assert_eq!(texts(&spec).1, ["providerSpec.spotPrice: ignored, because instanceMarketOptions is set"]);
}

#[rstest]
#[case(json!(null), "providerSpec: expected an object, found nothing")]
#[case(json!([]), "providerSpec: expected an object, found a list")]
#[case(json!("x"), r#"providerSpec: expected an object, found the string "x""#)]
fn what_is_no_object_is_told(#[case] value: Value, #[case] expected: &str) {
    assert_eq!(texts(&value).0.first().map(String::as_str), Some(expected));
}

#[test]
fn keys_are_read_in_any_case_and_null_is_absent() {
    let spec = spec().to_string().replace("\"ami\"", "\"AMI\"").replace("\"subnetID\"", "\"subnetid\"");
    let mut spec: Value = serde_json::from_str(&spec).unwrap();
    spec["spotPrice"] = Value::Null;
    assert_eq!(problems(&spec), ClassProblems::default());
    let parsed = Spec::read(&spec, &mut ClassProblems::default());
    assert_eq!((parsed.ami.as_str(), &*parsed.network_interfaces[0].subnet_id), ("ami-1", "subnet-1"));
    assert_eq!(parsed.spot_price, None);
}

#[test]
fn an_annotated_placement_may_be_empty_or_wrong() {
    assert_eq!(placement_of_annotation("{}").unwrap(), (None, vec![]));
    let tenancy = Placement { tenancy: Some("host".to_owned()), ..Placement::default() };
    assert_eq!(placement_of_annotation(r#"{"Tenancy": "host"}"#).unwrap(), (Some(tenancy), vec![]));
    let (placement, warnings) = placement_of_annotation(r#"{"AvailabilityZoneId": "euw1-az1", "Rack": "7"}"#).unwrap();
    assert_eq!(placement.unwrap().availability_zone_id.as_deref(), Some("euw1-az1"));
    assert!(warnings.len() == 1 && warnings[0].path.ends_with(".Rack"), "{warnings:?}");
    placement_of_annotation("no json").unwrap_err();
    placement_of_annotation("[]").unwrap_err();
}
