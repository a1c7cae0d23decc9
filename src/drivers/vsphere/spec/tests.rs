//! Valid and invalid fields of a class, with the problems that are reported.

use mcm_driver::spec::ClassProblems;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Scope, Spec};

fn spec() -> Value {
    json!({
        "region": "r", "datacenter": "DC0", "datastore": "ds", "hostSystem": "host", "templateVM": "t", "network": "n",
        "tags": {"mcm.gardener.cloud/cluster": "c", "mcm.gardener.cloud/role": "node"},
    })
}

fn changed(changes: &Value) -> Value {
    let mut spec = spec();
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
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
    let read = Spec::read(&spec(), &mut problems);
    assert_eq!(problems, ClassProblems::default());
    let [datacenter, cluster, role] = ["DC0", "c", "node"].map(str::to_owned);
    assert_eq!(read.scope().unwrap(), Scope { datacenter, folder: String::new(), cluster, role });
}

#[test]
fn every_field_is_read_and_keys_match_in_any_case() {
    let value = json!({
        "REGION": "r", "dataCenter": "dc", "Datastore": "ds", "RESOURCEPOOL": "pool", "Folder": "f/g", "NUMCPUS": 4,
        "Memory": 8192, "memoryReservationLockedToMax": true, "systemDisk": {"SIZE": 20}, "extraConfig": {"a": "b"},
        "network": "n", "switchUUID": "s", "templateVm": "t", "guestID": "g", "vApp": {"Properties": {"p": "q"}},
        "force": false, "waitForIp": true, "customization": "c", "sshkeys": [" k \n"], "hostSystem": null,
        "tags": {"kubernetes.io/cluster/c": "1", "kubernetes.io/role/node": "1"},
    });
    let mut problems = ClassProblems::default();
    let read = Spec::read(&value, &mut problems);
    assert_eq!(problems, ClassProblems::default());
    assert_eq!((read.cpus, read.memory, read.reserves_memory, read.disk), (Some(4), Some(8192), Some(true), Some(20)));
    assert_eq!((read.waits_for_ip, read.ssh_keys.as_slice()), (true, &["k".to_owned()][..]));
    assert_eq!(read.properties.as_ref().unwrap()["p"], "q");
    assert_eq!(read.extra_config["a"], "b");
    let places = &read.places;
    assert_eq!(
        (places.folder.as_str(), places.switch.as_deref(), places.pool.as_deref()),
        ("f/g", Some("s"), Some("pool"))
    );
    let scope = read.scope().unwrap();
    assert_eq!((scope.cluster.as_str(), scope.role.as_str()), ("c", "node"));
}

#[rstest]
#[case::template(json!({"templateVM": ""}), "providerSpec.templateVM: expected a non-empty string, found an empty string")]
#[case::network(json!({"network": null}), "providerSpec.network: expected a non-empty string, found nothing")]
#[case::datastore(json!({"datastore": ""}), "providerSpec.datastore: expected it or datastoreCluster, found neither")]
#[case::place(json!({"hostSystem": null}), "providerSpec.computeCluster: expected it, resourcePool or hostSystem, found none of them")]
#[case::cpus(json!({"numCpus": "4"}), r#"providerSpec.numCpus: expected a whole number, found the string "4""#)]
#[case::disk(json!({"systemDisk": {"size": 0}}), "providerSpec.systemDisk.size: expected a whole number from 1 to 63488, found the number 0")]
#[case::no_disk(json!({"systemDisk": {}}), "providerSpec.systemDisk.size: expected a whole number from 1 to 63488, found nothing")]
#[case::region(json!({"region": "a/b"}), r#"providerSpec.region: expected a text without /, as a part of provider IDs, found "a/b""#)]
#[case::up(json!({"folder": "a/../../b"}), "providerSpec.folder: expected a path that does not lead up, found one with ..")]
#[case::control(json!({"extraConfig": {"a": "\u{1}"}}), "providerSpec.extraConfig: a key or value has control characters")]
#[case::path_with_control(json!({"network": "a\nb"}), "providerSpec.network: it has control characters")]
#[case::own_extra(json!({"extraConfig": {"mcm.cluster": "x"}}), r#"providerSpec.extraConfig: "mcm.cluster" is a key of mcm"#)]
#[case::property(json!({"vapp": {"properties": {"a": 7}}}), "providerSpec.vapp.properties.a: expected a string, found the number 7")]
#[case::role(json!({"tags": {"mcm.gardener.cloud/cluster": "c"}}), "providerSpec.tags: expected mcm.gardener.cloud/role, or a key that begins with kubernetes.io/role/, found neither")]
#[case::empty_cluster(json!({"tags": {"kubernetes.io/cluster/": "", "kubernetes.io/role/n": ""}}), "providerSpec.tags: expected a value of mcm.gardener.cloud/cluster, found an empty one")]
fn a_wrong_field_is_reported_with_its_path(#[case] changes: Value, #[case] expected: &str) {
    let (errors, _) = texts(&changed(&changes));
    assert_eq!(errors, [expected]);
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
#[case(json!({"force": true}), "providerSpec.force: without effect: a clone never overwrites the files of another VM")]
#[case(json!({"networks": []}), "providerSpec.networks: unknown field, ignored: did you mean network?")]
#[case(json!({"computeCluster": "c", "hostSystem": null}), "providerSpec.datastore: ignored: with computeCluster, vSphere chooses the datastore; use hostSystem or resourcePool instead")]
#[case(json!({"datastoreCluster": "p"}), "providerSpec.datastore: ignored: datastoreCluster is given and decides")]
#[case(json!({"resourcePool": "p"}), "providerSpec.hostSystem: its resource pool is used, whatever the other fields say")]
#[case(json!({"resourcePool": "p", "computeCluster": "c", "hostSystem": null, "datastore": null, "datastoreCluster": "d"}), "providerSpec.resourcePool: ignored: computeCluster is given and decides")]
#[case(json!({"tags": {"mcm.gardener.cloud/cluster": "c", "mcm.gardener.cloud/role": "node", "machine.sapcloud.io/owner": "x"}}), "providerSpec.tags: machine.sapcloud.io/owner is ignored: mcm sets this custom field itself")]
#[case(json!({"tags": {"mcm.gardener.cloud/cluster": "c", "mcm.gardener.cloud/role": "node", "kubernetes.io/cluster/d": "x"}}), "providerSpec.tags: 2 keys mean the same as mcm.gardener.cloud/cluster: it, or the first of the others, counts")]
fn a_field_without_an_effect_is_a_warning(#[case] changes: Value, #[case] expected: &str) {
    let value = changed(&changes);
    assert_eq!(texts(&value), (vec![], vec![expected.to_owned()]));
    assert_eq!(Spec::read(&value, &mut ClassProblems::default()).scope().unwrap().cluster, "c");
}

#[test]
fn a_number_that_is_not_positive_is_none() {
    let read = Spec::read(&changed(&json!({"numCpus": 0, "memory": -1})), &mut ClassProblems::default());
    assert_eq!((read.cpus, read.memory), (None, None));
}

#[test]
fn vms_of_a_class_with_other_errors_can_still_be_found() {
    let tags = json!({"kubernetes.io/cluster/c": "", "kubernetes.io/role/node": ""});
    let spec = Spec::read(&json!({"tags": tags, "numCpus": "x"}), &mut ClassProblems::default());
    assert_eq!(spec.scope().unwrap().role, "node");
    Spec::read(&json!({}), &mut ClassProblems::default()).scope().unwrap_err();
}
