//! The rows of 3.4 on deployments, one test for each.

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    TEMPLATE, capi_deployment, capi_of, lost, native_deployment, native_of, objects, of_kind, options, refused, set,
    to_capi, to_native,
};
use crate::{ConversionOptions, UNMAPPED};

#[test]
fn r34_a_name_that_is_no_label_value_is_refused() {
    let mut given = native_deployment();
    set(&mut given[0], "/metadata/name", json!("a".repeat(64)));
    assert_eq!(refused(&to_capi(&given)), ["metadata.name"]);
}

#[test]
fn r34_an_object_that_is_being_deleted_is_refused() {
    let mut given = native_deployment();
    set(&mut given[0], "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    assert_eq!(refused(&to_capi(&given)), ["metadata.deletionTimestamp"]);
}

#[test]
fn r34_bookkeeping_of_either_side_is_not_copied() {
    let mut given = native_deployment();
    let annotations = json!({
        "deployment.kubernetes.io/revision": "3", "kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "a",
    });
    set(&mut given[0], "/metadata/annotations", annotations);
    for (key, value) in [
        ("uid", json!("1")),
        ("resourceVersion", json!("2")),
        ("finalizers", json!(["machine.sapcloud.io/machine-controller-manager"])),
        ("creationTimestamp", json!("2026-01-01T00:00:00Z")),
    ] {
        set(&mut given[0], &format!("/metadata/{key}"), value);
    }
    let made = objects(to_capi(&given));
    let mut meta = made[0]["metadata"].clone();
    meta["annotations"].as_object_mut().unwrap().remove(UNMAPPED);
    assert_eq!(
        meta,
        json!({
            "name": "pool", "namespace": "demo", "annotations": { "team": "a" },
            "labels": { "cluster.x-k8s.io/cluster-name": "c1" },
        })
    );
}

#[test]
fn r34_the_cluster_name_is_a_label_natively_and_never_in_the_template() {
    let made = native_of("/spec/template/metadata/labels/team", json!("a"));
    assert_eq!(made["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"], "c1");
    assert_eq!(made["spec"]["template"]["metadata"]["labels"], json!({ "name": "pool", "pool": "a", "team": "a" }));
    assert_eq!(made["spec"]["selector"], json!({ "matchLabels": { "pool": "a" } }));
}

#[test]
fn r34_a_cluster_that_is_not_known_must_be_given() {
    let mut given = native_deployment();
    set(&mut given[0], "/metadata/labels", json!({}));
    assert_eq!(refused(&to_capi(&given)), ["metadata.labels['cluster.x-k8s.io/cluster-name']"]);
    let known = ConversionOptions { cluster: Some("c2".into()), ..options() };
    let made = objects(crate::to_capi(&given, &known));
    assert_eq!(made[0]["spec"]["clusterName"], "c2");
    assert_eq!(made[0]["spec"]["template"]["spec"]["clusterName"], "c2");
}

#[test]
fn r34_node_labels_are_template_labels_in_three_domains_and_node_template_elsewhere() {
    let label = "node-role.kubernetes.io/worker";
    let made = native_of("/spec/template/metadata/labels/node-role.kubernetes.io~1worker", json!(""));
    assert_eq!(made["spec"]["template"]["spec"]["nodeTemplate"]["metadata"]["labels"], json!({ label: "" }));
    assert_eq!(made["spec"]["template"]["metadata"]["labels"][label], "");

    let mut given = native_deployment();
    let labels = json!({ label: "", "size": "big" });
    set(&mut given[0], &format!("{TEMPLATE}/nodeTemplate/metadata/labels"), labels);
    let made = objects(to_capi(&given));
    assert_eq!(of_kind(&made, "MachineDeployment")["spec"]["template"]["metadata"]["labels"][label], "");
    let template = of_kind(&made, "MCMMachineTemplate");
    assert_eq!(template["spec"]["template"]["spec"]["nodeTemplate"]["labels"], json!({ "size": "big" }));
}

#[test]
fn r34_the_hash_label_is_not_copied_to_the_template() {
    let made = capi_of("/spec/template/metadata/labels/machine-template-hash", json!("123"));
    assert_eq!(made["spec"]["template"]["metadata"]["labels"]["machine-template-hash"], Value::Null);
}

#[test]
fn r34_on_delete_is_refused() {
    let mut given = capi_deployment();
    set(&mut given[0], "/spec/rollout/strategy/type", json!("OnDelete"));
    assert_eq!(refused(&to_native(&given)), ["spec.rollout.strategy.type"]);
}

#[rstest]
#[case::recreate(json!({ "type": "Recreate" }), json!({ "maxSurge": 0, "maxUnavailable": "100%" }), true)]
#[case::in_place(
    json!({ "type": "InPlaceUpdate", "inPlaceUpdate": { "maxSurge": 2, "maxUnavailable": "5%" } }),
    json!({ "maxSurge": 2, "maxUnavailable": "5%" }),
    true
)]
#[case::zeros(
    json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "0%", "maxUnavailable": 0 } }),
    json!({ "maxSurge": "0%", "maxUnavailable": 1 }),
    false
)]
#[case::exact(
    json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "20%", "maxUnavailable": 3 } }),
    json!({ "maxSurge": "20%", "maxUnavailable": 3 }),
    false
)]
fn r34_every_native_strategy_becomes_a_rolling_update(
    #[case] given: Value,
    #[case] bounds: Value,
    #[case] is_loss: bool,
) {
    let mut source = native_deployment();
    set(&mut source[0], "/spec/strategy", given);
    let conversion = to_capi(&source);
    assert_eq!(lost(&conversion).contains(&"spec.strategy"), is_loss);
    let made = objects(conversion);
    let expected = json!({ "type": "RollingUpdate", "rollingUpdate": bounds });
    assert_eq!(made[0]["spec"]["rollout"]["strategy"], expected);
}

