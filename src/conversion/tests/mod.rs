//! Laws as properties, one test for each rule, and full examples.

mod any;
mod aws;
mod clouds;
mod cluster;
mod gcp;
mod generated;
mod golden;
mod health_check;
mod laws;
mod machine;
mod machine_deployment;
mod machine_pool;
mod policy;
mod template;
mod topology;
mod untrusted;
mod v1beta1;

use serde_json::{Value, json};

use super::{ConversionOptions, ConversionResult};

/// A minimal deployment of Cluster API, its template and nothing else.
pub(super) fn capi_deployment() -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "MachineDeployment",
            "metadata": { "name": "pool", "namespace": "demo" },
            "spec": {
                "clusterName": "c1",
                "selector": { "matchLabels": { "pool": "a" } },
                "template": {
                    "metadata": { "labels": { "pool": "a" } },
                    "spec": {
                        "clusterName": "c1",
                        "bootstrap": { "dataSecretName": "small-bootstrap" },
                        "infrastructureRef": {
                            "apiGroup": "infrastructure.cluster.x-k8s.io",
                            "kind": "MCMMachineTemplate",
                            "name": "pool",
                        },
                    },
                },
            },
        }),
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
            "kind": "MCMMachineTemplate",
            "metadata": { "name": "pool", "namespace": "demo" },
            "spec": { "template": { "spec": { "machineClassRef": { "name": "small" } } } },
        }),
    ]
}

/// A minimal native deployment.
pub(super) fn native_deployment() -> Vec<Value> {
    vec![json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineDeployment",
        "metadata": {
            "name": "pool", "namespace": "demo", "labels": { "cluster.x-k8s.io/cluster-name": "c1" },
        },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "name": "pool" } },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
            "template": {
                "metadata": { "labels": { "name": "pool" } },
                "spec": { "class": { "kind": "MachineClass", "name": "small" } },
            },
        },
    })]
}

/// Sets a value by its JSON pointer; missing objects are made.
pub(super) fn set(value: &mut Value, pointer: &str, to: Value) {
    let mut at = value;
    for part in pointer.split('/').skip(1) {
        let key = part.replace("~1", "/");
        at = match at {
            Value::Array(items) => &mut items[key.parse::<usize>().unwrap()],
            other => {
                if !other.is_object() {
                    *other = json!({});
                }
                other.as_object_mut().unwrap().entry(key).or_insert(Value::Null)
            }
        };
    }
    *at = to;
}

pub(super) fn to_native(objects: &[Value]) -> ConversionResult {
    super::to_native(objects, &options())
}

pub(super) fn to_capi(objects: &[Value]) -> ConversionResult {
    super::to_capi(objects, &options())
}

/// With a time, so that the times in objects have passed.
pub(super) fn options() -> ConversionOptions {
    ConversionOptions { now: Some("2100-01-01T00:00:00Z".parse().unwrap()), ..ConversionOptions::default() }
}

/// The result of a conversion that refused nothing.
#[track_caller]
pub(super) fn objects(conversion: ConversionResult) -> Vec<Value> {
    assert_eq!(conversion.refusals, [], "nothing is refused");
    conversion.objects
}

/// The paths that were refused.
pub(super) fn refused(conversion: &ConversionResult) -> Vec<&str> {
    conversion.refusals.iter().map(|refusal| refusal.path.as_str()).collect()
}

/// The paths that were lost.
pub(super) fn lost(conversion: &ConversionResult) -> Vec<&str> {
    conversion.losses.iter().map(|loss| loss.path.as_str()).collect()
}

/// The first object of a kind.
#[track_caller]
pub(super) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind} in {objects:#?}"))
}

/// Where a deployment describes its machines.
pub(super) const TEMPLATE: &str = "/spec/template/spec";

/// The native deployment of the minimal deployment with one change.
#[track_caller]
pub(super) fn native_of(pointer: &str, value: Value) -> Value {
    let mut given = capi_deployment();
    set(&mut given[0], pointer, value);
    of_kind(&objects(to_native(&given)), "MachineDeployment").clone()
}

/// The deployment of Cluster API of the minimal native one with one change.
#[track_caller]
pub(super) fn capi_of(pointer: &str, value: Value) -> Value {
    let mut given = native_deployment();
    set(&mut given[0], pointer, value);
    of_kind(&objects(to_capi(&given)), "MachineDeployment").clone()
}
