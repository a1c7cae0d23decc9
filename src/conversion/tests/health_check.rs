//! The rows on MachineHealthChecks of 3.6.

use rstest::rstest;
use serde_json::{Value, json};

use super::{capi_deployment, objects, of_kind, refused, set, to_capi, to_native};

fn check(selector: Value, checks: Value) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineHealthCheck",
        "metadata": { "name": "check", "namespace": "demo" },
        "spec": { "clusterName": "c1", "selector": { "matchLabels": selector }, "checks": checks },
    })
}

fn conditions(all: &[(&str, &str, i32)]) -> Value {
    let one = |(type_, status, seconds): &(&str, &str, i32)| json!({ "type": type_, "status": status, "timeoutSeconds": seconds });
    all.iter().map(one).collect()
}

fn with(check: Value) -> Vec<Value> {
    let mut all = capi_deployment();
    all.push(check);
    all
}

fn pool() -> Value {
    json!({ "pool": "a" })
}

#[rstest]
#[case::absent(json!({}), "10m0s")]
#[case::off(json!({ "nodeStartupTimeoutSeconds": 0 }), "876000h0m0s")]
#[case::given(json!({ "nodeStartupTimeoutSeconds": 1500 }), "25m0s")]
fn r36_the_startup_timeout_is_the_creation_timeout(#[case] checks: Value, #[case] expected: &str) {
    let made = objects(to_native(&with(check(pool(), checks))));
    let spec = &of_kind(&made, "MachineDeployment")["spec"]["template"]["spec"];
    assert_eq!(spec["creationTimeout"], expected);
    assert_eq!(spec["disableHealthTimeout"], true, "no condition makes a machine unhealthy");
}

#[test]
fn r36_conditions_become_one_timeout_and_a_list() {
    let all = [("Ready", "False", 300), ("Ready", "Unknown", 300), ("A", "True", 300), ("B", "True", 300)];
    let checks = json!({ "unhealthyNodeConditions": conditions(&all) });
    let made = objects(to_native(&with(check(pool(), checks))));
    let spec = &of_kind(&made, "MachineDeployment")["spec"]["template"]["spec"];
    assert_eq!((&spec["healthTimeout"], &spec["nodeConditions"]), (&json!("5m0s"), &json!("A,B")));
    assert_eq!(spec["disableHealthTimeout"], Value::Null);
}

#[rstest]
#[case::times_differ(&[("Ready", "False", 300), ("Ready", "Unknown", 301)], &["[1].timeoutSeconds"])]
#[case::only_false(&[("Ready", "False", 300)], &[""])]
#[case::only_others(&[("A", "True", 300)], &[""])]
#[case::other_status(&[("Ready", "False", 1), ("Ready", "Unknown", 1), ("A", "False", 1)], &["[2].status"])]
#[case::ready_true(&[("Ready", "False", 1), ("Ready", "Unknown", 1), ("Ready", "True", 1)], &["[2].status"])]
#[case::a_comma(&[("Ready", "False", 1), ("Ready", "Unknown", 1), ("A,B", "True", 1)], &["[2].type"])]
fn r36_conditions_that_natively_cannot_be_told_apart_are_refused(
    #[case] all: &[(&str, &str, i32)],
    #[case] paths: &[&str],
) {
    let checks = json!({ "unhealthyNodeConditions": conditions(all) });
    let conversion = to_native(&with(check(pool(), checks)));
    let expected: Vec<String> = paths.iter().map(|path| format!("spec.checks.unhealthyNodeConditions{path}")).collect();
    let own = conversion.refusals.iter().filter(|one| one.object == "MachineHealthCheck check");
    assert_eq!(own.map(|one| one.path.clone()).collect::<Vec<_>>(), expected);
    assert!(conversion.objects.is_empty(), "the deployment is not converted without its health check");
}

#[rstest]
#[case("/spec/checks/unhealthyMachineConditions", json!([{ "type": "A", "status": "True", "timeoutSeconds": 1 }]))]
#[case("/spec/checks/unhealthyExpressions", json!([{ "expression": "true", "message": "x" }]))]
#[case("/spec/remediation/triggerIf/unhealthyLessThanOrEqualTo", json!("40%"))]
#[case("/spec/remediation/triggerIf/unhealthyInRange", json!("[1-2]"))]
#[case("/spec/remediation/templateRef", json!({ "kind": "A", "name": "b", "apiVersion": "c/v1" }))]
fn r36_everything_else_is_refused(#[case] pointer: &str, #[case] value: Value) {
    let mut one = check(pool(), json!({}));
    set(&mut one, pointer, value);
    let path = pointer.trim_start_matches('/').replace('/', ".");
    assert!(refused(&to_native(&with(one))).contains(&path.as_str()));
}

