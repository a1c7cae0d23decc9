//! The rules of 3.7.

use rstest::rstest;
use serde_json::{Value, json};

use super::{TEMPLATE, any, lost, objects, of_kind, refused, set, to_capi, to_native};
use crate::MACHINE_POOL;

/// A pool with another bootstrap Secret than that of its class, and all that belongs to it.
pub fn capi_pool() -> Vec<Value> {
    let mut all = vec![
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "MachinePool",
            "metadata": {
                "name": "pool", "namespace": "demo", "labels": { "cluster.x-k8s.io/cluster-name": "c1" },
            },
            "spec": {
                "clusterName": "c1",
                "replicas": 5,
                "template": {
                    "metadata": { "labels": { "pool": "a" } },
                    "spec": {
                        "clusterName": "c1",
                        "bootstrap": { "dataSecretName": "join" },
                        "infrastructureRef": {
                            "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMMachinePool", "name": "vms",
                        },
                        "version": "v1.34.1",
                        "minReadySeconds": 30,
                        "deletion": { "nodeDrainTimeoutSeconds": 600 },
                    },
                },
            },
        }),
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
            "kind": "MCMMachinePool",
            "metadata": { "name": "vms", "namespace": "demo" },
            "spec": { "machineClassRef": { "name": "small" } },
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": { "name": "join", "namespace": "demo", "labels": { "cluster.x-k8s.io/cluster-name": "c1" } },
            "data": { "value": "am9pbg==", "format": "aWduaXRpb24=" },
        }),
    ];
    all.extend(any::class());
    all
}

/// Includes a class for another zone.
fn in_zones(zones: &[&str]) -> Vec<Value> {
    let mut all = capi_pool();
    set(&mut all[0], "/spec/failureDomains", json!(zones));
    let mut other = all[3].clone();
    set(&mut other, "/metadata/name", json!("small-eu-b"));
    set(&mut other, "/nodeTemplate/zone", json!("eu-b"));
    all.push(other);
    all
}

fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    objects.sort_by_key(|object| format!("{} {}", object["kind"], object["metadata"]["name"]));
    objects
}

#[test]
fn r37_a_pool_is_a_deployment() {
    let made = objects(to_native(&capi_pool()));
    let [deployment] = &made.iter().filter(|one| one["kind"] == "MachineDeployment").collect::<Vec<_>>()[..] else {
        panic!("{made:#?}")
    };
    assert_eq!(deployment["metadata"]["name"], "pool");
    let spec = &deployment["spec"];
    assert_eq!((&spec["replicas"], &spec["minReadySeconds"]), (&json!(5), &json!(30)));
    assert_eq!(spec["template"]["spec"]["drainTimeout"], "10m0s");
    assert_eq!(spec["selector"], json!({ "matchLabels": { "cluster.x-k8s.io/deployment-name": "pool" } }));
    let labels = &spec["template"]["metadata"]["labels"];
    assert_eq!((&labels["pool"], &labels["cluster.x-k8s.io/pool-name"]), (&json!("a"), &json!("pool")));
}

#[rstest]
#[case(5, &["eu-b", "eu-a"], &[("pool-eu-a", 3), ("pool-eu-b", 2)])]
#[case(4, &["eu-a", "eu-b"], &[("pool-eu-a", 2), ("pool-eu-b", 2)])]
#[case(0, &["eu-a", "eu-b"], &[("pool-eu-a", 0), ("pool-eu-b", 0)])]
#[case(5, &["eu-a"], &[("pool-eu-a", 5)])]
fn r37_a_pool_is_spread_evenly_over_its_zones(
    #[case] replicas: i32,
    #[case] zones: &[&str],
    #[case] expected: &[(&str, i32)],
) {
    let mut given = in_zones(zones);
    set(&mut given[0], "/spec/replicas", json!(replicas));
    let made = objects(to_native(&given));
    let deployments = made.iter().filter(|one| one["kind"] == "MachineDeployment");
    let found: Vec<(&str, i64)> = deployments
        .map(|one| (one["metadata"]["name"].as_str().unwrap(), one["spec"]["replicas"].as_i64().unwrap_or(0)))
        .collect();
    let expected: Vec<(&str, i64)> = expected.iter().map(|(name, count)| (*name, i64::from(*count))).collect();
    assert_eq!(found, expected);
    assert_eq!(sorted(objects(to_capi(&made))), sorted(given));
}

