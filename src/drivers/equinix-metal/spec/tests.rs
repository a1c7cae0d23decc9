//! Valid and invalid fields of a class, with the problems that are reported.

use mcm_driver::spec::ClassProblems;
use rstest::rstest;
use serde_json::{Value, json};

use super::Spec;

const CLUSTER: &str = "kubernetes.io/cluster/c: 1";
const ROLE: &str = "kubernetes.io/role/node: 1";

fn spec() -> Value {
    json!({
        "metro": "ny", "machineType": "c3.small.x86", "projectID": "p", "OS": "ubuntu_22_04", "billingCycle": "hourly",
        "tags": [CLUSTER, ROLE],
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
    let markers = (scope.markers.cluster.as_str(), scope.markers.role.as_str());
    assert_eq!((scope.project.as_str(), markers), ("p", (CLUSTER, ROLE)));
}

#[test]
fn keys_are_read_in_any_case_and_null_is_absent() {
    let value = json!({
        "METRO": "ny", "MachineType": "c3.small.x86", "projectId": "p", "os": "ubuntu_22_04", "billingcycle": "daily",
        "Tags": [CLUSTER, ROLE], "SSHKeys": ["k"], "reservationIds": ["r"], "ReservedDevicesOnly": true, "ipxeScriptURL": null,
    });
    let mut problems = ClassProblems::default();
    let read = Spec::read(&value, &mut problems);
    assert_eq!(problems, ClassProblems::default());
    assert_eq!((read.operating_system.as_str(), read.billing_cycle), ("ubuntu_22_04", "daily"));
    assert_eq!((read.ssh_keys, read.reservations), (vec!["k".to_owned()], vec!["r".to_owned()]));
    assert!(read.is_reserved_only && read.ipxe_script_url.is_none());
}

#[rstest]
#[case::metro("metro", Value::Null, "providerSpec.metro: expected a non-empty string, found nothing")]
#[case::plan("machineType", json!(""), "providerSpec.machineType: expected a non-empty string, found an empty string")]
#[case::project("projectID", json!(7), "providerSpec.projectID: expected a non-empty string, found the number 7")]
#[case::system("OS", Value::Null, "providerSpec.OS: expected a non-empty string, found nothing")]
#[case::empty_system("OS", json!(""), "providerSpec.OS: expected a non-empty string, found an empty string")]
#[case::script("ipxeScriptUrl", json!(["x"]), "providerSpec.ipxeScriptUrl: expected a string, found a list")]
#[case::no_cycle(
    "billingCycle",
    Value::Null,
    "providerSpec.billingCycle: expected one of hourly, daily, monthly, yearly, found nothing"
)]
#[case::empty_cycle("billingCycle", json!(""), "providerSpec.billingCycle: expected one of hourly, daily, monthly, yearly, found an empty string")]
#[case::other_cycle("billingCycle", json!("weekly"), r#"providerSpec.billingCycle: expected one of hourly, daily, monthly, yearly, found the string "weekly""#)]
#[case::no_cluster("tags", json!([ROLE]), "providerSpec.tags: expected a tag that contains kubernetes.io/cluster/, found none")]
#[case::no_role("tags", json!([CLUSTER]), "providerSpec.tags: expected a tag that contains kubernetes.io/role/, found none")]
#[case::tag_of_a_wrong_type("tags", json!([CLUSTER, ROLE, 7]), "providerSpec.tags[2]: expected a string, found the number 7")]
#[case::keys("sshKeys", json!("id"), r#"providerSpec.sshKeys: expected a list, found the string "id""#)]
#[case::key("sshKeys", json!([""]), "providerSpec.sshKeys[0]: expected a non-empty string, found an empty string")]
#[case::reservation("reservationIDs", json!([1]), "providerSpec.reservationIDs[0]: expected a non-empty string, found the number 1")]
#[case::reserved_without_any("reservedDevicesOnly", json!(true), "providerSpec.reservationIDs: expected a reservation with reservedDevicesOnly, found none")]
#[case::reserved("reservedDevicesOnly", json!("yes"), r#"providerSpec.reservedDevicesOnly: expected true or false, found the string "yes""#)]
fn a_wrong_field_is_reported_with_its_path(#[case] name: &str, #[case] value: Value, #[case] expected: &str) {
    assert_eq!(texts(&changed(name, value)).0, [expected]);
}