#[rstest]
#[case::nothing(json!({ "pool": "b" }), "spec.selector")]
#[case::one_set(json!({ "cluster.x-k8s.io/set-name": "pool-1" }), "")]
fn r36_a_selector_must_match_whole_sets(#[case] selector: Value, #[case] path: &str) {
    assert!(refused(&to_native(&with(check(selector, json!({}))))).contains(&path));
}

/// A failed read is not an absent health check.
#[test]
fn r36_without_a_readable_health_check_nothing_is_known() {
    let mut one = check(pool(), json!({}));
    set(&mut one, "/spec/checks/nodeStartupTimeoutSeconds", json!("soon"));
    let conversion = to_native(&with(one));
    assert_eq!(
        refused(&conversion),
        ["", "spec.checks.nodeStartupTimeoutSeconds"],
        "the deployment and the health check"
    );
    assert!(conversion.objects.is_empty());
}

#[test]
fn r36_a_health_check_of_another_cluster_covers_nothing() {
    let mut one = check(pool(), json!({}));
    set(&mut one, "/spec/clusterName", json!("c2"));
    let conversion = to_native(&with(one));
    assert_eq!(refused(&conversion), ["spec.selector"]);
    assert_eq!(conversion.objects[0]["spec"]["template"]["spec"]["creationTimeout"], "876000h0m0s");
}

#[test]
fn r36_two_health_checks_of_one_deployment_are_refused() {
    let mut all = with(check(pool(), json!({})));
    let mut other = check(json!({ "cluster.x-k8s.io/cluster-name": "c1" }), json!({}));
    set(&mut other, "/metadata/name", json!("other"));
    all.push(other);
    assert_eq!(refused(&to_native(&all)), [""]);
}

#[test]
fn r36_a_health_check_comes_back_as_it_was_unless_its_fields_changed() {
    let all = with(check(pool(), json!({ "nodeStartupTimeoutSeconds": 1500 })));
    let mut native = objects(to_native(&all));
    let back = objects(to_capi(&native));
    let found = of_kind(&back, "MachineHealthCheck");
    assert_eq!(
        (&found["metadata"]["name"], &found["spec"]["selector"]),
        (&json!("check"), &json!({ "matchLabels": pool() }))
    );

    set(&mut native[0], "/spec/template/spec/creationTimeout", json!("30m"));
    let back = objects(to_capi(&native));
    let found = of_kind(&back, "MachineHealthCheck");
    assert_eq!(found["metadata"]["name"], "check");
    assert_eq!(found["spec"]["checks"], json!({ "nodeStartupTimeoutSeconds": 1800 }));
}

#[test]
fn r36_a_paused_cluster_is_refused() {
    let mut cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": { "name": "c1", "namespace": "demo" },
        "spec": { "controlPlaneRef": { "kind": "X" } },
    });
    assert_eq!(refused(&to_native(&with(cluster.clone())[..])), Vec::<&str>::new());
    set(&mut cluster, "/spec/paused", json!(true));
    assert_eq!(refused(&to_native(&with(cluster))), ["spec.paused"]);
}

#[test]
fn r36_a_template_with_its_class_inside_makes_a_class_named_after_its_content() {
    let mut given = capi_deployment();
    let class = json!({ "provider": "simulated", "providerSpec": { "size": 1 } });
    set(&mut given[1], "/spec/template/spec", json!({ "machineClass": class }));
    let made = objects(to_native(&given));
    let name = of_kind(&made, "MachineClass")["metadata"]["name"].clone();
    assert!(name.as_str().unwrap().starts_with("pool-"));
    assert_eq!(of_kind(&made, "MachineDeployment")["spec"]["template"]["spec"]["class"]["name"], name);

    set(&mut given[1], "/spec/template/spec/machineClass/providerSpec/size", json!(2));
    let other = objects(to_native(&given));
    assert_ne!(of_kind(&other, "MachineClass")["metadata"]["name"], name, "a change of the content is a new class");
}