#[test]
fn r37_a_zone_needs_a_class_of_that_zone() {
    let mut given = in_zones(&["eu-a", "eu-b"]);
    given.pop();
    assert_eq!(refused(&to_native(&given)), ["spec.template.spec.failureDomain"]);
}

/// A description with changes by zone needs no class of each zone.
#[test]
fn r37_a_pool_with_changes_by_zone_has_a_class_for_each_zone() {
    let mut given = capi_pool();
    let mut content = given[3].clone();
    for field in ["apiVersion", "kind", "metadata", "secretRef"] {
        content.as_object_mut().unwrap().remove(field);
    }
    set(&mut given[0], "/spec/failureDomains", json!(["eu-a", "eu-b"]));
    let spec = json!({ "machineClass": content, "zones": { "eu-b": { "subnet": "b" } } });
    set(&mut given[1], "/spec", spec);
    let made = objects(to_native(&given));
    let classes = made.iter().filter(|one| one["kind"] == "MachineClass" && one["metadata"]["name"] != "small");
    let mut zones: Vec<(&str, &Value)> = classes
        .map(|class| (class["nodeTemplate"]["zone"].as_str().unwrap(), &class["providerSpec"]["subnet"]))
        .collect();
    zones.sort_unstable_by_key(|(zone, _)| *zone);
    assert_eq!(zones, [("eu-a", &Value::Null), ("eu-b", &json!("b"))]);
    assert_eq!(sorted(objects(to_capi(&made))), sorted(given));
}

/// The Secret is renewed every few minutes; its content must not roll machines.
#[test]
fn r37_another_content_of_the_bootstrap_secret_is_no_rollout() {
    let before = objects(to_native(&capi_pool()));
    let mut given = capi_pool();
    set(&mut given[2], "/data/value", json!("cmVuZXdlZA=="));
    let after = objects(to_native(&given));
    assert_eq!(of_kind(&after, "MachineDeployment"), of_kind(&before, "MachineDeployment"));
    let data = |objects: &[Value]| of_kind(objects, "Secret")["data"]["userData"].clone();
    assert_eq!((data(&before), data(&after)), (json!("am9pbg=="), json!("cmVuZXdlZA==")));
}

#[test]
fn r37_another_version_is_a_rollout() {
    let mut given = capi_pool();
    set(&mut given[0], &format!("{TEMPLATE}/version"), json!("v1.35.0"));
    let made = objects(to_native(&given));
    let annotations = &of_kind(&made, "MachineDeployment")["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations, &json!({ "conversion.mcm/version": "v1.35.0" }));
}

#[rstest]
#[case(Value::Null, json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } }))]
#[case(
    json!({ "type": "InPlaceUpdate", "inPlaceUpdate": { "maxSurge": 2, "maxUnavailable": "5%", "orchestrationType": "Manual" } }),
    json!({ "type": "InPlaceUpdate", "inPlaceUpdate": { "maxSurge": 2, "maxUnavailable": "5%", "orchestrationType": "Manual" } })
)]
fn r37_the_strategy_is_that_of_the_infrastructure_object(#[case] given: Value, #[case] expected: Value) {
    let mut pool = capi_pool();
    set(&mut pool[1], "/spec/strategy", given);
    let made = objects(to_native(&pool));
    assert_eq!(of_kind(&made, "MachineDeployment")["spec"]["strategy"], expected);
}

/// IDs are computed from the machines.
#[test]
fn r37_a_pool_comes_back_as_it_was_but_its_ids() {
    let mut given = capi_pool();
    let native = objects(to_native(&given));
    assert_eq!(sorted(objects(to_capi(&native))), sorted(given.clone()));
    set(&mut given[0], "/spec/providerIDList", json!(["x:///y"]));
    set(&mut given[1], "/spec/providerIDList", json!(["x:///y"]));
    assert_eq!(objects(to_native(&given)), native);
}

