//! Valid and invalid fields of a class, with the problems that are reported.

use mcm_api::machine::MachineClass;
use mcm_driver::{cloud::ClassMarkers, spec::ClassProblems};
use rstest::rstest;
use serde_json::{Value, json};

use super::{Resources, Spec};

fn spec() -> Value {
    json!({
        "labels": {"kubernetes-io-cluster-shoot": "1", "kubernetes-io-role-node": "1"}, "zoneID": "ru-central1-a",
        "platformID": "standard-v3", "resourcesSpec": {"cores": 2, "memory": 4_294_967_296_i64},
        "bootDiskSpec": {"autoDelete": true, "typeID": "network-ssd", "size": 53_687_091_200_i64, "imageID": "fd8image"},
        "networkInterfaceSpecs": [{"subnetID": "e9bsubnet"}],
    })
}

/// The class with another value at a JSON pointer; `null` removes it.
fn changed(pointer: &str, value: Value) -> Value {
    let mut spec = spec();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = if parent.is_empty() { &mut spec } else { spec.pointer_mut(parent).unwrap() };
    parent[key] = value;
    spec
}

fn class(spec: Value, labels: &[(&str, &str)]) -> MachineClass {
    let mut class = MachineClass { provider_spec: spec, ..MachineClass::default() };
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    class.metadata.labels = Some(labels);
    class
}

fn read(spec: Value) -> (Spec, ClassProblems) {
    let mut problems = ClassProblems::default();
    let spec = Spec::read(&class(spec, &[]), &mut problems);
    (spec, problems)
}

fn texts(value: Value) -> (Vec<String>, Vec<String>) {
    let (_, problems) = read(value);
    let texts = |all: &[_]| all.iter().map(ToString::to_string).collect();
    (texts(&problems.errors), texts(&problems.warnings))
}

#[test]
fn a_class_with_the_required_fields_is_valid() {
    let (spec, problems) = read(spec());
    assert_eq!(problems, ClassProblems::default());
    let scope = spec.scope("folder").unwrap();
    let markers =
        ClassMarkers { cluster: "kubernetes-io-cluster-shoot".to_owned(), role: "kubernetes-io-role-node".to_owned() };
    assert_eq!((scope.folder.as_str(), scope.markers), ("folder", markers));
}

#[test]
fn keys_are_read_in_any_case_and_null_is_absent() {
    let (spec, problems) = read(json!({
        "LABELS": {"kubernetes-io-cluster-shoot": "1", "kubernetes-io-role-node": "1"}, "ZoneId": "z", "platformid": "p",
        "ResourcesSpec": {"CORES": 4, "memory": 4_294_967_296_i64, "coreFraction": 50, "GPUs": 1},
        "bootdiskspec": {"AUTODELETE": true, "size": 53_687_091_200_i64, "imageId": "i"}, "metadata": null,
        "NETWORKINTERFACESPECS": [{"SubnetID": "s", "publicIPAddresses": null}], "networkType": "SOFTWARE_ACCELERATED",
        "schedulingPolicy": {"PREEMPTIBLE": true}, "apiVersion": "v1", "secretRef": {"name": "x"}, "regionID": "r",
    }));
    assert_eq!(problems, ClassProblems::default());
    let resources = Resources { cores: 4, core_fraction: 50, memory: 4 << 30, gpus: 1 };
    assert_eq!((spec.zone.as_str(), spec.resources, spec.is_preemptible), ("z", resources, true));
    assert_eq!(spec.network_type.as_deref(), Some("SOFTWARE_ACCELERATED"));
}

