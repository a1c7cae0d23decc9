//! Valid and invalid fields of a class, with the problems that are reported.

use mcm_driver::spec::ClassProblems;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Devices, Network, Source, Spec};
use crate::tests::{spec, spec_with};

fn texts(value: &Value) -> (Vec<String>, Vec<String>) {
    let mut problems = ClassProblems::default();
    Spec::read(value, &mut problems);
    let texts = |all: &[_]| all.iter().map(ToString::to_string).collect();
    (texts(&problems.errors), texts(&problems.warnings))
}

#[test]
fn a_class_with_the_required_fields_is_valid() {
    let mut problems = ClassProblems::default();
    let read = Spec::read(&spec(), &mut problems);
    assert_eq!(problems, ClassProblems::default());
    assert_eq!(read.scope().unwrap().cluster.to_string(), "mcm.gardener.cloud/cluster=shoot");
}

#[test]
fn keys_are_read_in_any_case_and_null_is_absent() {
    let value = json!({
        "REGION": "r", "Zone": "z", "Resources": {"Requests": {"cpu": 1, "memory": "4096Mi"}},
        "rootvolume": {"PVC": {"resources": {"requests": {"storage": "8Gi"}}}}, "SSHKeys": ["k"], "dnsPolicy": null,
        "Devices": {"Disks": [{"Name": "root-disk"}], "BlockMultiqueue": true, "networkInterfaceMultiQueue": true},
        "NETWORKS": [{"Name": "a/b", "DEFAULT": true}],
        "AdditionalVolumes": [{"NAME": "a", "VolumeSource": {"ConfigMap": {"name": "c"}}}],
        "tags": {"mcm.gardener.cloud/cluster": "c", "mcm.gardener.cloud/role": "node"},
    });
    let mut problems = ClassProblems::default();
    let read = Spec::read(&value, &mut problems);
    assert_eq!(problems, ClassProblems::default());
    assert_eq!((read.region.as_str(), read.zone.as_str(), read.ssh_keys.len()), ("r", "z", 1));
    assert_eq!(read.resources, json!({"requests": {"cpu": "1", "memory": "4096Mi"}}));
    assert_eq!(read.root_volume["pvc"]["resources"]["requests"]["storage"], "8Gi");
    let disks = vec![json!({"name": "root-disk"})];
    assert_eq!(read.devices, Devices { disks, rng: None, block_multi_queue: true, network_interface_multiqueue: true });
    assert_eq!(read.networks, [Network { name: "a/b".to_owned(), is_default: true }]);
    assert_eq!(read.additional_volumes[0].source, Source::Existing("configMap", json!({"name": "c"})));
}

#[rstest]
#[case::region("region", Value::Null, "providerSpec.region: expected a non-empty string, found nothing")]
#[case::zone("zone", json!(""), "providerSpec.zone: expected a non-empty string, found an empty string")]
#[case::no_resources("resources", json!([]), "providerSpec.resources: expected an object, found a list")]
#[case::no_memory("resources", json!({"requests": {"cpu": "1"}}), "providerSpec.resources.requests.memory: expected a quantity above zero, found nothing")]
#[case::no_cpu("resources", json!({"requests": {"cpu": "0", "memory": "1Gi"}}), "providerSpec.resources.requests.cpu: expected a quantity above zero, found the string \"0\"")]
#[case::limits_only("resources", json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "providerSpec.resources.requests.cpu: expected a quantity above zero, found nothing")]
#[case::no_root_volume("rootVolume", Value::Null, "providerSpec.rootVolume.pvc: expected an object, found nothing")]
#[case::storage_instead_of_pvc("rootVolume", json!({"storage": {"resources": {"requests": {"storage": "1Gi"}}}}), "providerSpec.rootVolume.pvc: expected an object, found nothing")]
#[case::no_storage("rootVolume", json!({"pvc": {}}), "providerSpec.rootVolume.pvc.resources.requests.storage: expected a quantity above zero, found nothing")]
#[case::volume_without_a_name("additionalVolumes", json!([{"volumeSource": {"secret": {}}}]), "providerSpec.additionalVolumes[0].name: expected a non-empty string, found nothing")]
#[case::volume_without_a_source("additionalVolumes", json!([{"name": "a", "volumeSource": {}}]), "providerSpec.additionalVolumes[0]: expected dataVolume, or volumeSource with one of persistentVolumeClaim, configMap, secret, found none")]
#[case::volume_with_two_sources("additionalVolumes", json!([{"name": "a", "volumeSource": {"secret": {}, "configMap": {}}}]), "providerSpec.additionalVolumes[0]: expected dataVolume, or volumeSource with one of persistentVolumeClaim, configMap, secret, found several")]
#[case::volume_without_storage("additionalVolumes", json!([{"name": "a", "dataVolume": {"pvc": {}}}]), "providerSpec.additionalVolumes[0].dataVolume.pvc.resources.requests.storage: expected a quantity above zero, found nothing")]
#[case::disks("devices", json!({"disks": {}}), "providerSpec.devices.disks: expected a list, found an object")]
#[case::more_disks_than_volumes("devices", json!({"disks": [{"name": "root-disk"}, {"name": "root-disk"}]}), "providerSpec.devices.disks: expected at most 1, one for each volume, found 2")]
#[case::disk_twice("devices", json!({"disks": [{"name": "root-disk"}, {"name": "root-disk"}]}), "providerSpec.devices.disks[1].name: given twice")]
#[case::disk_without_a_volume("devices", json!({"disks": [{"name": "a"}]}), "providerSpec.devices.disks[0].name: expected root-disk, or the name of an additional volume, found the string \"a\"")]
#[case::disk_without_a_name("devices", json!({"disks": [{}]}), "providerSpec.devices.disks[0].name: expected root-disk, or the name of an additional volume, found nothing")]
#[case::boot_order("devices", json!({"disks": [{"name": "root-disk", "bootOrder": 1}]}), "providerSpec.devices.disks[0].bootOrder: not allowed: the VM boots from its root volume")]
#[case::queues("devices", json!({"blockMultiQueue": "yes"}), "providerSpec.devices.blockMultiQueue: expected true or false, found the string \"yes\"")]
#[case::keys("sshKeys", json!(["a\n- b"]), "providerSpec.sshKeys[0]: expected a string of one line, found the string \"a - b\"")]
#[case::network_without_a_name("networks", json!([{"default": true}]), "providerSpec.networks[0].name: expected a non-empty string, found nothing")]
#[case::two_defaults("networks", json!([{"name": "a", "default": true}, {"name": "b", "default": true}]), "providerSpec.networks[1].default: another network is the default already")]
#[case::cpu("cpu", json!(2), "providerSpec.cpu: expected an object, found the number 2")]
#[case::memory("memory", json!("2Gi"), "providerSpec.memory: expected an object, found the string \"2Gi\"")]
#[case::dns_policy("dnsPolicy", json!("none"), "providerSpec.dnsPolicy: expected one of ClusterFirstWithHostNet, ClusterFirst, Default, None, found the string \"none\"")]
#[case::dns_without_servers("dnsPolicy", json!("None"), "providerSpec.dnsConfig.nameservers: expected nameservers for dnsPolicy None, found none")]
fn a_wrong_field_is_reported_with_its_path(#[case] name: &str, #[case] value: Value, #[case] expected: &str) {
    let (errors, _) = texts(&spec_with(&json!({name: value})));
    assert!(errors.iter().any(|error| error == expected), "{errors:#?}");
}

