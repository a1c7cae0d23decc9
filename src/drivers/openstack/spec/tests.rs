//! Valid and invalid fields of a class, with the problems that are reported.

use mcm_driver::{cloud::ClassMarkers, spec::ClassProblems};
use rstest::rstest;
use serde_json::{Value, json};

use super::{Network, Reference, Scope, Spec};

const ID: &str = "00000000-0000-4000-8000-0000000000aa";
const OTHER: &str = "00000000-0000-4000-8000-0000000000bb";

fn spec() -> Value {
    json!({
        "apiVersion": "openstack.machine.gardener.cloud/v1alpha1", "kind": "MachineProviderConfig",
        "spec": {
            "imageName": "image", "region": "r", "availabilityZone": "z", "flavorName": "f", "keyName": "k", "networkID": ID,
            "podNetworkCIDRs": ["10.96.0.0/11"], "tags": {"kubernetes.io-cluster-c": "", "kubernetes.io-role-n": "1"},
        },
    })
}

fn changed(name: &str, value: Value) -> Value {
    let mut spec = spec();
    spec["spec"][name] = value;
    spec
}

fn texts(value: &Value) -> (Vec<String>, Vec<String>) {
    let mut problems = ClassProblems::default();
    Spec::read(value, &mut problems);
    let texts = |all: &[_]| all.iter().map(ToString::to_string).collect();
    (texts(&problems.errors), texts(&problems.warnings))
}

fn read(value: &Value) -> Spec {
    let mut problems = ClassProblems::default();
    let spec = Spec::read(value, &mut problems);
    assert_eq!(problems.errors, []);
    spec
}

#[test]
fn a_class_with_the_required_fields_is_valid() {
    assert_eq!(texts(&spec()), (vec![], vec![]));
    let read = read(&spec());
    let markers = ClassMarkers { cluster: "kubernetes.io-cluster-c".into(), role: "kubernetes.io-role-n".into() };
    assert_eq!(read.scope().unwrap(), Scope { region: "r".to_owned(), markers });
    assert_eq!(read.networks, [Network { network: Reference::Id(ID.to_owned()), has_pods: true }]);
    assert!(read.has_pods() && read.network_of_port().is_none());
}

#[rstest]
#[case::image("imageName", Value::Null, "providerSpec.spec.imageName: expected imageID or imageName, found neither")]
#[case::image_id("imageID", json!("x"), r#"providerSpec.spec.imageID: expected a UUID, found the string "x""#)]
#[case::region("region", Value::Null, "providerSpec.spec.region: expected a non-empty string, found nothing")]
#[case::zone("availabilityZone", json!(""), "providerSpec.spec.availabilityZone: expected a non-empty string, found an empty string")]
#[case::flavor("flavorName", json!(7), "providerSpec.spec.flavorName: expected a non-empty string, found the number 7")]
#[case::key("keyName", Value::Null, "providerSpec.spec.keyName: expected a non-empty string, found nothing")]
#[case::no_network(
    "networkID",
    Value::Null,
    "providerSpec.spec.networkID: expected networkID or networks, found neither"
)]
#[case::network("networkID", json!("net"), r#"providerSpec.spec.networkID: expected a UUID, found the string "net""#)]
#[case::both("networks", json!([{"name": "n"}]), "providerSpec.spec.networks: expected networkID or networks, found both")]
#[case::subnet("subnetIDs", json!(["x"]), r#"providerSpec.spec.subnetIDs[0]: expected a UUID, found the string "x""#)]
#[case::no_pods(
    "podNetworkCIDRs",
    Value::Null,
    "providerSpec.spec.podNetworkCIDRs: expected podNetworkCIDRs or podNetworkCidr, found neither"
)]
#[case::pods("podNetworkCIDRs", json!(["10.0.0.0/33"]), r#"providerSpec.spec.podNetworkCIDRs[0]: expected an IP network such as 10.96.0.0/11, found the string "10.0.0.0/33""#)]
#[case::disk("rootDiskSize", json!(-1), "providerSpec.spec.rootDiskSize: expected a whole number of at least 0, found the number -1")]
#[case::drive("useConfigDrive", json!("true"), r#"providerSpec.spec.useConfigDrive: expected true or false, found the string "true""#)]
#[case::group("serverGroupID", json!("x"), r#"providerSpec.spec.serverGroupID: expected a UUID, found the string "x""#)]
#[case::groups("securityGroups", json!("x"), r#"providerSpec.spec.securityGroups: expected a list, found the string "x""#)]
fn a_wrong_field_is_reported_with_its_path(#[case] name: &str, #[case] value: Value, #[case] expected: &str) {
    let (errors, _) = texts(&changed(name, value));
    assert!(errors.iter().any(|error| error == expected), "{errors:?}");
}

#[rstest]
#[case::neither(json!([{}]), "providerSpec.spec.networks[0]: expected id or name, found neither")]
#[case::both(json!([{"id": ID}, {"id": ID, "name": "n"}]), "providerSpec.spec.networks[1]: expected id or name, found both")]
#[case::type_of_pods(json!([{"id": ID, "podNetwork": 1}]), "providerSpec.spec.networks[0].podNetwork: expected true or false, found the number 1")]
fn a_network_has_an_id_or_a_name(#[case] networks: Value, #[case] expected: &str) {
    let mut value = changed("networks", networks);
    value["spec"]["networkID"] = Value::Null;
    assert_eq!(texts(&value).0, [expected]);
}