#[rstest]
#[case("/zoneID", Value::Null, "providerSpec.zoneID: expected a non-empty string, found nothing")]
#[case("/platformID", json!(""), "providerSpec.platformID: expected a non-empty string, found an empty string")]
#[case("/resourcesSpec/cores", json!(0), "providerSpec.resourcesSpec.cores: expected a whole number of at least 1, found the number 0")]
#[case("/resourcesSpec/cores", json!("2"), "providerSpec.resourcesSpec.cores: expected a whole number of at least 1, found the string \"2\"")]
#[case("/resourcesSpec/coreFraction", json!(101), "providerSpec.resourcesSpec.coreFraction: expected a whole number from 0 to 100, found the number 101")]
#[case::in_gigabytes("/resourcesSpec/memory", json!(4), "providerSpec.resourcesSpec.memory: expected a number of bytes of at least 268435456, found the number 4")]
#[case("/resourcesSpec/gpus", json!(-1), "providerSpec.resourcesSpec.gpus: expected a whole number of at least 0, found the number -1")]
#[case::in_gigabytes("/bootDiskSpec/size", json!(50), "providerSpec.bootDiskSpec.size: expected a number of bytes of at least 4194304, found the number 50")]
#[case(
    "/bootDiskSpec/imageID",
    Value::Null,
    "providerSpec.bootDiskSpec.imageID: expected a non-empty string, found nothing"
)]
#[case("/bootDiskSpec/autoDelete", json!("true"), "providerSpec.bootDiskSpec.autoDelete: expected true or false, found the string \"true\"")]
#[case("/networkInterfaceSpecs", json!([]), "providerSpec.networkInterfaceSpecs: expected at least one, found none")]
#[case("/networkInterfaceSpecs", Value::Null, "providerSpec.networkInterfaceSpecs: expected at least one, found none")]
#[case("/networkInterfaceSpecs", json!([{}]), "providerSpec.networkInterfaceSpecs[0].subnetID: expected a non-empty string, found nothing")]
#[case("/networkInterfaceSpecs", json!([{"subnetID": "s", "publicIPAddresses": ["x"]}]), "providerSpec.networkInterfaceSpecs[0].publicIPAddresses[0]: expected an IPv4 address, found the string \"x\"")]
#[case("/schedulingPolicy", json!({"preemptible": 1}), "providerSpec.schedulingPolicy.preemptible: expected true or false, found the number 1")]
#[case("/networkType", json!("FAST"), "providerSpec.networkType: expected one of STANDARD, SOFTWARE_ACCELERATED, found the string \"FAST\"")]
#[case("/metadata", json!({"a": 1}), "providerSpec.metadata.a: expected a string, found the number 1")]
#[case("/labels/Team", json!("a"), "providerSpec.labels.Team: expected a key of at most 63 lower-case letters, digits and any of -_./\\@, a letter first, found another")]
#[case("/labels/team", json!("A"), "providerSpec.labels.team: expected a value of at most 63 lower-case letters, digits and any of -_./\\@, found another")]
fn a_wrong_field_is_reported_with_its_path(#[case] pointer: &str, #[case] value: Value, #[case] expected: &str) {
    assert_eq!(texts(changed(pointer, value)).0, [expected]);
}

#[test]
fn absent_objects_are_reported_with_their_fields() {
    let (errors, _) = texts(changed("/resourcesSpec", Value::Null));
    assert_eq!(errors, ["providerSpec.resourcesSpec: expected an object, found nothing"]);
    let (errors, _) = texts(changed("/bootDiskSpec", json!({})));
    assert_eq!(errors.len(), 2, "{errors:?}");
}

#[test]
fn a_class_has_at_most_so_many_labels_that_ours_fit() {
    let labels = (0..60).map(|number| (format!("l-{number}"), json!("")));
    let markers = spec()["labels"].as_object().unwrap().clone();
    let labels: serde_json::Map<String, Value> = markers.into_iter().chain(labels).collect();
    assert_eq!(texts(changed("/labels", labels.clone().into())).0, [""; 0]);
    let more = labels.into_iter().chain([("more".to_owned(), json!(""))]).collect::<serde_json::Map<_, _>>();
    assert_eq!(texts(changed("/labels", more.into())).0, ["providerSpec.labels: expected at most 62, found 63"]);
}

