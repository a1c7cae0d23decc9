//! The rows of 3.5 that concern single Machines, and sets.

use rstest::rstest;
use serde_json::{Value, json};

use super::{any, lost, objects, of_kind, refused, set, to_capi, to_native};

fn capi_machine() -> Vec<Value> {
    let mut all = vec![
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Machine",
            "metadata": { "name": "vm-1", "namespace": "demo" },
            "spec": {
                "clusterName": "c1",
                "bootstrap": { "dataSecretName": "small-bootstrap" },
                "infrastructureRef": {
                    "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMMachine", "name": "vm-1",
                },
                "providerID": "gce://p/eu-a/vm-1",
            },
            "status": { "nodeRef": { "name": "node-1" }, "phase": "Running" },
        }),
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
            "kind": "MCMMachine",
            "metadata": { "name": "vm-1", "namespace": "demo" },
            "spec": { "machineClassRef": { "name": "small" }, "providerID": "gce://p/eu-a/vm-1" },
        }),
    ];
    all.extend(any::class());
    all
}

fn native_machine() -> Vec<Value> {
    let mut all = vec![json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": {
            "name": "vm-1", "namespace": "demo",
            "labels": { "cluster.x-k8s.io/cluster-name": "c1", "node": "node-1" },
        },
        "spec": { "class": { "kind": "MachineClass", "name": "small" }, "providerID": "gce:///p/eu-a/vm-1" },
    })];
    all.extend(any::class());
    all
}

#[test]
fn r35_the_node_is_a_label_natively_and_a_reference_in_the_status() {
    let made = of_kind(&objects(to_native(&capi_machine())), "Machine").clone();
    assert_eq!(made["metadata"]["labels"]["node"], "node-1");
    let made = of_kind(&objects(to_capi(&native_machine())), "Machine").clone();
    assert_eq!(made["status"], json!({ "nodeRef": { "name": "node-1" } }));
    assert_eq!(made["metadata"]["labels"], json!({ "cluster.x-k8s.io/cluster-name": "c1" }));
}

#[test]
fn r35_the_id_of_the_vm_has_the_form_of_its_side() {
    let made = of_kind(&objects(to_native(&capi_machine())), "Machine").clone();
    assert_eq!(made["spec"]["providerID"], "gce:///p/eu-a/vm-1");
    let made = objects(to_capi(&native_machine()));
    assert_eq!(of_kind(&made, "Machine")["spec"]["providerID"], "gce://p/eu-a/vm-1");
    assert_eq!(of_kind(&made, "MCMMachine")["spec"]["providerID"], "gce://p/eu-a/vm-1");
}

#[test]
fn r35_the_id_in_the_infrastructure_object_is_as_good() {
    let mut given = capi_machine();
    set(&mut given[0], "/spec/providerID", json!(""));
    let made = of_kind(&objects(to_native(&given)), "Machine").clone();
    assert_eq!(made["spec"]["providerID"], "gce:///p/eu-a/vm-1");
}

#[test]
fn r35_an_id_whose_zone_is_not_known_is_refused() {
    let mut given = native_machine();
    set(&mut given[0], "/spec/providerID", json!("aws:///eu-west-1/i-1"));
    assert_eq!(refused(&to_capi(&given)), ["spec.providerID"]);
    set(&mut given[1], "/nodeTemplate/zone", json!("eu-west-1c"));
    let made = of_kind(&objects(to_capi(&given)), "Machine").clone();
    assert_eq!(made["spec"]["providerID"], "aws:///eu-west-1c/i-1");
}

#[test]
fn r35_deleted_first_is_priority_one() {
    let (mark, priority) = ("cluster.x-k8s.io/delete-machine", "machinepriority.machine.sapcloud.io");
    let mut given = capi_machine();
    set(&mut given[0], "/metadata/annotations", json!({ mark: "yes" }));
    let native = objects(to_native(&given));
    let made = of_kind(&native, "Machine");
    assert_eq!(made["metadata"]["annotations"][priority], "1");
    assert_eq!(made["metadata"]["annotations"][mark], Value::Null);
    let back = objects(to_capi(&native));
    assert_eq!(of_kind(&back, "Machine")["metadata"]["annotations"][mark], "yes");

    let mut given = native_machine();
    set(&mut given[0], "/metadata/annotations", json!({ priority: "1" }));
    let made = of_kind(&objects(to_capi(&given)), "Machine").clone();
    assert_eq!(made["metadata"]["annotations"][mark], "");
    set(&mut given[0], "/metadata/annotations", json!({ priority: "2" }));
    let conversion = to_capi(&given);
    assert!(lost(&conversion).contains(&format!("metadata.annotations['{priority}']").as_str()));
    assert_eq!(of_kind(&conversion.objects, "Machine")["metadata"]["annotations"][priority], "2");
}

#[test]
fn r35_skip_remediation_is_a_disabled_health_timeout() {
    let key = "cluster.x-k8s.io/skip-remediation";
    let mut given = capi_machine();
    set(&mut given[0], "/metadata/annotations", json!({ key: "" }));
    let made = of_kind(&objects(to_native(&given)), "Machine").clone();
    assert_eq!(made["spec"]["disableHealthTimeout"], true);

    let mut given = native_machine();
    set(&mut given[0], "/spec/disableHealthTimeout", json!(true));
    let made = of_kind(&objects(to_capi(&given)), "Machine").clone();
    assert_eq!(made["metadata"]["annotations"][key], "");
}

