//! Valid and invalid classes, with the problems that are reported.

use rstest::rstest;
use serde_json::{Value, json};

use super::Spec;
use mcm_driver::spec::ClassProblems;

fn spec() -> Value {
    json!({
        "apiVersion": "mcm.gardener.cloud/v1alpha1",
        "region": "europe-west1", "zone": "europe-west1-b", "machineType": "n2-standard-2",
        "disks": [{"boot": true, "sizeGb": 50, "type": "pd-ssd", "image": "os-1"}],
        "networkInterfaces": [{"subnetwork": "nodes"}],
        "scheduling": {"automaticRestart": true, "onHostMaintenance": "MIGRATE"},
        "tags": ["kubernetes-io-cluster-shoot", "kubernetes-io-role-node"],
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
#[case::region("/region", Value::Null, "providerSpec.region: expected a non-empty string, found nothing")]
#[case::zone("/zone", json!(""), "providerSpec.zone: expected a non-empty string, found an empty string")]
#[case::zone_leads_elsewhere("/zone", json!("b/../../x"), r#"providerSpec.zone: expected letters, digits and hyphens, found the string "b/../../x""#)]
#[case::region_leads_elsewhere("/region", json!("x?"), r#"providerSpec.region: expected letters, digits and hyphens, found the string "x?""#)]
#[case::machine_type("/machineType", json!(7), "providerSpec.machineType: expected a non-empty string, found the number 7")]
#[case::forward("/canIpForward", json!("yes"), r#"providerSpec.canIpForward: expected true or false, found the string "yes""#)]
#[case::protection("/deletionProtection", json!(1), "providerSpec.deletionProtection: expected true or false, found the number 1")]
#[case::description("/description", json!(1), "providerSpec.description: expected a string, found the number 1")]
#[case::no_disks("/disks", json!([]), "providerSpec.disks: expected at least one disk, found none")]
#[case::auto_delete("/disks/0/autoDelete", json!("no"), r#"providerSpec.disks[0].autoDelete: expected true or false, found the string "no""#)]
#[case::size("/disks/0/sizeGb", json!("50"), r#"providerSpec.disks[0].sizeGb: expected a whole number of at least 0, found the string "50""#)]
#[case::disk_type(
    "/disks/0/type",
    Value::Null,
    "providerSpec.disks[0].type: expected a non-empty string, found nothing"
)]
#[case::local_interface("/disks/0/type", json!("SCRATCH"), "providerSpec.disks[0].interface: expected one of NVME, SCSI for type SCRATCH, found an empty string")]
#[case::no_image("/disks/0/image", json!(""), "providerSpec.disks[0].image: expected an image for a boot disk, found nothing")]
#[case::no_key("/disks/0/encryption", json!({"kmsKeyName": " "}), r#"providerSpec.disks[0].encryption.kmsKeyName: expected a string that is not blank, found the string " ""#)]
#[case::blank_account("/disks/0/encryption", json!({"kmsKeyName": "k", "kmsKeyServiceAccount": " "}), r#"providerSpec.disks[0].encryption.kmsKeyServiceAccount: expected an empty string or one that is not blank, found the string " ""#)]
#[case::disk_labels("/disks/0/labels", json!({"a": 1}), "providerSpec.disks[0].labels.a: expected a string, found the number 1")]
#[case::iops("/disks/0/provisionedIops", json!(-1), "providerSpec.disks[0].provisionedIops: expected a whole number of at least 0, found the number -1")]
#[case::throughput("/disks/0/provisionedThroughput", json!(0.5), "providerSpec.disks[0].provisionedThroughput: expected a whole number of at least 0, found a fractional number")]
#[case::pool("/disks/0/storagePool", json!(1), "providerSpec.disks[0].storagePool: expected a string, found the number 1")]
#[case::accelerator("/gpu", json!({"count": 1}), "providerSpec.gpu.acceleratorType: expected a non-empty string, found nothing")]
#[case::accelerators("/gpu", json!({"acceleratorType": "t", "count": 0}), "providerSpec.gpu.count: expected a whole number of at least 1, found the number 0")]
#[case::labels("/labels", json!([]), "providerSpec.labels: expected an object, found a list")]
#[case::user_data("/metadata", json!([{"key": "user-data", "value": "x"}]), "providerSpec.metadata[0].key: user-data is for the user data of the secret")]
#[case::platform("/minCpuPlatform", json!(1), "providerSpec.minCpuPlatform: expected a string, found the number 1")]
#[case::no_interfaces("/networkInterfaces", json!([]), "providerSpec.networkInterfaces: expected at least one network interface, found none")]
#[case::no_network(
    "/networkInterfaces/0/subnetwork",
    Value::Null,
    "providerSpec.networkInterfaces[0]: expected network or subnetwork, found neither"
)]
#[case::subnetwork_elsewhere(
    "/networkInterfaces/0/subnetwork",
    json!("projects/host/regions/us-east1/subnetworks/nodes"),
    r#"providerSpec.networkInterfaces[0].subnetwork: expected a name, or projects/HOST/regions/REGION/subnetworks/NAME in the region of the class, found the string "projects/host/regions/us-east1/subnetwor…""#
)]
#[case::no_network_path(
    "/networkInterfaces/0/network",
    json!("global/networks/vpc"),
    r#"providerSpec.networkInterfaces[0].network: expected a name, or projects/HOST/global/networks/NAME, found the string "global/networks/vpc""#
)]
#[case::external("/networkInterfaces/0/disableExternalIP", json!(0), "providerSpec.networkInterfaces[0].disableExternalIP: expected true or false, found the number 0")]
#[case::stack("/networkInterfaces/0/stackType", json!("IPV6"), r#"providerSpec.networkInterfaces[0].stackType: expected one of IPV4_IPV6, IPV4_ONLY, found the string "IPV6""#)]
#[case::ipv6("/networkInterfaces/0/ipv6accessType", json!("x"), r#"providerSpec.networkInterfaces[0].ipv6accessType: expected one of EXTERNAL, INTERNAL, found the string "x""#)]
#[case::alias("/networkInterfaces/0/useAliasIPs", json!("x"), r#"providerSpec.networkInterfaces[0].useAliasIPs: expected true or false, found the string "x""#)]
#[case::range("/networkInterfaces/0/ipCidrRange", json!("/33"), r#"providerSpec.networkInterfaces[0].ipCidrRange: expected a prefix length from /0 to /32, found the string "/33""#)]
#[case::range("/networkInterfaces/0/ipCidrRange", json!("10.0.0.0/8"), r#"providerSpec.networkInterfaces[0].ipCidrRange: expected a prefix length from /0 to /32, found the string "10.0.0.0/8""#)]
#[case::no_scheduling("/scheduling", Value::Null, "providerSpec.scheduling: expected an object, found nothing")]
#[case::maintenance("/scheduling/onHostMaintenance", json!("x"), r#"providerSpec.scheduling.onHostMaintenance: expected one of MIGRATE, TERMINATE, found the string "x""#)]
#[case::no_maintenance(
    "/scheduling/onHostMaintenance",
    Value::Null,
    "providerSpec.scheduling.onHostMaintenance: expected one of MIGRATE, TERMINATE, found nothing"
)]
#[case::gpu_moves("/gpu", json!({"acceleratorType": "t", "count": 1}), "providerSpec.scheduling.onHostMaintenance: expected TERMINATE for a VM with a GPU, found MIGRATE")]
#[case::restart("/scheduling/automaticRestart", json!("x"), r#"providerSpec.scheduling.automaticRestart: expected true or false, found the string "x""#)]
#[case::preemptible("/scheduling/preemptible", json!("x"), r#"providerSpec.scheduling.preemptible: expected true or false, found the string "x""#)]
#[case::scopes("/serviceAccounts", json!([{"email": "e", "scopes": [1]}]), "providerSpec.serviceAccounts[0].scopes[0]: expected a string, found the number 1")]
#[case::no_tags(
    "/tags",
    Value::Null,
    "providerSpec.tags: expected a tag that contains kubernetes-io-cluster-, found none"
)]
#[case::no_role("/tags", json!(["kubernetes-io-cluster-a"]), "providerSpec.tags: expected a tag that contains kubernetes-io-role-, found none")]
#[case::vtpm("/shieldedInstanceConfiguration", json!({"vtpm": "x"}), r#"providerSpec.shieldedInstanceConfiguration.vtpm: expected true or false, found the string "x""#)]
#[case::nested("/advancedMachineFeatures", json!({"enableNestedVirtualization": 1}), "providerSpec.advancedMachineFeatures.enableNestedVirtualization: expected true or false, found the number 1")]
fn a_wrong_field_is_told_with_its_path(#[case] pointer: &str, #[case] value: Value, #[case] expected: &str) {
    let (errors, _) = texts(&changed(pointer, value));
    assert_eq!(errors.first().map(String::as_str), Some(expected), "{errors:?}");
}