#[rstest]
#[case(Value::Null)]
#[case(json!(7))]
#[case(json!([]))]
fn a_class_that_is_no_object_is_refused(#[case] value: Value) {
    let (errors, _) = texts(value);
    assert!(errors[0].starts_with("providerSpec: expected an object"), "{errors:?}");
}

#[rstest]
#[case("/zone", json!("z"), "providerSpec.zone: unknown field, ignored: did you mean zoneID?")]
#[case("/labels/machine-sapcloud-io-owner", json!("x"), "providerSpec.labels.machine-sapcloud-io-owner: ignored: mcm sets this label itself")]
#[case("/labels/kubernetes-io-cluster-other", json!("1"), "providerSpec.labels: 2 labels contain kubernetes-io-cluster-: the first in order marks the VMs")]
#[case("/metadata", json!({"user-data": "x"}), "providerSpec.metadata.user-data: ignored: userData in the Secret of the class take its place")]
#[case(
    "/bootDiskSpec/autoDelete",
    Value::Null,
    "providerSpec.bootDiskSpec.autoDelete: is not true: the boot disk stays, and is paid for, when its VM is deleted"
)]
#[case("/networkInterfaceSpecs", json!([{"subnetID": "s", "publicIPAddresses": ["198.51.100.1"]}]), "providerSpec.networkInterfaceSpecs[0].publicIPAddresses: has no effect without assignPublicIPAddress")]
fn a_field_without_the_expected_effect_is_a_warning(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] expected: &str,
) {
    assert_eq!(texts(changed(pointer, value)), (vec![], vec![expected.to_owned()]));
}

const OF_CLASS: [(&str, &str); 2] = [("kubernetes-io-cluster-shoot", "Any Value"), ("kubernetes-io-role-node", "")];

#[test]
fn markers_in_the_labels_of_the_class_are_put_on_its_vms() {
    let mut problems = ClassProblems::default();
    let spec = Spec::read(&class(changed("/labels", json!({"team": "a"})), &OF_CLASS), &mut problems);
    assert_eq!(problems, ClassProblems::default());
    let labels: Vec<_> = spec.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(labels, [("kubernetes-io-cluster-shoot", "1"), ("kubernetes-io-role-node", "1"), ("team", "a")]);
    assert_eq!(spec.scope("f").unwrap().markers.cluster, "kubernetes-io-cluster-shoot");
}

#[test]
fn markers_in_the_labels_of_vms_come_before_those_of_the_class() {
    let other = [("kubernetes-io-cluster-other", "1"), ("kubernetes-io-role-other", "1")];
    let spec = Spec::read(&class(spec(), &other), &mut ClassProblems::default());
    assert_eq!(spec.markers.unwrap().cluster, "kubernetes-io-cluster-shoot");
    assert_eq!(spec.labels.len(), 2);
}

#[rstest]
#[case::none(&[], 2)]
#[case::only_one(&[("kubernetes-io-cluster-shoot", "1")], 2)]
#[case::no_label_of_a_vm(&[("X-kubernetes-io-cluster-shoot", "1"), ("kubernetes-io-role-node", "1")], 2)]
fn a_class_without_markers_is_refused(#[case] of_class: &[(&str, &str)], #[case] expected: usize) {
    let mut problems = ClassProblems::default();
    let spec = Spec::read(&class(changed("/labels", Value::Null), of_class), &mut problems);
    assert_eq!(problems.errors.len(), expected, "{problems:?}");
    assert!(problems.errors[0].to_string().contains("a label that contains kubernetes-io-cluster-"), "{problems:?}");
    assert!(spec.scope("f").unwrap_err().message.contains("could not be told from others"));
}

#[test]
fn vms_of_a_class_with_other_errors_can_still_be_found() {
    let (spec, problems) = read(json!({"labels": spec()["labels"], "zoneID": 7}));
    assert!(problems.errors.len() > 3);
    spec.scope("f").unwrap();
}
