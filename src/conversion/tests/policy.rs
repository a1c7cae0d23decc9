//! 3.3: absent values, notes and refusals.

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    TEMPLATE, capi_deployment, capi_of, lost, native_deployment, native_of, objects, of_kind, refused, set, to_capi,
    to_native,
};
use crate::UNMAPPED;

/// 3.3, absent replicas, and trap T8.
#[rstest]
#[case(json!({}), Value::Null, json!(1))]
#[case(json!({}), json!(4), json!(4))]
#[case(json!({ "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "2",
    "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "5" }), Value::Null, json!(2))]
#[case(json!({ "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "2" }), Value::Null, json!(1))]
#[case(json!({ "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "2",
    "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "5" }), json!(7), json!(7))]
fn r33_absent_replicas_are_one_or_the_minimum_of_the_autoscaler(
    #[case] annotations: Value,
    #[case] given: Value,
    #[case] expected: Value,
) {
    let mut source = capi_deployment();
    set(&mut source[0], "/metadata/annotations", annotations.clone());
    set(&mut source[0], "/spec/replicas", given);
    let made = of_kind(&objects(to_native(&source)), "MachineDeployment").clone();
    assert_eq!(made["spec"]["replicas"], expected);
    for (key, value) in annotations.as_object().unwrap() {
        assert_eq!(&made["metadata"]["annotations"][key], value, "3.4: the autoscaler's annotations are copied");
    }
}

#[test]
fn r33_absent_native_replicas_are_zero_and_written() {
    assert_eq!(capi_of("/spec/replicas", Value::Null)["spec"]["replicas"], 0);
    assert_eq!(capi_of("/spec/replicas", json!(0))["spec"]["replicas"], 0);
}

#[test]
fn r33_absent_strategy_is_written_with_the_defaults_of_cluster_api() {
    let expected = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } });
    assert_eq!(native_of("/spec/rollout", Value::Null)["spec"]["strategy"], expected);
}

#[test]
fn r33_without_a_health_check_no_machine_is_ever_replaced() {
    let made = native_of("/spec/paused", json!(false));
    let spec = &made["spec"]["template"]["spec"];
    assert_eq!(spec["creationTimeout"], "876000h0m0s");
    assert_eq!(spec["disableHealthTimeout"], true);
    assert_eq!(spec["healthTimeout"], Value::Null);
}

/// 3.3 and trap T27: otherwise self-healing is silently lost.
#[test]
fn r33_native_self_healing_becomes_a_health_check() {
    let made = objects(to_capi(&native_deployment()));
    let check = of_kind(&made, "MachineHealthCheck");
    let condition = |type_: &str, status: &str| json!({ "type": type_, "status": status, "timeoutSeconds": 600 });
    assert_eq!(
        check["spec"],
        json!({
            "clusterName": "c1",
            "selector": { "matchLabels": { "cluster.x-k8s.io/deployment-name": "pool" } },
            "checks": {
                "nodeStartupTimeoutSeconds": 1200,
                "unhealthyNodeConditions": [
                    condition("Ready", "False"), condition("Ready", "Unknown"), condition("KernelDeadlock", "True"),
                    condition("ReadonlyFilesystem", "True"), condition("DiskPressure", "True"),
                    condition("NetworkUnavailable", "True"),
                ],
            },
        })
    );
}

#[test]
fn r33_machines_that_are_never_replaced_need_no_health_check() {
    let mut given = native_deployment();
    set(&mut given[0], &format!("{TEMPLATE}/creationTimeout"), json!("876000h"));
    set(&mut given[0], &format!("{TEMPLATE}/disableHealthTimeout"), json!(true));
    let made = objects(to_capi(&given));
    assert!(made.iter().all(|object| object["kind"] != "MachineHealthCheck"), "{made:#?}");
}

#[test]
fn r33_an_absent_selector_is_refused_natively_and_has_a_default_in_cluster_api() {
    let mut given = native_deployment();
    set(&mut given[0], "/spec/selector", Value::Null);
    assert_eq!(refused(&to_capi(&given)), ["spec.selector"]);
    let made = native_of("/spec/selector", json!({}));
    let label = json!({ "cluster.x-k8s.io/deployment-name": "pool" });
    assert_eq!(made["spec"]["selector"]["matchLabels"], label);
    assert_eq!(made["spec"]["template"]["metadata"]["labels"]["cluster.x-k8s.io/deployment-name"], "pool");
}

