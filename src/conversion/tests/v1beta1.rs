//! Core objects of `v1beta1`.

use rstest::rstest;
use serde_json::{Value, json};

use super::{capi_deployment, objects, refused, set, to_native};
use crate::v1beta1::read;

fn object(version: &str, kind: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": kind,
        "metadata": { "name": "a", "namespace": "demo" }, "spec": spec,
    })
}

#[rstest]
#[case::deployment(
    "MachineDeployment",
    json!({
        "clusterName": "c1", "rolloutAfter": "2026-01-01T00:00:00Z", "minReadySeconds": 5, "revisionHistoryLimit": 1,
        "progressDeadlineSeconds": 600, "machineNamingStrategy": { "template": "x" },
        "strategy": {
            "type": "RollingUpdate", "remediation": { "maxInFlight": 1 },
            "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0, "deletePolicy": "Oldest" },
        },
        "template": { "spec": {
            "bootstrap": { "configRef": {
                "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "KubeadmConfigTemplate", "name": "a",
                "namespace": "demo",
            } },
            "infrastructureRef": {
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "AWSMachineTemplate", "name": "a",
            },
            "nodeDrainTimeout": "10m0s", "nodeVolumeDetachTimeout": "90s", "nodeDeletionTimeout": "0s",
        } },
    }),
    json!({
        "clusterName": "c1", "deletion": { "order": "Oldest" }, "machineNaming": { "template": "x" },
        "rollout": { "after": "2026-01-01T00:00:00Z", "strategy": {
            "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 },
        } },
        "remediation": { "maxInFlight": 1 },
        "template": { "spec": {
            "minReadySeconds": 5,
            "bootstrap": { "configRef": {
                "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfigTemplate", "name": "a",
            } },
            "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachineTemplate", "name": "a",
            },
            "deletion": {
                "nodeDrainTimeoutSeconds": 600, "nodeVolumeDetachTimeoutSeconds": 90, "nodeDeletionTimeoutSeconds": 0,
            },
        } },
    })
)]
#[case::set(
    "MachineSet",
    json!({ "deletePolicy": "Newest", "minReadySeconds": 1, "template": { "spec": { "nodeDrainTimeout": "1s" } } }),
    json!({ "deletion": { "order": "Newest" }, "template": { "spec": {
        "minReadySeconds": 1, "deletion": { "nodeDrainTimeoutSeconds": 1 },
    } } })
)]
#[case::pool(
    "MachinePool",
    json!({ "minReadySeconds": 1, "failureDomains": ["z"], "template": { "spec": { "version": "v1.34.1" } } }),
    json!({ "failureDomains": ["z"], "template": { "spec": { "version": "v1.34.1", "minReadySeconds": 1 } } })
)]
#[case::machine(
    "Machine",
    json!({ "infrastructureRef": { "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "A", "name": "a" } }),
    json!({ "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "A", "name": "a" } })
)]
#[case::health_check(
    "MachineHealthCheck",
    json!({
        "clusterName": "c1", "maxUnhealthy": "40%", "unhealthyRange": "[1-2]", "nodeStartupTimeout": "20m",
        "unhealthyConditions": [{ "type": "Ready", "status": "False", "timeout": "300s" }],
        "remediationTemplate": { "apiVersion": "x/v1", "kind": "R", "name": "r", "namespace": "demo" },
    }),
    json!({
        "clusterName": "c1",
        "checks": {
            "nodeStartupTimeoutSeconds": 1200,
            "unhealthyNodeConditions": [{ "type": "Ready", "status": "False", "timeoutSeconds": 300 }],
        },
        "remediation": {
            "triggerIf": { "unhealthyLessThanOrEqualTo": "40%", "unhealthyInRange": "[1-2]" },
            "templateRef": { "apiVersion": "x/v1", "kind": "R", "name": "r" },
        },
    })
)]
#[case::cluster(
    "Cluster",
    json!({ "paused": true, "controlPlaneRef": { "apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "K", "name": "k" } }),
    json!({ "paused": true, "controlPlaneRef": { "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "K", "name": "k" } })
)]
fn a_core_object_of_v1beta1_is_read_as_one_of_v1beta2(#[case] kind: &str, #[case] old: Value, #[case] new: Value) {
    assert_eq!(*read(&object("v1beta1", kind, old.clone())), object("v1beta2", kind, new));
    let current = object("v1beta2", kind, old);
    assert_eq!(*read(&current), current, "the current version stays");
}

#[test]
fn only_the_node_is_read_from_an_old_status() {
    let mut old = object("v1beta1", "Machine", json!({}));
    set(&mut old, "/status", json!({ "nodeRef": { "kind": "Node", "name": "n", "uid": "u" }, "phase": "Running" }));
    assert_eq!(read(&old)["status"], json!({ "nodeRef": { "name": "n" } }));
}

#[test]
fn a_deployment_of_v1beta1_is_converted_like_its_newer_form() {
    let new = capi_deployment();
    let mut old = new.clone();
    set(&mut old[0], "/apiVersion", json!("cluster.x-k8s.io/v1beta1"));
    let reference = old[0].pointer_mut("/spec/template/spec/infrastructureRef").unwrap().as_object_mut().unwrap();
    reference.remove("apiGroup");
    reference.insert("apiVersion".to_owned(), json!("infrastructure.cluster.x-k8s.io/v1beta2"));
    assert_eq!(objects(to_native(&old)), objects(to_native(&new)));
}

#[rstest]
#[case("/spec/noSuchField", json!(1), "spec.noSuchField")]
#[case("/spec/strategy", json!({ "type": "RollingUpdate", "x": 1 }), "spec.strategy")]
#[case("/spec/template/spec/nodeDrainTimeout", json!("soon"), "spec.template.spec.deletion.nodeDrainTimeoutSeconds")]
fn a_field_of_v1beta1_that_is_not_known_is_refused(#[case] pointer: &str, #[case] value: Value, #[case] path: &str) {
    let mut given = capi_deployment();
    set(&mut given[0], "/apiVersion", json!("cluster.x-k8s.io/v1beta1"));
    set(&mut given[0], pointer, value);
    assert_eq!(refused(&to_native(&given)), [path]);
}