#[test]
fn r37_a_pool_that_was_scaled_natively_has_all_its_machines() {
    let mut native = objects(to_native(&capi_pool()));
    set(&mut native[0], "/spec/replicas", json!(9));
    let back = objects(to_capi(&native));
    assert_eq!(of_kind(&back, "MachinePool")["spec"]["replicas"], 9);
}

#[rstest]
#[case::a_change("/spec/template/spec/drainTimeout", json!("1m"))]
#[case::another_share("/spec/replicas", json!(9))]
#[case::a_forged_note("/metadata/annotations/conversion.mcm~1machine-pool", json!("{}"))]
fn r37_deployments_that_no_longer_are_the_pool_stay_deployments(#[case] pointer: &str, #[case] value: Value) {
    let mut native = objects(to_native(&in_zones(&["eu-a", "eu-b"])));
    set(&mut native[0], pointer, value);
    let conversion = to_capi(&native);
    let note = format!("metadata.annotations['{MACHINE_POOL}']");
    assert!(lost(&conversion).contains(&note.as_str()), "{:?}", conversion.losses);
    let made = objects(conversion);
    assert_eq!(made.iter().filter(|one| one["kind"] == "MachineDeployment").count(), 2);
    assert!(made.iter().all(|one| one["kind"] != "MachinePool"));
}

#[rstest]
#[case::one_less(false)]
#[case::one_more(true)]
fn r37_a_pool_comes_back_from_all_its_deployments_and_no_others(#[case] has_copy: bool) {
    let mut native = objects(to_native(&in_zones(&["eu-a", "eu-b"])));
    if has_copy {
        let mut copy = native[0].clone();
        set(&mut copy, "/metadata/name", json!("copy"));
        set(&mut copy, "/spec/replicas", json!(0));
        native.push(copy);
    } else {
        native.remove(0);
    }
    assert!(to_capi(&native).objects.iter().all(|one| one["kind"] != "MachinePool"));
}

#[test]
fn r37_a_health_check_can_select_a_pool() {
    let mut given = capi_pool();
    given.push(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck",
        "metadata": { "name": "check", "namespace": "demo" },
        "spec": { "clusterName": "c1", "selector": { "matchLabels": { "cluster.x-k8s.io/pool-name": "pool" } } },
    }));
    let made = objects(to_native(&given));
    assert_eq!(of_kind(&made, "MachineDeployment")["spec"]["template"]["spec"]["creationTimeout"], "10m0s");
}

#[test]
fn r37_a_derived_class_that_was_changed_is_not_replaced_by_a_pool() {
    let mut native = objects(to_native(&capi_pool()));
    let class = native.iter_mut().find(|one| one["metadata"]["annotations"]["conversion.mcm/made-from"].is_string());
    set(class.unwrap(), "/providerSpec/size", json!("huge"));
    assert!(objects(to_capi(&native)).iter().all(|one| one["kind"] != "MachinePool"));
}

#[rstest]
#[case("/0/spec/template/spec/infrastructureRef/kind", json!("AWSMachinePool"), "spec.template.spec.infrastructureRef")]
#[case("/0/spec/template/spec/infrastructureRef/name", json!("other"), "spec.template.spec.infrastructureRef")]
#[case("/0/spec/template/spec/readinessGates", json!([{ "conditionType": "A" }]), "spec.template.spec.readinessGates[0]")]
#[case("/0/spec/noSuchField", json!(1), "spec.noSuchField")]
#[case("/0/metadata/name", json!("a".repeat(64)), "metadata.name")]
#[case("/1/spec/strategy", json!({ "type": "OnDelete" }), "spec.strategy.type")]
#[case("/1/spec/machineDeploymentRef", json!({ "name": "x" }), "spec.machineDeploymentRef")]
#[case("/1/spec/noSuchField", json!(1), "spec.noSuchField")]
fn r37_a_pool_that_natively_is_another_one_is_refused(#[case] pointer: &str, #[case] value: Value, #[case] path: &str) {
    let mut given = capi_pool();
    let index = usize::from(pointer.starts_with("/1"));
    set(&mut given[index], &pointer[2..], value);
    let conversion = to_native(&given);
    assert_eq!(refused(&conversion), [path]);
    assert!(conversion.objects.iter().all(|one| one["kind"] != "MachineDeployment"));
}
