//! Valid and invalid fields of a class, with the problems that are reported.

use mcm_driver::spec::ClassProblems;
use rstest::rstest;
use serde_json::{Value, json};

use super::{DataDisk, Spec, SystemDisk};

fn spec() -> Value {
    json!({
        "imageID": "m-1", "instanceType": "ecs.g7.large", "region": "cn-beijing",
        "tags": {"kubernetes.io/cluster/shoot": "1", "kubernetes.io/role/node": "1"},
    })
}

fn changed(name: &str, value: Value) -> Value {
    let mut spec = spec();
    spec[name] = value;
    spec
}

fn texts(value: &Value) -> (Vec<String>, Vec<String>) {
    let mut problems = ClassProblems::default();
    Spec::read(value, &mut problems);
    let texts = |all: &[_]| all.iter().map(ToString::to_string).collect();
    (texts(&problems.errors), texts(&problems.warnings))
}

#[test]
fn a_class_with_the_required_fields_is_valid() {
    let mut problems = ClassProblems::default();
    let scope = Spec::read(&spec(), &mut problems).scope().unwrap();
    assert_eq!(problems, ClassProblems::default());
    assert_eq!(scope.region, "cn-beijing");
    assert_eq!(scope.tags(), [("kubernetes.io/cluster/shoot", "1"), ("kubernetes.io/role/node", "1")]);
}

#[test]
fn all_fields_are_read() {
    let mut value = spec();
    let more = json!({
        "apiVersion": "mcm.gardener.cloud/v1alpha1", "zoneID": "cn-beijing-a", "securityGroupID": "sg-1", "vSwitchID": "vsw-1",
        "privateIPAddress": "", "systemDisk": {"category": "cloud_essd", "size": 50},
        "dataDisks": [
            {"name": "d", "category": "cloud_efficiency", "description": "text", "encrypted": true, "deleteWithInstance": false, "size": 20},
            {"category": "ephemeral_ssd", "size": 100}, {"category": "DiskEphemeralSSD", "size": 100}, {"size": 1},
        ],
        "instanceChargeType": "PostPaid", "internetChargeType": "PayByTraffic", "internetMaxBandwidthIn": 5,
        "internetMaxBandwidthOut": 0, "spotStrategy": "SpotAsPriceGo", "IoOptimized": "optimized", "keyPairName": "key",
    });
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let spec = Spec::read(&value, &mut ClassProblems::default());
    let text = |text: &str| Some(text.to_owned());
    let disk = |category: Option<&str>, delete_with_instance, size| DataDisk {
        category: category.map(str::to_owned),
        delete_with_instance,
        size,
        ..DataDisk::default()
    };
    let first = DataDisk {
        name: "d".to_owned(),
        description: "text".to_owned(),
        is_encrypted: true,
        ..disk(Some("cloud_efficiency"), Some(false), 20)
    };
    let expected = Spec {
        zone_id: text("cn-beijing-a"),
        security_group_id: text("sg-1"),
        v_switch_id: text("vsw-1"),
        system_disk: Some(SystemDisk { category: text("cloud_essd"), size: Some(50) }),
        data_disks: vec![
            first,
            disk(Some("ephemeral_ssd"), None, 100),
            disk(Some("DiskEphemeralSSD"), None, 100),
            disk(None, Some(true), 1),
        ],
        instance_charge_type: text("PostPaid"),
        internet_charge_type: text("PayByTraffic"),
        internet_max_bandwidth_in: Some(5),
        internet_max_bandwidth_out: Some(0),
        spot_strategy: text("SpotAsPriceGo"),
        io_optimized: text("optimized"),
        key_pair_name: text("key"),
        ..Spec::read(&self::spec(), &mut ClassProblems::default())
    };
    assert_eq!(spec, expected);
}

#[test]
fn keys_are_read_in_any_case_and_null_is_absent() {
    let value = json!({
        "IMAGEID": "m-1", "InstanceType": "t", "Region": "r", "ioOptimized": "none", "systemDisk": null, "vswitchid": "vsw-1",
        "TAGS": {"kubernetes.io/cluster/shoot": "1", "kubernetes.io/role/node": "1"}, "DataDisks": [{"SIZE": 7}],
    });
    let mut problems = ClassProblems::default();
    let read = Spec::read(&value, &mut problems);
    assert_eq!(problems, ClassProblems::default());
    assert_eq!(
        (read.image_id.as_str(), read.io_optimized.as_deref(), read.v_switch_id.as_deref(), read.data_disks[0].size),
        ("m-1", Some("none"), Some("vsw-1"), 7)
    );
}

