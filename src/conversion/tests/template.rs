//! The rows of 3.5 on templates, one test for each.

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    TEMPLATE, any, capi_deployment, capi_of, lost, native_deployment, native_of, objects, of_kind, refused, set,
    to_capi, to_native,
};

#[test]
fn r35_the_class_is_found_through_the_template_and_becomes_one() {
    let made = native_of("/spec/replicas", json!(1));
    let class = json!({ "apiGroup": "machine.sapcloud.io", "kind": "MachineClass", "name": "small" });
    assert_eq!(made["spec"]["template"]["spec"]["class"], class);
    let back = objects(to_capi(&native_deployment()));
    let template = of_kind(&back, "MCMMachineTemplate");
    assert_eq!(template["spec"]["template"]["spec"], json!({ "machineClassRef": { "name": "small" } }));
    let reference = &of_kind(&back, "MachineDeployment")["spec"]["template"]["spec"]["infrastructureRef"];
    assert_eq!(reference["name"], template["metadata"]["name"]);
    assert_eq!(reference["kind"], "MCMMachineTemplate");
}

#[rstest]
#[case("kind", "AzureMachineTemplate")]
#[case("apiGroup", "example.com")]
#[case("name", "missing")]
fn r35_another_provider_or_a_missing_template_is_refused(#[case] field: &str, #[case] value: &str) {
    let mut given = capi_deployment();
    set(&mut given[0], &format!("{TEMPLATE}/infrastructureRef/{field}"), json!(value));
    assert_eq!(refused(&to_native(&given)), ["spec.template.spec.infrastructureRef"]);
}

#[rstest]
#[case(json!({ "configRef": { "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfigTemplate", "name": "x" } }),
    "spec.template.spec.bootstrap.configRef")]
#[case(json!({}), "spec.template.spec.bootstrap.dataSecretName")]
#[case(json!({ "dataSecretName": "" }), "spec.template.spec.bootstrap.dataSecretName")]
fn r35_bootstrap_data_must_be_a_secret(#[case] bootstrap: Value, #[case] path: &str) {
    let mut given = capi_deployment();
    given.extend(any::class());
    set(&mut given[0], &format!("{TEMPLATE}/bootstrap"), bootstrap);
    assert_eq!(refused(&to_native(&given)), [path]);
}

#[test]
fn r35_another_bootstrap_secret_needs_a_class_of_its_own() {
    let mut given = capi_deployment();
    set(&mut given[0], &format!("{TEMPLATE}/bootstrap/dataSecretName"), json!("join"));
    assert_eq!(refused(&to_native(&given)), ["spec.template.spec.bootstrap.dataSecretName"], "the class is not there");

    given.extend(any::class());
    given.push(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "join", "namespace": "demo" },
        "type": "cluster.x-k8s.io/secret", "stringData": { "value": "#cloud-config" },
    }));
    let made = objects(to_native(&given));
    let name = of_kind(&made, "MachineDeployment")["spec"]["template"]["spec"]["class"]["name"].as_str().unwrap();
    assert!(name.starts_with("small-"), "{name}");
    let class = made.iter().find(|object| object["metadata"]["name"] == name).unwrap();
    assert_eq!(class["secretRef"], json!({ "name": "join-userdata", "namespace": "demo" }));
    assert_eq!(class["credentialsSecretRef"]["name"], "cloud");
    assert_eq!(class["providerSpec"], json!({ "x": null }));
    let secret = made.iter().find(|object| object["metadata"]["name"] == "join-userdata").unwrap();
    assert_eq!(secret["data"], json!({ "userData": "I2Nsb3VkLWNvbmZpZw==" }));
    assert!(made.iter().all(|object| object["metadata"]["name"] != "join"));
}

/// A class is used as it is only if its VMs boot with the same data.
#[rstest]
#[case::the_same(Some("am9pbg=="), false, false)]
#[case::another(Some("b3RoZXI="), true, false)]
#[case::not_known(None, false, true)]
fn r35_the_data_of_the_bootstrap_secret_is_that_of_the_class(
    #[case] own: Option<&str>,
    #[case] is_derived: bool,
    #[case] is_reported: bool,
) {
    let secret = |name: &str, key: &str, data: &str| {
        let metadata = json!({ "name": name, "namespace": "demo" });
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": { key: data } })
    };
    let mut given = capi_deployment();
    given.extend(any::class());
    given.push(secret("small-bootstrap", "value", "am9pbg=="));
    given.extend(own.map(|data| secret("cloud", "userData", data)));
    let conversion = to_native(&given);
    assert_eq!(lost(&conversion).contains(&"spec.template.spec.bootstrap.dataSecretName"), is_reported);
    let made = objects(conversion);
    let class = &of_kind(&made, "MachineDeployment")["spec"]["template"]["spec"]["class"]["name"];
    assert_eq!(class != "small", is_derived);
}

