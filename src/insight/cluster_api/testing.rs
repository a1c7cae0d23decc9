//! A Cluster with workers, for tests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{CapiObjects, object::Kind};
use crate::{
    story::{MACHINE, NamespaceFacts},
    testing::{at, object, pool, preview},
};
use mcm_api::machine::Machine;
use mcm_rules::plan::WaitKind;

/// The name of the Machine, its MCMMachine and its MCM Machine.
pub const WORKER: &str = "demo-md-0-abcde-x7k2p";

/// A condition of v1beta2.
pub fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": at(300)})
}

/// Facts without objects of `machine.sapcloud.io`.
pub fn nothing() -> NamespaceFacts {
    let mut facts = pool(0, Vec::new());
    (facts.deployments, facts.sets, facts.classes) = Default::default();
    facts.managers.clear();
    facts
}

/// The MCM Machine of an MCMMachine of this name, with what it waits for.
pub fn with_native(mut facts: NamespaceFacts, name: &str, phase: &str, waits: &[(WaitKind, &str)]) -> NamespaceFacts {
    let more = json!({"spec": {"class": {"name": "worker"}}, "status": {"currentStatus": {"phase": phase, "lastUpdateTime": at(360)}}});
    let (name, machine): (String, Machine) = object(MACHINE, name, Some(("MCMMachine", name)), &more);
    facts.previews.entry(MACHINE).or_default().insert(name.clone(), preview(MACHINE, &name, &[], waits));
    facts.machines.insert(name, machine);
    facts
}

fn meta(name: &str, owner: Option<(&str, &str)>) -> Value {
    let owner = owner.map(|(kind, name)| {
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "uid": "u", "controller": true})
    });
    json!({
        "name": name, "namespace": "demo", "creationTimestamp": at(60), "labels": {"cluster.x-k8s.io/cluster-name": "demo"},
        "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
    })
}

/// The objects of a Cluster `demo` whose one worker runs. Tests edit them by kind and name.
pub fn healthy() -> Vec<(Kind, Value)> {
    let ready = condition("Ready", "True", "Ready", "");
    vec![
        (
            Kind::Cluster,
            json!({
                "metadata": meta("demo", None),
                "spec": {
                    "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMCluster", "name": "demo"},
                    "controlPlaneRef": {"kind": "KubeadmControlPlane", "name": "demo-cp"},
                },
                "status": {
                    "phase": "Provisioned",
                    "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
                    "conditions": [condition("Available", "True", "Available", ""), condition("Paused", "False", "NotPaused", "")],
                },
            }),
        ),
        (
            Kind::MCMCluster,
            json!({"metadata": meta("demo", Some(("Cluster", "demo"))), "status": {"conditions": [ready]}}),
        ),
        (
            Kind::MachineDeployment,
            json!({
                "metadata": meta("demo-md-0", Some(("Cluster", "demo"))), "spec": {"clusterName": "demo", "replicas": 1},
                "status": {"replicas": 1, "availableReplicas": 1, "upToDateReplicas": 1},
            }),
        ),
        (
            Kind::MachineSet,
            json!({
                "metadata": meta("demo-md-0-abcde", Some(("MachineDeployment", "demo-md-0"))),
                "spec": {"clusterName": "demo", "replicas": 1},
                "status": {"replicas": 1, "availableReplicas": 1, "upToDateReplicas": 1},
            }),
        ),
        worker(WORKER),
        vm(WORKER),
    ]
}

/// A Machine that runs.
pub fn worker(name: &str) -> (Kind, Value) {
    let conditions = ["Ready", "Available", "BootstrapConfigReady", "InfrastructureReady", "NodeReady", "NodeHealthy"];
    let conditions: Vec<Value> = conditions.map(|type_| condition(type_, "True", type_, "")).into();
    let machine = json!({
        "metadata": meta(name, Some(("MachineSet", "demo-md-0-abcde"))),
        "spec": {
            "clusterName": "demo",
            "bootstrap": {"configRef": {"kind": "KubeadmConfig", "name": name}, "dataSecretName": name},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMMachine", "name": name},
            "providerID": format!("simulated:///{name}"),
        },
        "status": {"phase": "Running", "nodeRef": {"name": name}, "conditions": conditions},
    });
    (Kind::Machine, machine)
}

