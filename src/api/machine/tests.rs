//! The types as JSON: documents as Go writes them, and our documents.

use proptest::proptest;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::any;
use super::{Machine, MachineClass, MachineDeployment, MachinePhase, MachineSet, OperationState, OperationType};

fn read<T: DeserializeOwned>(document: Value) -> T {
    serde_json::from_value(document).unwrap()
}

fn written(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap()
}

#[test]
fn deployment_as_go_writes_it_is_read_and_written_without_its_nulls() {
    let from_go = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineDeployment",
        "metadata": { "name": "workers", "creationTimestamp": null },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "pool": "workers" } },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": "20%" } },
            "template": {
                "metadata": { "creationTimestamp": null, "labels": { "pool": "workers" }, "generateName": "w" },
                "spec": {
                    "class": { "kind": "MachineClass", "name": "small" },
                    "drainTimeout": "2h",
                    "maxEvictRetries": 0,
                    "nodeTemplate": {
                        "metadata": { "creationTimestamp": null, "annotations": null, "x": { "y": [1, null] } },
                        "spec": {},
                    },
                },
            },
        },
        "status": { "conditions": [
            { "type": "Available", "status": "True", "lastUpdateTime": null, "lastTransitionTime": "2026-01-02T03:04:05Z" },
        ] },
    });
    let ours = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineDeployment",
        "metadata": { "name": "workers" },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "pool": "workers" } },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": "20%" } },
            "template": {
                "metadata": { "creationTimestamp": null, "labels": { "pool": "workers" }, "generateName": "w" },
                "spec": {
                    "class": { "kind": "MachineClass", "name": "small" },
                    "drainTimeout": "2h0m0s",
                    "maxEvictRetries": 0,
                    "nodeTemplate": {
                        "metadata": { "creationTimestamp": null, "x": { "y": [1, null] } },
                        "spec": {},
                    },
                },
            },
        },
        "status": { "replicas": 0, "updatedReplicas": 0, "readyReplicas": 0, "availableReplicas": 0, "conditions": [
            { "type": "Available", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z" },
        ] },
    });
    assert_eq!(written(&read::<MachineDeployment>(from_go)), ours);
}

#[test]
fn machine_as_go_writes_it_is_read_and_written_without_its_nulls() {
    let from_go = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": { "name": "workers-x", "creationTimestamp": null },
        "spec": {
            "class": { "kind": "MachineClass", "name": "small" },
            "nodeTemplate": { "metadata": { "creationTimestamp": null }, "spec": { "taints": [
                { "key": "a", "effect": "NoSchedule", "timeAdded": null },
            ] } },
            "providerID": "aws:///eu/i-1",
            "disableHealthTimeout": false,
            "nodeConditions": "",
        },
        "status": {
            "addresses": null,
            "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": null, "lastTransitionTime": null }],
            "currentStatus": { "phase": "Running", "lastUpdateTime": "2026-01-02T03:04:05Z" },
            "lastOperation": { "lastUpdateTime": null },
        },
    });
    let ours = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": { "name": "workers-x" },
        "spec": {
            "class": { "kind": "MachineClass", "name": "small" },
            "nodeTemplate": { "metadata": { "creationTimestamp": null }, "spec": { "taints": [
                { "key": "a", "effect": "NoSchedule" },
            ] } },
            "providerID": "aws:///eu/i-1",
            "disableHealthTimeout": false,
            "nodeConditions": "",
        },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "currentStatus": { "phase": "Running", "lastUpdateTime": "2026-01-02T03:04:05Z" },
        },
    });
    assert_eq!(written(&read::<Machine>(from_go)), ours);
}

#[test]
fn machine_set_as_go_writes_it_is_read_and_written_without_its_nulls() {
    let from_go = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineSet",
        "metadata": { "name": "workers-1", "creationTimestamp": null },
        "spec": { "machineClass": {}, "template": { "metadata": { "creationTimestamp": null }, "spec": {
            "class": {}, "nodeTemplate": { "metadata": { "creationTimestamp": null }, "spec": {} },
        } } },
        "status": {
            "machineSetCondition": [{ "type": "Frozen", "status": "True", "lastTransitionTime": null }],
            "lastOperation": { "lastUpdateTime": null },
            "failedMachines": [{ "name": "m", "ownerRef": "workers-1", "lastOperation": {
                "state": "Failed", "type": "Create", "errorCode": "ResourceExhausted", "lastUpdateTime": null,
            } }],
        },
    });
    let ours = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineSet",
        "metadata": { "name": "workers-1" },
        "spec": { "replicas": 0, "template": { "metadata": { "creationTimestamp": null }, "spec": {
            "nodeTemplate": { "metadata": { "creationTimestamp": null }, "spec": {} },
        } } },
        "status": {
            "replicas": 0, "readyReplicas": 0, "availableReplicas": 0,
            "machineSetCondition": [{ "type": "Frozen", "status": "True" }],
            "failedMachines": [{ "name": "m", "ownerRef": "workers-1", "lastOperation": {
                "state": "Failed", "type": "Create", "errorCode": "ResourceExhausted",
            } }],
        },
    });
    assert_eq!(written(&read::<MachineSet>(from_go)), ours);
}