#[test]
fn r35_a_class_without_a_secret_is_not_used_as_it_is() {
    let mut given = capi_deployment();
    given.extend(any::class());
    set(&mut given[2], "/secretRef", Value::Null);
    let made = objects(to_native(&given));
    assert_ne!(of_kind(&made, "MachineDeployment")["spec"]["template"]["spec"]["class"]["name"], "small");
}

/// Native classes can be changed; a class derived from the former one is then outdated.
#[test]
fn r35_a_derived_class_that_was_changed_stays() {
    let mut given = capi_deployment();
    set(&mut given[0], &format!("{TEMPLATE}/bootstrap/dataSecretName"), json!("join"));
    given.extend(any::class());
    let mut native = objects(to_native(&given));
    let class =
        native.iter_mut().find(|one| one["metadata"]["annotations"]["conversion.mcm/made-from"].is_string()).unwrap();
    let name = class["metadata"]["name"].clone();
    let back = objects(to_capi(&native.clone()));
    assert_eq!(of_kind(&back, "MCMMachineTemplate")["spec"]["template"]["spec"]["machineClassRef"]["name"], "small");
    assert!(back.iter().all(|one| one["metadata"]["name"] != name));

    let class = native.iter_mut().find(|one| one["metadata"]["name"] == name).unwrap();
    set(class, "/providerSpec/size", json!("huge"));
    let back = objects(to_capi(&native));
    assert_eq!(of_kind(&back, "MCMMachineTemplate")["spec"]["template"]["spec"]["machineClassRef"]["name"], name);
    assert!(back.iter().any(|one| one["metadata"]["name"] == name));
}

#[test]
fn r35_user_data_becomes_a_bootstrap_secret() {
    let mut given = native_deployment();
    given.extend(any::class());
    let secret = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "cloud", "namespace": "demo" },
            "stringData": { "userData": text },
        })
    };
    given.push(secret("#cloud-config"));
    let made = objects(to_capi(&given));
    let found = made.iter().find(|object| object["metadata"]["name"] == "small-bootstrap").unwrap();
    assert_eq!(found["type"], "cluster.x-k8s.io/secret");
    assert_eq!(found["data"], json!({ "value": "I2Nsb3VkLWNvbmZpZw==", "format": "Y2xvdWQtY29uZmln" }));
    assert_eq!(found["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"], "c1");
    assert_eq!(made[0]["spec"]["template"]["spec"]["bootstrap"], json!({ "dataSecretName": "small-bootstrap" }));

    *given.last_mut().unwrap() = secret("token: <<BOOTSTRAP_TOKEN>>");
    assert_eq!(refused(&to_capi(&given)), ["spec.template.spec.class"], "nothing replaces the placeholder");
}

#[test]
fn r35_the_version_is_a_template_annotation_so_that_its_change_rolls() {
    let made = native_of(&format!("{TEMPLATE}/version"), json!("1.34.0"));
    assert_eq!(made["spec"]["template"]["metadata"]["annotations"]["conversion.mcm/version"], "v1.34.0");
    let back = objects(to_capi(&[made]));
    assert_eq!(back[0]["spec"]["template"]["spec"]["version"], "v1.34.0");
    assert_eq!(back[0]["spec"]["template"]["metadata"]["annotations"], Value::Null);
}

#[rstest]
#[case("eu-a", &[])]
#[case("eu-b", &["spec.template.spec.failureDomain"])]
fn r35_a_zone_needs_a_class_of_that_zone(#[case] zone: &str, #[case] paths: &[&str]) {
    let mut given = capi_deployment();
    set(&mut given[0], &format!("{TEMPLATE}/failureDomain"), json!(zone));
    assert_eq!(refused(&to_native(&given)), ["spec.template.spec.failureDomain"], "the class is not there");
    given.extend(any::class());
    assert_eq!(refused(&to_native(&given)), paths);
}

#[test]
fn r35_the_zone_of_the_class_is_the_failure_domain() {
    let mut given = native_deployment();
    given.extend(any::class());
    assert_eq!(objects(to_capi(&given))[0]["spec"]["template"]["spec"]["failureDomain"], "eu-a");
}