/// 3.3: restored only if the converted parts still match.
#[test]
fn r33_a_note_is_restored_unless_the_other_side_changed_what_it_stands_for() {
    let mut given = native_deployment();
    set(&mut given[0], "/spec/strategy", json!({ "type": "Recreate" }));
    set(&mut given[0], "/spec/revisionHistoryLimit", json!(3));
    let capi = objects(to_capi(&given));

    let mut scaled = capi.clone();
    set(&mut scaled[0], "/spec/replicas", json!(9));
    let made = of_kind(&objects(to_native(&scaled)), "MachineDeployment").clone();
    assert_eq!(made["spec"]["strategy"], json!({ "type": "Recreate" }));
    assert_eq!((made["spec"]["replicas"].clone(), made["spec"]["revisionHistoryLimit"].clone()), (json!(9), json!(3)));

    let mut changed = capi;
    set(&mut changed[0], "/spec/rollout/strategy/rollingUpdate/maxSurge", json!(2));
    let conversion = to_native(&changed);
    let made = of_kind(&conversion.objects, "MachineDeployment");
    assert_eq!(made["spec"]["strategy"]["type"], "RollingUpdate");
    assert_eq!(made["spec"]["strategy"]["rollingUpdate"]["maxSurge"], 2);
    assert_eq!(made["spec"]["revisionHistoryLimit"], 3, "the other notes still hold");
    assert!(lost(&conversion).contains(&"spec.strategy"), "and this is reported: {:?}", conversion.losses);
}

#[test]
fn r33_the_note_names_its_source_and_generation() {
    let mut given = native_deployment();
    set(&mut given[0], "/metadata/generation", json!(7));
    set(&mut given[0], "/spec/revisionHistoryLimit", json!(3));
    let made = objects(to_capi(&given));
    let note: Value = serde_json::from_str(made[0]["metadata"]["annotations"][UNMAPPED].as_str().unwrap()).unwrap();
    assert_eq!(note["source"], "machine.sapcloud.io/v1alpha1");
    assert_eq!(note["generation"], 7);
    assert_eq!(note["fields"]["spec.revisionHistoryLimit"], 3);
}

#[test]
fn r33_a_note_that_is_too_large_is_refused() {
    let mut given = native_deployment();
    set(&mut given[0], "/spec/template/metadata/finalizers", json!(["x".repeat(300_000)]));
    assert_eq!(refused(&to_capi(&given)), ["metadata.annotations"]);
}

#[rstest]
#[case("not json")]
#[case(r#"{"source":"machine.sapcloud.io/v1alpha1","fields":{"spec.replicas":5}}"#)]
fn r33_a_note_of_somebody_else_is_dropped_and_reported(#[case] note: &str) {
    let mut given = native_deployment();
    set(&mut given[0], "/metadata/annotations", json!({ UNMAPPED: note }));
    let conversion = to_capi(&given);
    assert!(lost(&conversion).contains(&"metadata.annotations['conversion.mcm/unmapped']"));
    assert_eq!(of_kind(&conversion.objects, "MachineDeployment")["spec"]["replicas"], 3);
}

/// 3.3: all paths, not only the first.
#[test]
fn r33_every_refusal_is_listed_and_the_object_has_no_result() {
    let mut given = capi_deployment();
    set(&mut given[0], "/spec/rollout/strategy/type", json!("OnDelete"));
    set(&mut given[0], "/spec/deletion/order", json!("Newest"));
    set(
        &mut given[0],
        &format!("{TEMPLATE}/readinessGates"),
        json!([{ "conditionType": "A" }, { "conditionType": "B" }]),
    );
    set(&mut given[0], "/spec/noSuchField", json!(1));
    let conversion = to_native(&given);
    let mut paths = refused(&conversion);
    paths.sort_unstable();
    let expected = [
        "spec.deletion.order",
        "spec.noSuchField",
        "spec.rollout.strategy.type",
        "spec.template.spec.readinessGates[0]",
        "spec.template.spec.readinessGates[1]",
    ];
    assert_eq!(paths, expected);
    assert_eq!(conversion.objects, Vec::<Value>::new());
    assert!(conversion.refusals.iter().all(|one| one.object == "MachineDeployment pool" && !one.advice.is_empty()));
}