#[test]
fn class_keeps_what_it_does_not_know_and_reads_numbers_as_quantities() {
    let class: MachineClass = read(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineClass",
        "metadata": { "name": "small", "creationTimestamp": null },
        "provider": "AWS",
        "providerSpec": { "ami": "x", "nested": { "empty": {}, "null": null, "zero": 0 } },
        "secretRef": { "name": "s", "namespace": "n" },
        "credentialsSecretRef": null,
        "nodeTemplate": {
            "capacity": { "cpu": 2, "gpu": "0", "memory": "8Gi" }, "virtualCapacity": null, "instanceType": "m5",
            "region": "eu", "zone": "eu-a", "future": [null, { "a": "" }],
        },
    }));
    assert_eq!(
        written(&class),
        json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "MachineClass",
            "metadata": { "name": "small" },
            "provider": "AWS",
            "providerSpec": { "ami": "x", "nested": { "empty": {}, "null": null, "zero": 0 } },
            "secretRef": { "name": "s", "namespace": "n" },
            "nodeTemplate": {
                "capacity": { "cpu": "2", "gpu": "0", "memory": "8Gi" }, "instanceType": "m5",
                "region": "eu", "zone": "eu-a", "future": [null, { "a": "" }],
            },
        })
    );
}

/// Fields that Go holds by pointer: their zero is a value, and is written.
const POINTERS: [&str; 13] = [
    "disableHealthTimeout",
    "maxEvictRetries",
    "nodeConditions",
    "architecture",
    "maxSurge",
    "maxUnavailable",
    "revisionHistoryLimit",
    "progressDeadlineSeconds",
    "collisionCount",
    "rollbackTo",
    "rollingUpdate",
    "inPlaceUpdate",
    "nodeTemplate",
];
/// Fields that the schema requires, within objects that need not be there, and whatever such an object is.
const ALWAYS: [&str; 13] = [
    "metadata",
    "template",
    "type",
    "status",
    "capacity",
    "instanceType",
    "region",
    "zone",
    "spec",
    "secretRef",
    "credentialsSecretRef",
    "selector",
    "lastOperation",
];
/// Where any field may stand, with any value.
const OPAQUE: [&str; 3] = ["providerSpec", "unknown", "creationTimestamp"];

/// Paths of `null`, `""`, `0`, `false`, `[]` and `{}` where Go would have left the field out.
fn zeros(path: &str, value: &Value, found: &mut Vec<String>) {
    let Value::Object(fields) = value else {
        value.as_array().into_iter().flatten().for_each(|item| zeros(path, item, found));
        return;
    };
    for (name, value) in fields.iter().filter(|(name, _)| !OPAQUE.contains(&name.as_str())) {
        let path = format!("{path}.{name}");
        let is_zero = match value {
            Value::Null => true,
            Value::Bool(value) => !value,
            Value::Number(number) => number.as_i64() == Some(0),
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
        };
        if is_zero && !POINTERS.contains(&name.as_str()) && !ALWAYS.contains(&name.as_str()) {
            found.push(path.clone());
        }
        zeros(&path, value, found);
    }
}

fn assert_same_after_the_wire<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(object: &T) {
    let document = written(object);
    let mut found = Vec::new();
    zeros("", &document, &mut found);
    assert!(found.is_empty(), "zero values are written at {found:?} in {document}");
    assert_eq!(&read::<T>(document), object);
}

proptest! {
    #[test]
    fn machines_survive_the_wire(object in any::machine()) {
        assert_same_after_the_wire(&object);
    }

    #[test]
    fn machine_sets_survive_the_wire(object in any::machine_set()) {
        assert_same_after_the_wire(&object);
    }

    #[test]
    fn machine_deployments_survive_the_wire(object in any::machine_deployment()) {
        assert_same_after_the_wire(&object);
    }

    #[test]
    fn machine_classes_survive_the_wire(object in any::machine_class()) {
        assert_same_after_the_wire(&object);
    }

    #[test]
    fn a_class_consists_of_its_metadata_secret_and_content(class in any::machine_class()) {
        let made = MachineClass::with_content(class.metadata.clone(), class.secret_ref.clone(), class.content());
        assert_eq!(made, class);
    }
}

#[test]
fn a_phase_state_or_type_that_is_not_listed_is_kept_as_it_is() {
    let stored = json!({
        "metadata": {"name": "m"}, "spec": {},
        "status": {
            "currentStatus": {"phase": "Hibernating"},
            "lastOperation": {"state": "Paused", "type": "Hibernate"},
        },
    });
    let machine: Machine = serde_json::from_value(stored.clone()).unwrap();
    assert_eq!(machine.phase(), MachinePhase::Other("Hibernating".to_owned()));
    assert!(!machine.is_available() && !machine.is_terminating());
    assert_eq!(serde_json::to_value(&machine).unwrap()["status"], stored["status"]);
}

#[test]
fn texts_of_phases_states_and_types_are_those_of_the_reference() {
    fn known<T: From<String>>(texts: &[&str], text_of: impl Fn(&T) -> (String, bool)) {
        for text in texts {
            assert_eq!(text_of(&T::from((*text).to_owned())), ((*text).to_owned(), true));
        }
    }
    known(
        &[
            "",
            "Pending",
            "Available",
            "Running",
            "Terminating",
            "Unknown",
            "Failed",
            "CrashLoopBackOff",
            "InPlaceUpdating",
            "InPlaceUpdateSuccessful",
            "InPlaceUpdateFailed",
        ],
        |phase: &MachinePhase| (phase.as_str().to_owned(), !matches!(phase, MachinePhase::Other(_))),
    );
    known(&["Processing", "Failed", "Successful"], |state: &OperationState| {
        (state.as_str().to_owned(), !matches!(state, OperationState::Other(_)))
    });
    known(&["Create", "Update", "InPlaceUpdate", "DrainNode", "HealthCheck", "Delete"], |type_: &OperationType| {
        (type_.as_str().to_owned(), !matches!(type_, OperationType::Other(_)))
    });
}