/// Trap T7.
#[rstest]
#[case(Value::Null, "876000h0m0s")]
#[case(json!(0), "876000h0m0s")]
#[case(json!(90), "1m30s")]
fn r35_no_drain_limit_is_never_written_as_absent_or_zero(#[case] given: Value, #[case] expected: &str) {
    let made = native_of(&format!("{TEMPLATE}/deletion/nodeDrainTimeoutSeconds"), given);
    assert_eq!(made["spec"]["template"]["spec"]["drainTimeout"], expected);
}

#[rstest]
#[case(Value::Null, json!(7200))]
#[case(json!("0s"), json!(1))]
#[case(json!("90s"), json!(90))]
#[case(json!("876000h"), Value::Null)]
fn r35_an_absent_native_drain_limit_is_two_hours(#[case] given: Value, #[case] expected: Value) {
    let made = capi_of(&format!("{TEMPLATE}/drainTimeout"), given);
    assert_eq!(made["spec"]["template"]["spec"]["deletion"]["nodeDrainTimeoutSeconds"], expected);
}

#[rstest]
#[case("drainTimeout")]
#[case("creationTimeout")]
#[case("healthTimeout")]
fn r35_a_limit_that_seconds_cannot_hold_is_refused(#[case] field: &str) {
    let mut given = native_deployment();
    set(&mut given[0], &format!("{TEMPLATE}/{field}"), json!("600000h"));
    assert_eq!(refused(&to_capi(&given)), [format!("spec.template.spec.{field}")]);
}

#[rstest]
#[case("nodeVolumeDetachTimeoutSeconds")]
#[case("nodeDeletionTimeoutSeconds")]
fn r35_other_limits_of_a_deletion_are_noted_and_restored(#[case] field: &str) {
    let mut given = capi_deployment();
    set(&mut given[0], &format!("{TEMPLATE}/deletion/{field}"), json!(33));
    let conversion = to_native(&given);
    assert!(lost(&conversion).contains(&format!("spec.template.spec.deletion.{field}").as_str()));
    let back = objects(to_capi(&objects(conversion)));
    assert_eq!(back[0]["spec"]["template"]["spec"]["deletion"][field], 33);
}

#[test]
fn r35_taints_that_are_always_kept_cross_and_others_are_refused() {
    let taint =
        |propagation: &str| json!([{ "key": "a", "value": "b", "effect": "NoSchedule", "propagation": propagation }]);
    let made = native_of(&format!("{TEMPLATE}/taints"), taint("Always"));
    let native = json!([{ "key": "a", "value": "b", "effect": "NoSchedule" }]);
    assert_eq!(made["spec"]["template"]["spec"]["nodeTemplate"]["spec"]["taints"], native);
    let made = capi_of(&format!("{TEMPLATE}/nodeTemplate/spec/taints"), native);
    assert_eq!(made["spec"]["template"]["spec"]["taints"], taint("Always"));

    let mut given = capi_deployment();
    set(&mut given[0], &format!("{TEMPLATE}/taints"), taint("OnInitialization"));
    assert_eq!(refused(&to_native(&given)), ["spec.template.spec.taints[0].propagation"]);
}

#[rstest]
#[case("machine.cluster.x-k8s.io/exclude-node-draining")]
#[case("pre-drain.delete.hook.machine.cluster.x-k8s.io/backup")]
#[case("pre-terminate.delete.hook.machine.cluster.x-k8s.io")]
#[case("cluster.x-k8s.io/remediate-machine")]
fn r35_annotations_that_change_deletions_are_refused(#[case] key: &str) {
    let mut given = capi_deployment();
    set(&mut given[0], "/spec/template/metadata/annotations", json!({ key: "" }));
    assert_eq!(refused(&to_native(&given)), [format!("spec.template.metadata.annotations['{key}']")]);
}

#[test]
fn r35_a_control_plane_is_refused() {
    let mut given = capi_deployment();
    set(&mut given[0], "/spec/template/metadata/labels/cluster.x-k8s.io~1control-plane", json!(""));
    let path = "spec.template.metadata.labels['cluster.x-k8s.io/control-plane']";
    assert_eq!(refused(&to_native(&given)), [path]);
}

#[test]
fn r35_the_label_that_permits_are_counted_by_is_the_name_of_the_deployment() {
    let made = native_of("/spec/replicas", json!(1));
    assert_eq!(made["spec"]["template"]["metadata"]["labels"]["name"], "pool");
    let back = objects(to_capi(&[made]));
    let labels = json!({ "pool": "a", "cluster.x-k8s.io/cluster-name": "c1" });
    assert_eq!(back[0]["spec"]["template"]["metadata"]["labels"], labels);
    let selected = objects(to_capi(&native_deployment()));
    assert_eq!(selected[0]["spec"]["template"]["metadata"]["labels"]["name"], "pool", "the selector uses it");
}