#[rstest]
#[case::image("imageID", Value::Null, "providerSpec.imageID: expected a non-empty string, found nothing")]
#[case::instance_type("instanceType", json!(""), "providerSpec.instanceType: expected a non-empty string, found an empty string")]
#[case::region("region", Value::Null, "providerSpec.region: expected letters, digits and hyphens, found nothing")]
#[case::another_host("region", json!("a.example.com/"), r#"providerSpec.region: expected letters, digits and hyphens, found the string "a.example.com/""#)]
#[case::zone("zoneID", json!(1), "providerSpec.zoneID: expected a string, found the number 1")]
#[case::group("securityGroupID", json!([]), "providerSpec.securityGroupID: expected a string, found a list")]
#[case::address("privateIPAddress", json!("fe80::1"), r#"providerSpec.privateIPAddress: expected an IPv4 address, found the string "fe80::1""#)]
#[case::system_disk("systemDisk", json!({"size": "50"}), r#"providerSpec.systemDisk.size: expected a whole number of at least 0, found the string "50""#)]
#[case::no_size("dataDisks", json!([{"name": "d"}]), "providerSpec.dataDisks[0].size: expected a whole number of at least 1, found nothing")]
#[case::zero("dataDisks", json!([{"size": 0}]), "providerSpec.dataDisks[0].size: expected a whole number of at least 1, found the number 0")]
#[case::encrypted("dataDisks", json!([{"size": 1, "encrypted": "true"}]), r#"providerSpec.dataDisks[0].encrypted: expected true or false, found the string "true""#)]
#[case::narrowed("internetMaxBandwidthOut", json!(4_294_967_297_i64), "providerSpec.internetMaxBandwidthOut: expected a whole number of at least 0, found the number 4294967297")]
#[case::negative("internetMaxBandwidthIn", json!(-1), "providerSpec.internetMaxBandwidthIn: expected a whole number of at least 0, found the number -1")]
#[case::no_role("tags", json!({"kubernetes.io/cluster/shoot": "1"}), "providerSpec.tags: expected a tag key that contains kubernetes.io/role/, found none")]
#[case::no_cluster("tags", json!({"kubernetes.io/role/node": "1"}), "providerSpec.tags: expected a tag key that contains kubernetes.io/cluster/, found none")]
#[case::tag_of_a_wrong_type("tags", json!({"kubernetes.io/cluster/shoot": "1", "kubernetes.io/role/node": 1}), "providerSpec.tags.kubernetes.io/role/node: expected a string, found the number 1")]
fn a_wrong_field_is_reported_with_its_path(#[case] name: &str, #[case] value: Value, #[case] expected: &str) {
    let (errors, _) = texts(&changed(name, value));
    assert!(errors.contains(&expected.to_owned()), "{errors:?}");
}

#[rstest]
#[case("aliyun.example.com", "1")]
#[case("acs:x", "1")]
#[case("http://example.com", "1")]
#[case("", "1")]
#[case("url", "https://example.com")]
fn a_tag_that_ecs_refuses_is_reported(#[case] key: &str, #[case] value: &str) {
    let mut spec = spec();
    spec["tags"][key] = value.into();
    let (errors, _) = texts(&spec);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with(&format!("providerSpec.tags.{key}: expected")), "{errors:?}");
}

#[rstest]
#[case(18, None, None)]
#[case(19, None, Some("providerSpec.tags: 19 tags leave no room for machine.sapcloud.io/owner: "))]
#[case(
    20,
    None,
    Some(
        "providerSpec.tags: 20 tags leave no room for machine.sapcloud.io/machine-uid and machine.sapcloud.io/owner: "
    )
)]
#[case(21, Some("providerSpec.tags: expected at most 20, as ECS, found 21"), None)]
fn a_class_has_at_most_20_tags(#[case] count: usize, #[case] expected: Option<&str>, #[case] warning: Option<&str>) {
    let mut spec = spec();
    for number in 2..count {
        spec["tags"][format!("t{number}")] = "x".repeat(128).into();
    }
    let (_, warnings) = texts(&spec);
    assert_eq!(warnings.len(), usize::from(warning.is_some()), "{warnings:?}");
    assert!(warnings.iter().all(|found| warning.is_some_and(|warning| found.starts_with(warning))), "{warnings:?}");
    assert_eq!(texts(&spec).0.first().map(String::as_str), expected);
    spec["tags"]["t2"] = "x".repeat(129).into();
    assert!(texts(&spec).0.contains(&"providerSpec.tags.t2: expected at most 128 characters, and no URL".to_owned()));
}