#[rstest]
#[case("/zonee", json!("x"), "providerSpec.zonee: unknown field, ignored: did you mean zone?")]
#[case::of_the_samples("/secretRef", json!({"name": "x"}), "providerSpec.secretRef: unknown field, ignored: known are")]
#[case("/networkInterfaces/0/ipCidrRange", json!("/24"), "providerSpec.networkInterfaces[0].ipCidrRange: ignored without useAliasIPs or stackType IPV4_IPV6")]
#[case("/networkInterfaces/0/ipv6accessType", json!("EXTERNAL"), "providerSpec.networkInterfaces[0].ipv6accessType: ignored without useAliasIPs or stackType IPV4_IPV6")]
#[case("/shieldedInstanceConfiguration", json!({"vtpm": false}), "providerSpec.shieldedInstanceConfiguration.vtpm: false is not sent to Google, as in Gardener's driver: it stays on")]
#[case("/tags", json!(["kubernetes-io-cluster-b", "kubernetes-io-cluster-a", "kubernetes-io-role-node"]), "providerSpec.tags: 2 tags contain kubernetes-io-cluster-: the first in order marks the VMs")]
fn what_has_no_effect_is_a_warning(#[case] pointer: &str, #[case] value: Value, #[case] expected: &str) {
    let (errors, warnings) = texts(&changed(pointer, value));
    assert_eq!((errors.len(), warnings.len()), (0, 1), "{errors:?} {warnings:?}");
    assert!(warnings[0].starts_with(expected), "{warnings:?}");
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
    let spec = spec().to_string().replace("\"zone\"", "\"ZONE\"").replace("\"sizeGb\"", "\"sizegb\"");
    let mut spec: Value = serde_json::from_str(&spec).unwrap();
    spec["gpu"] = Value::Null;
    assert_eq!(problems(&spec), ClassProblems::default());
    let parsed = Spec::read(&spec, &mut ClassProblems::default());
    assert_eq!((parsed.zone.as_str(), parsed.disks[0].size, parsed.gpu), ("europe-west1-b", 50, None));
    assert!(parsed.disks[0].auto_delete, "disks go with their VM unless the class says no");
}

#[rstest]
#[case(62, None, None)]
#[case(
    63,
    None,
    Some(
        "63 labels leave no room for machine-sapcloud-io-owner: no VM shows its namespace, as with Gardener's driver"
    )
)]
#[case(
    64,
    None,
    Some(
        "64 labels leave no room for machine-sapcloud-io-machine-uid and machine-sapcloud-io-owner: no VM shows its machine and its namespace, as with Gardener's driver"
    )
)]
#[case(65, Some("expected at most 64 labels, found 65"), None)]
fn google_limits_labels_and_the_driver_adds_its_own(
    #[case] count: usize,
    #[case] error: Option<&str>,
    #[case] warning: Option<&str>,
) {
    let labels: Value = (0..count).map(|number| (format!("label-{number}"), json!("x"))).collect();
    let with_path = |text: Option<&str>| text.map(|text| format!("providerSpec.labels: {text}"));
    let (errors, warnings) = texts(&changed("/labels", labels));
    assert_eq!(errors, with_path(error).into_iter().collect::<Vec<_>>());
    assert_eq!(warnings, with_path(warning).into_iter().collect::<Vec<_>>());
}