#[rstest]
#[case(json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1 } }), &["spec.strategy.rollingUpdate.maxUnavailable"])]
#[case(json!({ "type": "InPlaceUpdate" }), &["spec.strategy.inPlaceUpdate.maxSurge", "spec.strategy.inPlaceUpdate.maxUnavailable"])]
#[case(json!({}), &["spec.strategy.type"])]
fn r34_a_native_strategy_without_its_bounds_is_refused(#[case] given: Value, #[case] paths: &[&str]) {
    let mut source = native_deployment();
    set(&mut source[0], "/spec/strategy", given);
    assert_eq!(refused(&to_capi(&source)), paths);
}

#[rstest]
#[case(Some("2026-03-01T00:00:00Z"), true)]
#[case(Some("2026-01-01T00:00:00Z"), false)]
#[case(None, false)]
fn r34_rollout_after_becomes_an_annotation_once_it_has_passed(#[case] now: Option<&str>, #[case] has_passed: bool) {
    let mut given = capi_deployment();
    set(&mut given[0], "/spec/rollout/after", json!("2026-02-01T00:00:00Z"));
    let known = ConversionOptions { now: now.map(|now| now.parse().unwrap()), ..ConversionOptions::default() };
    let native = crate::to_native(&given, &known);
    assert_eq!(lost(&native).contains(&"spec.rollout.after"), !has_passed);
    let made = objects(native);
    let annotation = &made[0]["spec"]["template"]["metadata"]["annotations"]["conversion.mcm/rollout-after"];
    assert_eq!(annotation, &if has_passed { json!("2026-02-01T00:00:00Z") } else { Value::Null });
    let back = objects(crate::to_capi(&made, &options()));
    assert_eq!(back[0]["spec"]["rollout"]["after"], "2026-02-01T00:00:00Z");
}

#[rstest]
#[case("/spec/deletion/order", json!("Random"), None)]
#[case("/spec/deletion/order", json!("Oldest"), None)]
#[case("/spec/deletion/order", json!("Newest"), Some("spec.deletion.order"))]
#[case("/spec/machineNaming/template", json!("{{ .machineSet.name }}-{{ .random }}"), None)]
#[case("/spec/machineNaming/template", json!("{{ .random }}"), Some("spec.machineNaming.template"))]
#[case("/spec/remediation/maxInFlight", json!(1), None)]
#[case("/spec/remediation/maxInFlight", json!(2), Some("spec.remediation.maxInFlight"))]
#[case("/spec/remediation/maxInFlight", json!("20%"), Some("spec.remediation.maxInFlight"))]
#[case("/spec/template/spec/providerID", json!("x:///y"), Some("spec.template.spec.providerID"))]
fn r34_other_orders_names_and_limits_than_the_native_ones_are_refused(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] path: Option<&str>,
) {
    let mut given = capi_deployment();
    set(&mut given[0], pointer, value);
    assert_eq!(refused(&to_native(&given)), path.into_iter().collect::<Vec<_>>());
}

#[test]
fn r34_paused_and_min_ready_seconds_are_copied() {
    assert_eq!(native_of("/spec/paused", json!(true))["spec"]["paused"], true);
    assert_eq!(native_of(&format!("{TEMPLATE}/minReadySeconds"), json!(30))["spec"]["minReadySeconds"], 30);
    assert_eq!(capi_of("/spec/paused", json!(true))["spec"]["paused"], true);
    assert_eq!(capi_of("/spec/minReadySeconds", json!(30))["spec"]["template"]["spec"]["minReadySeconds"], 30);
}