#[test]
fn a_class_has_at_most_16_data_disks() {
    let disks = |count: usize| changed("dataDisks", vec![json!({"size": 1}); count].into());
    assert_eq!(texts(&disks(16)).0, [""; 0]);
    assert_eq!(texts(&disks(17)).0, ["providerSpec.dataDisks: expected at most 16, found 17"]);
}

#[rstest]
#[case(Value::Null)]
#[case(json!(7))]
#[case(json!([]))]
fn a_class_without_an_object_is_refused(#[case] value: Value) {
    let (errors, _) = texts(&value);
    assert!(errors[0].starts_with("providerSpec: expected an object"), "{errors:?}");
}

#[rstest]
#[case("imageId", json!("m-2"), "providerSpec.imageID: given twice, in different spellings", true)]
#[case("secretRef", json!({}), "providerSpec.secretRef: unknown field, ignored", false)]
#[case("vSwitch", json!("x"), "providerSpec.vSwitch: unknown field, ignored: did you mean vSwitchID?", false)]
#[case("instanceChargeType", json!("PrePaid"), "providerSpec.instanceChargeType: ECS refuses a prepaid VM without a period", false)]
#[case("privateIPAddress", json!("10.0.0.5"), "providerSpec.privateIPAddress: only one machine of this class can have the address", false)]
#[case("spotStrategy", json!("Spot"), r#"providerSpec.spotStrategy: the string "Spot" is none of NoSpot"#, false)]
#[case("internetChargeType", json!("x"), r#"providerSpec.internetChargeType: the string "x" is none of"#, false)]
#[case("IoOptimized", json!("true"), r#"providerSpec.IoOptimized: the string "true" is none of"#, false)]
#[case("systemDisk", json!({"category": "x"}), r#"providerSpec.systemDisk.category: the string "x" is none of"#, false)]
#[case("dataDisks", json!([{"size": 1, "category": "DiskEphemeralSSD"}]), r#"providerSpec.dataDisks[0].category: the string "DiskEphemeralSSD" is none of"#, false)]
#[case("tags", json!({"kubernetes.io/cluster/shoot": "1", "kubernetes.io/role/node": "1", "machine.sapcloud.io/machine-uid": "forged"}), "providerSpec.tags.machine.sapcloud.io/machine-uid: ignored: mcm sets this tag itself", false)]
#[case("tags", json!({"kubernetes.io/cluster/a": "1", "kubernetes.io/cluster/b": "1", "kubernetes.io/role/node": "1"}), "providerSpec.tags: 2 tag keys contain kubernetes.io/cluster/: the first in order marks the VMs", false)]
fn an_odd_field_is_a_warning(#[case] name: &str, #[case] value: Value, #[case] expected: &str, #[case] is_error: bool) {
    let (errors, warnings) = texts(&changed(name, value));
    let found = if is_error {
        errors
    } else {
        assert_eq!(errors, [""; 0]);
        warnings
    };
    assert!(found.iter().any(|text| text.starts_with(expected)), "{found:?}");
}

#[test]
fn vms_of_a_class_with_other_errors_can_still_be_found() {
    let value = json!({"region": "cn-beijing", "tags": spec()["tags"], "imageID": 7, "dataDisks": "x"});
    assert_eq!(Spec::read(&value, &mut ClassProblems::default()).scope().unwrap().region, "cn-beijing");
    let without_region = json!({"tags": spec()["tags"]});
    Spec::read(&without_region, &mut ClassProblems::default()).scope().unwrap_err();
    let without_role = json!({"region": "cn-beijing", "tags": {"kubernetes.io/cluster/shoot": "1"}});
    Spec::read(&without_role, &mut ClassProblems::default()).scope().unwrap_err();
}