#[test]
fn r35_a_control_plane_machine_is_allowed() {
    let mut given = capi_machine();
    set(&mut given[0], "/metadata/labels", json!({ "cluster.x-k8s.io/control-plane": "" }));
    let made = of_kind(&objects(to_native(&given)), "Machine").clone();
    assert_eq!(made["metadata"]["labels"]["cluster.x-k8s.io/control-plane"], "");
}

#[test]
fn r35_min_ready_seconds_of_a_machine_are_noted_and_restored() {
    let mut given = capi_machine();
    set(&mut given[0], "/spec/minReadySeconds", json!(5));
    let conversion = to_native(&given);
    assert!(lost(&conversion).contains(&"spec.minReadySeconds"));
    let back = objects(to_capi(&objects(conversion)));
    assert_eq!(of_kind(&back, "Machine")["spec"]["minReadySeconds"], 5);
}

#[test]
fn r35_the_name_of_the_deployment_is_a_label_of_the_machine() {
    let mut given = capi_machine();
    set(&mut given[0], "/metadata/labels", json!({ "cluster.x-k8s.io/deployment-name": "pool" }));
    let made = of_kind(&objects(to_native(&given)), "Machine").clone();
    assert_eq!(made["metadata"]["labels"]["name"], "pool");
}

#[test]
fn r33_the_limit_of_the_deletion_of_a_node_is_written() {
    let made = of_kind(&objects(to_capi(&native_machine())), "Machine").clone();
    assert_eq!(made["spec"]["deletion"]["nodeDeletionTimeoutSeconds"], 10);
}

#[test]
fn r35_an_id_that_differs_from_that_of_the_infrastructure_object_is_refused() {
    let mut given = capi_machine();
    set(&mut given[1], "/spec/providerID", json!("gce://p/eu-a/vm-2"));
    assert_eq!(refused(&to_native(&given)), ["spec.providerID"]);
}

/// Natively the label names the Node, which is deleted with its Machine.
#[test]
fn r35_a_label_that_would_claim_a_node_is_refused() {
    let mut given = capi_machine();
    set(&mut given[0], "/metadata/labels", json!({ "node": "another" }));
    assert_eq!(refused(&to_native(&given)), ["metadata.labels['node']"]);
    let mut given = super::capi_deployment();
    set(&mut given[0], "/spec/template/metadata/labels/node", json!("x"));
    assert_eq!(refused(&to_native(&given)), ["spec.template.metadata.labels['node']"]);
    let mut given = super::native_deployment();
    set(&mut given[0], "/spec/template/metadata/labels/node", json!("x"));
    assert_eq!(refused(&to_capi(&given)), ["spec.template.metadata.labels['node']"]);
}

fn capi_set() -> Vec<Value> {
    let mut all = super::capi_deployment();
    set(&mut all[0], "/kind", json!("MachineSet"));
    all
}

#[test]
fn r35_a_set_without_a_deployment_is_converted() {
    let made = objects(to_native(&capi_set()));
    let set_ = of_kind(&made, "MachineSet");
    assert_eq!(set_["spec"]["replicas"], 1);
    assert_eq!(set_["spec"]["selector"], json!({ "matchLabels": { "pool": "a" } }));
    assert_eq!(set_["spec"]["template"]["spec"]["class"]["name"], "small");
    assert_eq!(set_["metadata"]["labels"], json!({ "cluster.x-k8s.io/cluster-name": "c1" }));
}

#[test]
fn r35_a_set_of_a_deployment_is_made_by_its_controller() {
    let owner =
        json!([{ "apiVersion": "x", "kind": "MachineDeployment", "name": "d", "uid": "1", "controller": true }]);
    for (mut given, is_capi) in [(capi_set(), true), (native_set(), false)] {
        set(&mut given[0], "/metadata/ownerReferences", owner.clone());
        let conversion = if is_capi { to_native(&given[..1]) } else { to_capi(&given[..1]) };
        assert_eq!((conversion.objects, lost(&to_native(&[])).len()), (Vec::new(), 0));
        assert_eq!(conversion.losses[0].object, "MachineSet pool");
    }
}

fn native_set() -> Vec<Value> {
    let mut all = super::native_deployment();
    set(&mut all[0], "/kind", json!("MachineSet"));
    all[0]["spec"].as_object_mut().unwrap().remove("strategy");
    all
}

/// The repetition of the class is the bookkeeping of its side.
#[test]
fn r35_a_native_set_has_a_health_check_of_its_own() {
    let mut given = native_set();
    set(&mut given[0], "/spec/machineClass", json!({ "kind": "MachineClass", "name": "small" }));
    let made = objects(to_capi(&given));
    assert_eq!(of_kind(&made, "MachineSet")["spec"]["replicas"], 3);
    let selector = &of_kind(&made, "MachineHealthCheck")["spec"]["selector"];
    assert_eq!(selector, &json!({ "matchLabels": { "cluster.x-k8s.io/set-name": "pool" } }));
}

#[rstest]
#[case("/spec/deletion/order", json!("Newest"), "spec.deletion.order")]
#[case("/spec/machineNaming/template", json!("{{ .random }}"), "spec.machineNaming.template")]
#[case("/spec/template/spec/readinessGates", json!([{ "conditionType": "A" }]), "spec.template.spec.readinessGates[0]")]
fn r35_a_set_is_refused_for_the_same_reasons_as_a_deployment(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] path: &str,
) {
    let mut given = capi_set();
    set(&mut given[0], pointer, value);
    assert_eq!(refused(&to_native(&given)), [path]);
}