/// The MCMMachine of a Machine, whose VM runs.
pub fn vm(name: &str) -> (Kind, Value) {
    let machine = json!({
        "metadata": meta(name, Some(("Machine", name))),
        "spec": {"providerID": format!("simulated:///{name}")},
        "status": {
            "machineRef": {"name": name}, "initialization": {"provisioned": true},
            "conditions": [condition("Ready", "True", "Provisioned", ""), condition("VMProvisioned", "True", "Provisioned", "")],
        },
    });
    (Kind::MCMMachine, machine)
}

/// Objects as they are read.
pub fn read(all: Vec<(Kind, Value)>) -> CapiObjects {
    let mut objects = CapiObjects::default();
    for kind in Kind::ALL {
        let of_kind = all.iter().filter(|(other, _)| *other == kind).map(|(_, object)| object.clone());
        objects.add(kind, of_kind.map(|object| serde_json::from_value::<DynamicObject>(object).unwrap()).collect());
    }
    objects
}

/// Sets a field of the objects of a kind; `null` removes it.
pub fn set(all: &mut [(Kind, Value)], kind: Kind, path: &str, value: Value) {
    for (_, object) in all.iter_mut().filter(|(other, _)| *other == kind) {
        let (parent, field) = path.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("{kind:?} has no {parent}"));
        match value {
            Value::Null => drop(parent.as_object_mut().unwrap().remove(field)),
            ref value => parent[field] = value.clone(),
        }
    }
}

/// Sets a condition of the objects of a kind.
pub fn set_condition(all: &mut [(Kind, Value)], kind: Kind, condition: &Value) {
    for (_, object) in all.iter_mut().filter(|(other, _)| *other == kind) {
        let conditions = object.pointer_mut("/status/conditions").unwrap().as_array_mut().unwrap();
        conditions.retain(|one| one["type"] != condition["type"]);
        conditions.push(condition.clone());
    }
}

/// The worker waits for the Secret of its bootstrap provider.
pub fn without_bootstrap_data() -> Vec<(Kind, Value)> {
    let mut all = healthy();
    set(&mut all, Kind::Machine, "/spec/bootstrap/dataSecretName", Value::Null);
    set(&mut all, Kind::Machine, "/status/nodeRef", Value::Null);
    set(&mut all, Kind::Machine, "/spec/providerID", Value::Null);
    set(&mut all, Kind::Machine, "/status/phase", "Pending".into());
    let missing = "KubeadmConfig status.initialization.dataSecretCreated is false";
    for (type_, reason, message) in [
        ("Ready", "NotReady", "* BootstrapConfigReady: see below"),
        ("Available", "NotAvailable", "* Ready: see below"),
        ("BootstrapConfigReady", "NotReady", missing),
        ("InfrastructureReady", "NotReady", "spec.bootstrap.dataSecretName of the Machine is not set"),
    ] {
        set_condition(&mut all, Kind::Machine, &condition(type_, "False", reason, message));
    }
    let node = "* Node.Ready: Condition not yet reported";
    set_condition(&mut all, Kind::Machine, &condition("NodeHealthy", "Unknown", "NodeInspectionFailed", node));
    set(&mut all, Kind::MCMMachine, "/spec/providerID", Value::Null);
    let ready = condition(
        "Ready",
        "False",
        "WaitingForBootstrapData",
        "spec.bootstrap.dataSecretName of the Machine is not set",
    );
    set(&mut all, Kind::MCMMachine, "/status/conditions", json!([ready]));
    for kind in [Kind::MachineDeployment, Kind::MachineSet] {
        set(&mut all, kind, "/status/availableReplicas", 0.into());
    }
    all
}

/// The worker is deleted, and a budget keeps a pod on its Node.
pub fn draining() -> Vec<(Kind, Value)> {
    let mut all = healthy();
    set(&mut all, Kind::Machine, "/metadata/deletionTimestamp", json!(at(357)));
    set(&mut all, Kind::Machine, "/spec/deletion", json!({"nodeDrainTimeoutSeconds": 600}));
    set(&mut all, Kind::Machine, "/status/deletion", json!({"nodeDrainStartTime": at(360)}));
    set(&mut all, Kind::Machine, "/status/phase", "Deleting".into());
    let text = "Drain not completed yet (started at 1970-01-01T00:06:00Z):\n* Pod web/guarded: cannot evict pod as it would violate the \
                pod's disruption budget. The disruption budget guard needs 1 healthy pods and has 1 currently";
    set_condition(&mut all, Kind::Machine, &condition("Deleting", "True", "DrainingNode", text));
    all
}