#[rstest]
#[case::none(json!({}), "providerSpec.tags: expected mcm.gardener.cloud/cluster, or a key that begins with kubernetes.io-cluster-, found neither")]
#[case::no_role(json!({"mcm.gardener.cloud/cluster": "a"}), "providerSpec.tags: expected mcm.gardener.cloud/role, or a key that begins with kubernetes.io-role-, found neither")]
#[case::no_cluster(json!({"mcm.gardener.cloud/cluster": "", "mcm.gardener.cloud/role": "node"}), "providerSpec.tags: expected a value of mcm.gardener.cloud/cluster, found an empty one")]
#[case::not_a_value(json!({"mcm.gardener.cloud/cluster": "a", "mcm.gardener.cloud/role": "node", "a": "node,"}), "providerSpec.tags.a: expected a value of a label, found the string \"node,\"")]
#[case::not_a_key(json!({"mcm.gardener.cloud/cluster": "a", "mcm.gardener.cloud/role": "node", "a/b/c": ""}), "providerSpec.tags.a/b/c: the key is not that of a label")]
#[case::not_a_text(json!({"mcm.gardener.cloud/cluster": "a", "mcm.gardener.cloud/role": "node", "a": 7}), "providerSpec.tags.a: expected a string, found the number 7")]
fn tags_are_labels_and_mark_the_cluster_and_the_role(#[case] tags: Value, #[case] expected: &str) {
    let (errors, _) = texts(&spec_with(&json!({"tags": tags})));
    assert!(errors.iter().any(|error| error == expected), "{errors:#?}");
}

#[rstest]
#[case(Value::Null)]
#[case(json!(7))]
#[case(json!([]))]
fn a_class_that_is_not_an_object_is_refused(#[case] value: Value) {
    let (errors, _) = texts(&value);
    assert!(errors[0].starts_with("providerSpec: expected an object"), "{errors:?}");
}

#[rstest]
#[case(json!({"network": []}), "providerSpec.network: unknown field, ignored: did you mean networks?")]
#[case(json!({"tags": {"mcm.gardener.cloud/cluster": "a", "mcm.gardener.cloud/role": "node", "machine.sapcloud.io/owner": "x"}}), "providerSpec.tags.machine.sapcloud.io/owner: ignored: mcm sets this label itself")]
#[case(json!({"tags": {"mcm.gardener.cloud/cluster": "a", "mcm.gardener.cloud/role": "node", "kubernetes.io-cluster-b": ""}}), "providerSpec.tags: several tags are markers: mcm.gardener.cloud/cluster=a marks the VMs")]
fn a_field_without_an_effect_is_a_warning(#[case] change: Value, #[case] expected: &str) {
    assert_eq!(texts(&spec_with(&change)), (vec![], vec![expected.to_owned()]));
}

#[test]
fn vms_of_a_class_with_other_errors_can_still_be_found() {
    let value = json!({"tags": {"mcm.gardener.cloud/cluster": "c", "mcm.gardener.cloud/role": "node"}});
    Spec::read(&value, &mut ClassProblems::default()).scope().unwrap();
    Spec::read(&json!({"region": "r"}), &mut ClassProblems::default()).scope().unwrap_err();
}