#[rstest]
#[case::none(json!({}), &["a key that contains kubernetes.io-cluster-", "a key that contains kubernetes.io-role-"])]
#[case::no_role(json!({"kubernetes.io-cluster-c": "1"}), &["a key that contains kubernetes.io-role-"])]
#[case::slash(json!({"kubernetes.io-cluster-c": "1", "kubernetes.io-role-n": "1", "a/b": ""}), &["letters, digits, spaces and -_:."])]
#[case::long_value(json!({"kubernetes.io-cluster-c": "1", "kubernetes.io-role-n": "1", "a": "x".repeat(256)}), &["a string of at most 255 characters"])]
#[case::number(json!({"kubernetes.io-cluster-c": 1, "kubernetes.io-role-n": "1"}), &["a string of at most 255 characters", "a key that contains kubernetes.io-cluster-"])]
fn tags_are_metadata_with_the_markers(#[case] tags: Value, #[case] expected: &[&str]) {
    let (errors, _) = texts(&changed("tags", tags));
    assert_eq!(errors.len(), expected.len(), "{errors:?}");
    for (error, expected) in errors.iter().zip(expected) {
        assert!(error.starts_with("providerSpec.spec.tags") && error.contains(expected), "{error}");
    }
}

#[rstest]
#[case(Value::Null, "providerSpec: expected an object, found nothing")]
#[case(json!(7), "providerSpec: expected an object, found the number 7")]
#[case(json!({"kind": "MachineProviderConfig", "spec": {}}), "providerSpec.apiVersion: expected one of openstack.machine.gardener.cloud/v1alpha1, found nothing")]
#[case(json!({"apiVersion": "openstack.machine.gardener.cloud/v1alpha1", "spec": {}}), "providerSpec.kind: expected one of MachineProviderConfig, found nothing")]
#[case(json!({"apiVersion": "v1", "kind": "MachineProviderConfig", "spec": {}}), "providerSpec.apiVersion: expected one of openstack.machine.gardener.cloud/v1alpha1, found the string \"v1\"")]
fn a_class_of_another_kind_is_refused(#[case] value: Value, #[case] expected: &str) {
    assert_eq!(texts(&value).0[0], expected);
}

#[rstest]
#[case("network", json!([]), "providerSpec.spec.network: unknown field, ignored: did you mean networks?")]
#[case("tags", json!({"kubernetes.io-cluster-c": "", "kubernetes.io-role-n": "", "machine.sapcloud.io-owner": "x"}), "providerSpec.spec.tags.machine.sapcloud.io-owner: ignored: mcm sets this key itself")]
#[case("imageID", json!(ID), "providerSpec.spec.imageName: ignored: imageID names the image")]
#[case("rootDiskType", json!("ssd"), "providerSpec.spec.rootDiskType: ignored: without rootDiskSize the server boots from its image")]
#[case("tags", json!({"kubernetes.io-cluster-c": "", "kubernetes.io-cluster-b": "", "kubernetes.io-role-n": ""}), "providerSpec.spec.tags: 2 keys contain kubernetes.io-cluster-: the first in order marks the VMs")]
fn a_field_without_an_effect_is_a_warning(#[case] name: &str, #[case] value: Value, #[case] expected: &str) {
    assert_eq!(texts(&changed(name, value)), (vec![], vec![expected.to_owned()]));
}

#[test]
fn keys_are_read_in_any_case_and_null_is_absent() {
    let mut value = spec();
    let fields = value["spec"].as_object_mut().unwrap();
    let region = fields.remove("region").unwrap();
    fields.insert("REGION".to_owned(), region);
    fields.insert("subnetID".to_owned(), Value::Null);
    assert_eq!(read(&value).region, "r");
}

#[test]
fn subnets_and_addresses_are_in_order_and_without_doubles() {
    let mut value = changed("subnetIDs", json!([OTHER, ID, ""]));
    value["spec"]["subnetID"] = OTHER.into();
    value["spec"]["podNetworkCidr"] = "10.96.0.0/11".into();
    let read = read(&value);
    assert_eq!((read.subnets.as_slice(), read.pod_cidrs.len()), ([ID.to_owned(), OTHER.to_owned()].as_slice(), 1));
    assert_eq!(read.network_of_port(), Some(ID));
}

#[test]
fn subnets_are_for_the_only_network() {
    let mut value = changed("networks", json!([{"id": ID, "podNetwork": true}, {"name": "n"}]));
    value["spec"]["networkID"] = Value::Null;
    value["spec"]["subnetIDs"] = json!([ID]);
    let warning = "providerSpec.spec.subnetIDs: ignored: subnets are used only with networkID";
    assert_eq!(texts(&value), (vec![], vec![warning.to_owned()]));
    let read = read(&value);
    assert_eq!((read.network_of_port(), read.has_pods()), (None, true));
    assert_eq!(read.networks[1], Network { network: Reference::Name("n".to_owned()), has_pods: false });
}

#[test]
fn servers_of_a_class_with_other_errors_can_still_be_found() {
    let value = json!({"spec": {"region": "r", "tags": {"kubernetes.io-cluster-c": "", "kubernetes.io-role-n": ""}}});
    Spec::read(&value, &mut ClassProblems::default()).scope().unwrap();
    let value = json!({"spec": {"tags": {"kubernetes.io-cluster-c": "", "kubernetes.io-role-n": ""}}});
    Spec::read(&value, &mut ClassProblems::default()).scope().unwrap_err();
}
