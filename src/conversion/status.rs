//! The status of native objects in the form of Cluster API. It is read-only: it is not converted back.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};

use super::cloud::provider_id;
use crate::types::{Initialization, MachineDeploymentStatus, MachineStatus, NodeRef};
use mcm_api::machine::{Machine, MachineDeployment, MachinePhase};

/// Status of a Machine. `was_provisioned` is what was shown before: a VM that was there once was there.
pub fn machine(machine: &Machine, was_provisioned: bool) -> MachineStatus {
    let status = machine.status.clone().unwrap_or_default();
    let phase = machine.phase();
    let has_vm = !machine.spec.provider_id.is_empty()
        && matches!(phase, MachinePhase::Available | MachinePhase::Running | MachinePhase::Unknown);
    let initialization = Initialization {
        infrastructure_provisioned: (was_provisioned || has_vm).then_some(true),
        bootstrap_data_secret_created: None,
    };
    MachineStatus {
        node_ref: machine.node_name().map(|name| NodeRef { name: name.to_owned() }),
        addresses: status.addresses,
        phase: phase_of(machine).to_owned(),
        last_updated: status.current_status.last_update_time,
        initialization,
        conditions: Vec::new(),
        observed_generation: None,
    }
}

fn phase_of(machine: &Machine) -> &'static str {
    if machine.is_terminating() {
        return "Deleting";
    }
    match machine.phase() {
        MachinePhase::New => "Pending",
        MachinePhase::Pending | MachinePhase::CrashLoopBackOff => "Provisioning",
        MachinePhase::Available => "Provisioned",
        MachinePhase::Running | MachinePhase::Unknown | MachinePhase::InPlaceUpdateSuccessful => "Running",
        MachinePhase::Failed | MachinePhase::InPlaceUpdateFailed => "Failed",
        MachinePhase::Terminating => "Deleting",
        MachinePhase::InPlaceUpdating => "Updating",
        MachinePhase::Other(_) => "Unknown",
    }
}

/// Status of a deployment.
pub fn deployment(deployment: &MachineDeployment) -> MachineDeploymentStatus {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.replicas;
    let phase = if !status.failed_machines.is_empty() {
        "Failed"
    } else if status.replicas < wanted {
        "ScalingUp"
    } else if status.replicas > wanted {
        "ScalingDown"
    } else {
        "Running"
    };
    let available = status.conditions.iter().find(|condition| condition.type_ == "Available");
    let conditions = available.and_then(|condition| {
        Some(Condition {
            type_: "Available".to_owned(),
            status: condition.status.clone(),
            reason: if condition.status == "True" { "Available" } else { "NotAvailable" }.to_owned(),
            message: condition.message.clone(),
            last_transition_time: condition.last_transition_time.clone()?,
            observed_generation: None,
        })
    });
    MachineDeploymentStatus {
        selector: deployment.spec.selector.as_ref().map(selector_text).unwrap_or_default(),
        replicas: Some(status.replicas),
        ready_replicas: Some(status.ready_replicas),
        available_replicas: Some(status.available_replicas),
        up_to_date_replicas: Some(status.updated_replicas),
        phase: phase.to_owned(),
        conditions: conditions.into_iter().collect(),
        observed_generation: None,
    }
}

/// `providerIDList` and `status.replicas` of a pool, from its Machines and the zones of their classes. The VM of a Machine
/// that is being deleted may still run, so its ID stays: Cluster API deletes Nodes whose ID is not listed.
pub fn pool<'a>(machines: impl IntoIterator<Item = (&'a Machine, Option<&'a str>)>) -> (Vec<String>, i32) {
    let mut ids = Vec::new();
    let mut replicas = 0;
    for (machine, zone) in machines {
        replicas += i32::from(!machine.is_terminating());
        let has_vm = !machine.spec.provider_id.is_empty();
        ids.extend(provider_id::of_node(machine, zone).filter(|_| has_vm));
    }
    (ids, replicas)
}