#[rstest]
#[case("/spec/revisionHistoryLimit", json!(0), "spec.revisionHistoryLimit")]
#[case("/spec/progressDeadlineSeconds", json!(600), "spec.progressDeadlineSeconds")]
#[case("/spec/autoPreserveFailedMachineMax", json!(1), "spec.autoPreserveFailedMachineMax")]
#[case("/spec/template/metadata/finalizers", json!(["a/b"]), "spec.template.metadata.finalizers")]
#[case("/spec/template/metadata/generateName", json!("x"), "spec.template.metadata")]
#[case("/spec/template/spec/maxEvictRetries", json!(0), "spec.template.spec.maxEvictRetries")]
#[case("/spec/template/spec/inPlaceUpdateTimeout", json!("1m0s"), "spec.template.spec.inPlaceUpdateTimeout")]
#[case("/spec/template/spec/machinePreserveTimeout", json!("1m0s"), "spec.template.spec.machinePreserveTimeout")]
#[case("/spec/template/spec/nodeTemplate/metadata/finalizers", json!(["a/b"]), "spec.template.spec.nodeTemplate.metadata.finalizers")]
#[case("/spec/template/spec/nodeTemplate/spec/podCIDR", json!("10.0.0.0/24"), "spec.template.spec.nodeTemplate.spec")]
fn r34_r35_native_fields_without_a_place_are_noted_and_restored(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] path: &str,
) {
    let mut given = native_deployment();
    set(&mut given[0], pointer, value.clone());
    let conversion = to_capi(&given);
    assert!(lost(&conversion).contains(&path), "{:?}", conversion.losses);
    let back = objects(to_native(&objects(conversion)));
    assert_eq!(back[0].pointer(pointer), Some(&value));
}

#[test]
fn r34_a_rollback_that_is_about_to_begin_is_waited_for() {
    let mut given = native_deployment();
    set(&mut given[0], "/spec/rollbackTo", json!({ "revision": 2 }));
    assert_eq!(refused(&to_capi(&given)), ["spec.rollbackTo"]);
}

#[test]
fn r34_machines_that_the_autoscaler_has_chosen_are_waited_for() {
    let mut given = native_deployment();
    let key = "node.machine.sapcloud.io/trigger-deletion-by-mcm";
    set(&mut given[0], "/metadata/annotations", json!({ key: "pool-x" }));
    assert_eq!(refused(&to_capi(&given)), [format!("metadata.annotations['{key}']")]);
}

#[test]
fn r34_a_freeze_is_copied_and_reported() {
    let mut given = native_deployment();
    set(&mut given[0], "/metadata/labels/freeze", json!("True"));
    let conversion = to_capi(&given);
    assert!(lost(&conversion).contains(&"metadata.labels['freeze']"));
    assert_eq!(objects(conversion)[0]["metadata"]["labels"]["freeze"], "True");
}

#[rstest]
#[case("", "/metadata/annotations")]
#[case("spec.template.", "/spec/template/metadata/annotations")]
fn r34_a_paused_object_is_refused(#[case] prefix: &str, #[case] pointer: &str) {
    let mut given = capi_deployment();
    set(&mut given[0], pointer, json!({ "cluster.x-k8s.io/paused": "" }));
    let path = format!("{prefix}metadata.annotations['cluster.x-k8s.io/paused']");
    assert_eq!(refused(&to_native(&given)), [path]);
}

#[test]
fn an_api_version_that_is_not_known_is_refused() {
    let mut given = capi_deployment();
    set(&mut given[0], "/apiVersion", json!("cluster.x-k8s.io/v1alpha4"));
    assert_eq!(refused(&to_native(&given)), ["kind"]);
}

#[test]
fn unconverted_fields_are_refused_and_named() {
    let given = [json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "x" } })];
    for conversion in [to_native(&given), to_capi(&given)] {
        assert_eq!(conversion.refusals[0].object, "Deployment x");
        assert_eq!(conversion.objects, Vec::<Value>::new());
    }
}

#[test]
fn lists_are_taken_apart() {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": capi_deployment() });
    assert_eq!(to_native(&[list]), to_native(&capi_deployment()));
}

/// MCM counts a machine as available once its Node is ready.
#[rstest]
#[case(json!(300), true)]
#[case(json!(0), false)]
fn the_time_that_mcm_does_not_wait_is_reported(#[case] seconds: Value, #[case] expected: bool) {
    let mut given = capi_deployment();
    set(&mut given[0], &format!("{TEMPLATE}/minReadySeconds"), seconds);
    let made = to_native(&given);
    assert_eq!(lost(&made).contains(&"spec.template.spec.minReadySeconds"), expected, "{made:?}");
}