#[rstest]
#[case(Value::Null)]
#[case(json!(7))]
#[case(json!([]))]
fn a_class_that_is_no_object_is_refused(#[case] value: Value) {
    let (errors, _) = texts(&value);
    assert!(errors[0].starts_with("providerSpec: expected an object"), "{errors:?}");
}

#[rstest]
#[case::misspelled("metros", json!("ny"), "providerSpec.metros: unknown field, ignored: did you mean metro?")]
#[case::user_data("userdata", json!("x"), "providerSpec.userdata: ignored, as in Gardener's driver: userData of the Secret counts")]
#[case::facilities("facilities", json!(["ewr1"]), "providerSpec.facilities: ignored, as in Gardener's driver: metro counts")]
#[case::script("ipxeScriptUrl", json!("https://example.com/boot"), "providerSpec.OS: ignored with ipxeScriptUrl: the operating system is custom_ipxe")]
#[case::own_tag("tags", json!([CLUSTER, ROLE, "machine.sapcloud.io/owner=x"]), "providerSpec.tags[2]: ignored: mcm sets the tag machine.sapcloud.io/owner itself")]
#[case::two_clusters("tags", json!([CLUSTER, "kubernetes.io/cluster/d", ROLE]), "providerSpec.tags: 2 tags contain kubernetes.io/cluster/: the first in order marks the VMs")]
fn a_field_without_an_effect_is_a_warning(#[case] name: &str, #[case] value: Value, #[case] expected: &str) {
    let value = changed(name, value);
    assert_eq!(texts(&value), (vec![], vec![expected.to_owned()]));
    assert_eq!(Spec::read(&value, &mut ClassProblems::default()).scope().unwrap().markers.cluster, CLUSTER);
}

#[rstest]
#[case("secretRef", json!({"name": "s"}))]
#[case("apiVersion", json!("mcm.gardener.cloud/v1alpha1"))]
fn fields_of_samples_without_an_effect_are_no_problem(#[case] name: &str, #[case] value: Value) {
    assert_eq!(texts(&changed(name, value)), (vec![], vec![]));
}

#[test]
fn devices_on_demand_after_reservations_are_a_difference_to_the_reference() {
    for (is_reserved_only, expected) in [(false, 1), (true, 0)] {
        let mut value = changed("reservationIDs", json!(["r"]));
        value["reservedDevicesOnly"] = is_reserved_only.into();
        let mut problems = ClassProblems::default();
        Spec::read(&value, &mut problems);
        assert_eq!((problems.errors.len(), problems.differences.len()), (0, expected));
    }
}

#[test]
fn a_script_is_enough_without_an_operating_system() {
    for script in ["https://example.com/boot", ""] {
        let mut value = changed("ipxeScriptUrl", json!(script));
        value["OS"] = Value::Null;
        assert_eq!(texts(&value), (vec![], vec![]));
        assert_eq!(Spec::read(&value, &mut ClassProblems::default()).operating_system, "custom_ipxe");
    }
}

#[test]
fn devices_of_a_class_with_other_errors_can_still_be_found() {
    let value = json!({"projectID": "p", "tags": [CLUSTER, ROLE]});
    assert_eq!(Spec::read(&value, &mut ClassProblems::default()).scope().unwrap().project, "p");
    for value in [json!({"tags": [CLUSTER, ROLE]}), json!({"projectID": "p", "tags": [CLUSTER]})] {
        Spec::read(&value, &mut ClassProblems::default()).scope().unwrap_err();
    }
}