/// A selector as the scale subresource has it.
pub fn selector_text(selector: &LabelSelector) -> String {
    let no_labels = BTreeMap::new();
    let labels = selector.match_labels.as_ref().unwrap_or(&no_labels).iter();
    let labels = labels.map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.clone().unwrap_or_default().join(",");
        match one.operator.as_str() {
            "In" => format!("{} in ({values})", one.key),
            "NotIn" => format!("{} notin ({values})", one.key),
            "DoesNotExist" => format!("!{}", one.key),
            _ => one.key.clone(),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn machine_in(phase: &str, id: &str) -> Machine {
        serde_json::from_value(json!({
            "metadata": { "name": "m", "labels": { "node": "n" } },
            "spec": { "providerID": id },
            "status": {
                "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
                "currentStatus": { "phase": phase, "lastUpdateTime": "2026-01-01T00:00:00Z" },
            },
        }))
        .unwrap()
    }

    /// Row `status.phase` of 3.5.
    #[rstest]
    #[case("", "Pending")]
    #[case("Pending", "Provisioning")]
    #[case("CrashLoopBackOff", "Provisioning")]
    #[case("Available", "Provisioned")]
    #[case("Running", "Running")]
    #[case("Unknown", "Running")]
    #[case("Failed", "Failed")]
    #[case("Terminating", "Deleting")]
    #[case("InPlaceUpdating", "Updating")]
    #[case("InPlaceUpdateSuccessful", "Running")]
    #[case("InPlaceUpdateFailed", "Failed")]
    #[case("Hibernating", "Unknown")]
    fn r35_every_native_phase_is_one_of_cluster_api(#[case] phase: &str, #[case] expected: &str) {
        let shown = machine(&machine_in(phase, ""), false);
        assert_eq!(shown.phase, expected);
        assert_eq!(shown.node_ref.unwrap().name, "n");
        assert_eq!(shown.addresses[0].address, "10.0.0.1");
        assert_eq!(shown.last_updated.unwrap().0.to_string(), "2026-01-01T00:00:00Z");
    }

    #[test]
    fn r35_a_deletion_timestamp_is_enough_to_be_deleting() {
        let mut deleted = machine_in("Running", "");
        deleted.metadata.deletion_timestamp = deleted.status.clone().unwrap().current_status.last_update_time;
        assert_eq!(machine(&deleted, false).phase, "Deleting");
    }

    /// Row `infrastructureProvisioned` of 3.5: sticky.
    #[rstest]
    #[case("Running", "x:///y", false, Some(true))]
    #[case("Running", "", false, None)]
    #[case("Pending", "x:///y", false, None)]
    #[case("Failed", "", true, Some(true))]
    fn r35_a_vm_that_was_there_once_was_there(
        #[case] phase: &str,
        #[case] id: &str,
        #[case] was_there: bool,
        #[case] expected: Option<bool>,
    ) {
        let shown = machine(&machine_in(phase, id), was_there);
        assert_eq!(shown.initialization.infrastructure_provisioned, expected);
    }

    /// Rules 3.7 and P10.
    #[test]
    fn r37_a_pool_lists_every_vm_that_may_run_and_counts_those_that_stay() {
        let aws = machine_in("Running", "aws:///eu-west-1/i-1");
        let mut deleted = machine_in("Terminating", "gce:///p/eu-a/vm");
        deleted.metadata.deletion_timestamp = deleted.status.clone().unwrap().current_status.last_update_time;
        let creating = machine_in("Pending", "");
        let (ids, replicas) = pool([(&aws, Some("eu-west-1a")), (&deleted, None), (&creating, None)]);
        assert_eq!(ids, ["aws:///eu-west-1a/i-1", "gce://p/eu-a/vm"]);
        assert_eq!(replicas, 2);
    }

    fn deployment_with(status: Value) -> MachineDeployment {
        serde_json::from_value(json!({
            "metadata": { "name": "d" },
            "spec": {
                "replicas": 3, "template": {},
                "selector": {
                    "matchLabels": { "a": "b" },
                    "matchExpressions": [
                        { "key": "c", "operator": "In", "values": ["d", "e"] }, { "key": "f", "operator": "Exists" },
                        { "key": "g", "operator": "DoesNotExist" }, { "key": "h", "operator": "NotIn", "values": ["i"] },
                    ],
                },
            },
            "status": status,
        }))
        .unwrap()
    }

    /// Rows on `status` of 3.4.
    #[test]
    fn r34_counters_and_the_selector_are_shown() {
        let shown = deployment(&deployment_with(json!({
            "observedGeneration": 7, "replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "updatedReplicas": 3,
        })));
        let counters = [shown.replicas, shown.ready_replicas, shown.available_replicas, shown.up_to_date_replicas];
        assert_eq!(counters, [Some(3), Some(2), Some(1), Some(3)]);
        assert_eq!(shown.selector, "a=b,c in (d,e),f,!g,h notin (i)");
    }

    #[rstest]
    #[case(json!({ "replicas": 3 }), "Running")]
    #[case(json!({ "replicas": 2 }), "ScalingUp")]
    #[case(json!({ "replicas": 4 }), "ScalingDown")]
    #[case(json!({ "replicas": 3, "failedMachines": [{ "name": "m" }] }), "Failed")]
    fn r34_the_phase_is_computed_from_the_counters(#[case] status: Value, #[case] expected: &str) {
        assert_eq!(deployment(&deployment_with(status)).phase, expected);
    }

    #[rstest]
    #[case("True", "Available")]
    #[case("False", "NotAvailable")]
    fn r34_the_condition_available_keeps_its_status(#[case] status: &str, #[case] reason: &str) {
        let shown = deployment(&deployment_with(json!({ "conditions": [
            { "type": "Available", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z" },
            { "type": "Progressing", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
        ] })));
        let [condition] = &shown.conditions[..] else { panic!("{:?}", shown.conditions) };
        assert_eq!(
            (condition.type_.as_str(), condition.status.as_str(), condition.reason.as_str()),
            ("Available", status, reason)
        );
    }
}
