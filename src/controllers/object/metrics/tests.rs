use k8s_openapi::serde::de::DeserializeOwned;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    machine::metrics::machines, machine_deployment::metrics::machine_deployments, machine_set::metrics::machine_sets,
};
use mcm_runtime::metrics::SeriesGroup;

fn object<K: DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn printed(add: impl FnOnce(&mut TextExposition)) -> String {
    let mut out = TextExposition::default();
    add(&mut out);
    out.finish()
}

#[track_caller]
fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|one| one == *line), "{line} is missing in\n{text}");
    }
}

#[test]
fn machines_are_printed_with_their_phase_class_node_and_conditions() {
    let machine = object(json!({
        "metadata": {"name": "m-1", "namespace": "shoot", "labels": {"node": "node-1"}, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"class": {"apiGroup": "machine.sapcloud.io", "kind": "MachineClass", "name": "large"}, "providerID": "aws:///eu/i-1"},
        "status": {
            "currentStatus": {"phase": "CrashLoopBackOff"},
            "conditions": [
                {"type": "Ready", "status": "Unknown"}, {"type": "Ready", "status": "True"},
                {"type": "DiskPressure", "status": "False"}, {"type": "Odd", "status": "Unknown"},
            ],
        },
    }));
    let text = printed(|out| machines(&[machine], out));
    assert_lines(
        &text,
        &[
            "mcm_machine_items_total 1",
            r#"mcm_machine_current_status_phase{name="m-1",namespace="shoot"} -2"#,
            r#"mcm_machine_info{name="m-1",namespace="shoot",createdAt="1767225600",spec_provider_id="aws:///eu/i-1",spec_class_api_group="machine.sapcloud.io",spec_class_kind="MachineClass",spec_class_name="large",node_name="node-1"} 1"#,
            r#"mcm_machine_status_condition{name="m-1",namespace="shoot",condition="Ready"} 1"#,
            r#"mcm_machine_status_condition{name="m-1",namespace="shoot",condition="DiskPressure"} 0"#,
            r#"mcm_machine_status_condition{name="m-1",namespace="shoot",condition="Odd"} 2"#,
        ],
    );
    assert_eq!(text.matches("condition=\"Ready\"").count(), 1, "two samples with the same labels make a scrape fail");
}

#[test]
fn no_machines_are_zero_machines() {
    let text = printed(|out| machines(&[], out));
    assert_eq!(text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>(), ["mcm_machine_items_total 0"]);
}

#[rstest]
#[case("", None)]
#[case("Available", Some("2"))]
#[case("Running", Some("1"))]
#[case("InPlaceUpdateFailed", Some("-5"))]
fn a_phase_is_never_mistaken_for_pending(#[case] phase: &str, #[case] number: Option<&str>) {
    let machine = object(json!({
        "metadata": {"name": "m", "namespace": "n"}, "spec": {}, "status": {"currentStatus": {"phase": phase}},
    }));
    let text = printed(|out| machines(&[machine], out));
    let found =
        text.lines().find_map(|line| line.strip_prefix(r#"mcm_machine_current_status_phase{name="m",namespace="n"} "#));
    assert_eq!(found, number);
}

#[test]
fn sets_report_replicas_as_replicas() {
    let set = object(json!({
        "metadata": {"name": "s", "namespace": "n"},
        "spec": {"replicas": 5, "template": {}},
        "status": {
            "replicas": 4, "readyReplicas": 3, "availableReplicas": 2, "fullyLabeledReplicas": 1,
            "machineSetCondition": [{"type": "Frozen", "status": "True"}],
            "failedMachines": [{
                "name": "m", "providerID": "id", "ownerRef": "s",
                "lastOperation": {"state": "Failed", "type": "Create", "description": "no stock"},
            }],
        },
    }));
    let text = printed(|out| machine_sets(&[set], out));
    assert_lines(
        &text,
        &[
            "mcm_machine_set_items_total 1",
            r#"mcm_machine_set_info{name="s",namespace="n",createdAt="0",spec_machine_class_api_group="",spec_machine_class_kind="",spec_machine_class_name=""} 1"#,
            r#"mcm_machine_set_info_spec_replicas{name="s",namespace="n"} 5"#,
            r#"mcm_machine_set_info_spec_min_ready_seconds{name="s",namespace="n"} 0"#,
            r#"mcm_machine_set_status_replicas{name="s",namespace="n"} 4"#,
            r#"mcm_machine_set_status_ready_replicas{name="s",namespace="n"} 3"#,
            r#"mcm_machine_set_status_available_replicas{name="s",namespace="n"} 2"#,
            r#"mcm_machine_set_status_fully_labelled_replicas{name="s",namespace="n"} 1"#,
            r#"mcm_machine_set_status_condition{name="s",namespace="n",condition="Frozen"} 1"#,
            r#"mcm_machine_set_failed_machines{name="s",namespace="n",failed_machine_name="m",failed_machine_provider_id="id",failed_machine_owner_ref="s",failed_machine_last_operation_state="Failed",failed_machine_last_operation_machine_operation_type="Create"} 1"#,
        ],
    );
    assert!(!text.contains("no stock"), "texts are not labels");
}

#[test]
fn percentages_of_a_deployment_are_numbers_of_machines() {
    let deployment = object(json!({
        "metadata": {"name": "d", "namespace": "n"},
        "spec": {
            "replicas": 7, "paused": true, "template": {}, "revisionHistoryLimit": 2, "rollbackTo": {"revision": 3},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "20%", "maxUnavailable": "20%"}},
        },
        "status": {"replicas": 9, "updatedReplicas": 4, "readyReplicas": 6, "availableReplicas": 6, "unavailableReplicas": 1, "collisionCount": 1},
    }));
    let text = printed(|out| machine_deployments(&[deployment], out));
    let of = r#"{name="d",namespace="n"}"#;
    let lines: Vec<String> = [
        ("info_spec_paused", 1),
        ("info_spec_replicas", 7),
        ("info_spec_revision_history_limit", 2),
        ("info_spec_rollback_to_revision", 3),
        ("info_spec_rolling_update_max_surge", 2),
        ("info_spec_rolling_update_max_unavailable", 1),
        ("status_replicas", 9),
        ("status_updated_replicas", 4),
        ("status_ready_replicas", 6),
        ("status_available_replicas", 6),
        ("status_unavailable_replicas", 1),
        ("status_collision_count", 1),
    ]
    .into_iter()
    .map(|(name, value)| format!("mcm_machine_deployment_{name}{of} {value}"))
    .collect();
    assert_lines(&text, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!text.contains("progress_deadline"), "what is not set has no series");
}

#[test]
fn a_deployment_without_bounds_is_printed_without_them() {
    let deployment = object(json!({
        "metadata": {"name": "d", "namespace": "n"},
        "spec": {"replicas": 1, "template": {}, "strategy": {"type": "RollingUpdate"}},
    }));
    let text = printed(|out| machine_deployments(&[deployment], out));
    assert!(text.contains(r#"spec_strategy_type="RollingUpdate""#) && !text.contains("max_surge"), "{text}");
}

#[test]
fn conditions_and_failed_machines_of_a_deployment_are_printed() {
    let deployment = object(json!({
        "metadata": {"name": "d", "namespace": "n"},
        "spec": {"replicas": 1, "template": {}, "strategy": {"type": "Recreate"}},
        "status": {
            "conditions": [{"type": "Available", "status": "False"}, {"type": "Progressing", "status": "Unknown"}],
            "failedMachines": [{
                "name": "m", "providerID": "id", "ownerRef": "s",
                "lastOperation": {"state": "Failed", "type": "Create", "description": "no stock"},
            }],
        },
    }));
    let text = printed(|out| machine_deployments(&[deployment], out));
    assert_lines(
        &text,
        &[
            "mcm_machine_deployment_items_total 1",
            r#"mcm_machine_deployment_info{name="d",namespace="n",createdAt="0",spec_strategy_type="Recreate"} 1"#,
            r#"mcm_machine_deployment_status_condition{name="d",namespace="n",condition="Available"} 0"#,
            r#"mcm_machine_deployment_status_condition{name="d",namespace="n",condition="Progressing"} 2"#,
            r#"mcm_machine_deployment_failed_machines{name="d",namespace="n",failed_machine_name="m",failed_machine_provider_id="id",failed_machine_owner_ref="s",failed_machine_last_operation_state="Failed",failed_machine_last_operation_machine_operation_type="Create"} 1"#,
        ],
    );
}

fn aggregated(add: impl FnOnce(&mut TextExposition)) -> (String, u64) {
    let mut out = TextExposition::aggregating([SeriesGroup::Machines]);
    add(&mut out);
    let omitted = out.omitted().map(|(_, count)| count).sum();
    (out.finish(), omitted)
}

#[test]
fn aggregates_count_machines_by_deployment_and_phase_with_the_age_of_the_oldest() {
    let machine = |name: &str, created: &str, owner: Value, phase: &str| {
        let mut metadata = json!({"name": name, "namespace": "shoot", "creationTimestamp": created});
        metadata.as_object_mut().unwrap().extend(owner.as_object().unwrap().clone());
        object(json!({
            "metadata": metadata, "spec": {},
            "status": {"currentStatus": {"phase": phase}, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
    };
    let labelled = json!({"labels": {"name": "pool"}});
    let of_set = json!({"ownerReferences": [
        {"apiVersion": "v1", "kind": "MachineSet", "name": "pool-84dff", "uid": "1", "controller": true},
    ]});
    let all = [
        machine("a", "2026-01-01T00:00:00Z", labelled.clone(), "Running"),
        machine("b", "2025-01-01T00:00:00Z", labelled.clone(), "Running"),
        machine("c", "2999-01-01T00:00:00Z", labelled, "Failed"),
        machine("d", "2026-01-01T00:00:00Z", of_set, ""),
        machine("e", "2026-01-01T00:00:00Z", json!({}), "Odd"),
    ];
    let began = jiff::Timestamp::now();
    let (text, omitted) = aggregated(|out| machines(&all, out));
    assert_lines(
        &text,
        &[
            "mcm_machine_items_total 5",
            r#"mcm_machines{namespace="shoot",deployment="pool",phase="Running"} 2"#,
            r#"mcm_machines{namespace="shoot",deployment="pool",phase="Failed"} 1"#,
            r#"mcm_machines{namespace="shoot",deployment="pool-84dff",phase="New"} 1"#,
            r#"mcm_machines{namespace="shoot",deployment="",phase="Other"} 1"#,
            r#"mcm_machines_oldest_age_seconds{namespace="shoot",deployment="pool",phase="Failed"} 0"#,
        ],
    );
    let oldest = r#"mcm_machines_oldest_age_seconds{namespace="shoot",deployment="pool",phase="Running"} "#;
    let age: f64 = text.lines().find_map(|line| line.strip_prefix(oldest)).unwrap().parse().unwrap();
    let since = began.duration_since("2025-01-01T00:00:00Z".parse().unwrap()).as_secs_f64();
    assert!(age >= since && age < since + 3600.0, "{age} instead of {since}");
    // Of each machine its properties and a condition, and of three a phase with a number.
    assert_eq!(omitted, 13);
    assert!(!text.contains("name=\"a\"") && !text.contains("name=\"c\""), "{text}");
}

#[test]
fn aggregates_leave_the_numbers_of_sets_and_deployments_and_drop_their_properties() {
    let set = |name: &str, replicas: i32| {
        object(json!({
            "metadata": {"name": name, "namespace": "n"}, "spec": {"replicas": replicas, "template": {}},
            "status": {
                "replicas": replicas, "machineSetCondition": [{"type": "Frozen", "status": "True"}],
                "failedMachines": [{"name": "m", "providerID": "id", "ownerRef": "s", "lastOperation": {}}],
            },
        }))
    };
    let (text, omitted) = aggregated(|out| machine_sets(&[set("s", 5), set("old", 0)], out));
    assert_lines(
        &text,
        &[
            "mcm_machine_set_items_total 2",
            r#"mcm_machine_set_info_spec_replicas{name="s",namespace="n"} 5"#,
            r#"mcm_machine_set_status_replicas{name="s",namespace="n"} 5"#,
            r#"mcm_machine_set_status_condition{name="s",namespace="n",condition="Frozen"} 1"#,
        ],
    );
    assert!(!text.contains("\"old\"") && !text.contains("mcm_machine_set_info{") && !text.contains("failed"), "{text}");
    assert_eq!(omitted, 3 + 9, "properties and a failed machine of one, and all series of the other");

    let deployment = object(json!({
        "metadata": {"name": "d", "namespace": "n"},
        "spec": {
            "replicas": 7, "template": {}, "revisionHistoryLimit": 2,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        },
        "status": {"replicas": 9, "conditions": [{"type": "Progressing", "status": "True"}]},
    }));
    let (text, omitted) = aggregated(|out| machine_deployments(&[deployment], out));
    assert_lines(
        &text,
        &[
            "mcm_machine_deployment_items_total 1",
            r#"mcm_machine_deployment_info_spec_paused{name="d",namespace="n"} 0"#,
            r#"mcm_machine_deployment_info_spec_replicas{name="d",namespace="n"} 7"#,
            r#"mcm_machine_deployment_status_replicas{name="d",namespace="n"} 9"#,
            r#"mcm_machine_deployment_status_condition{name="d",namespace="n",condition="Progressing"} 1"#,
        ],
    );
    assert!(!text.contains("max_surge") && !text.contains("revision_history"), "{text}");
    assert_eq!(omitted, 5);
}

/// With seven of each cell, and about a thousand of the process, these are fewer than 8,000.
#[test]
fn two_hundred_control_planes_of_fifty_machines_have_sixteen_series_each() {
    const PLANES: usize = 200;
    let in_plane = |plane: usize, name: &str| json!({"name": name, "namespace": format!("shoot-{plane}"), "labels": {"name": "pool"}});
    let condition = |type_: &str| json!({"type": type_, "status": "True"});
    let (mut all_machines, mut sets, mut deployments) = (Vec::new(), Vec::new(), Vec::new());
    for plane in 0..PLANES {
        for number in 0..50 {
            all_machines.push(object(json!({
                "metadata": in_plane(plane, &format!("pool-{number}")), "spec": {},
                "status": {"currentStatus": {"phase": "Running"}, "conditions": [condition("Ready")]},
            })));
        }
        for (name, replicas) in [("pool-new", 50), ("pool-old", 0)] {
            sets.push(object(json!({
                "metadata": in_plane(plane, name), "spec": {"replicas": replicas, "template": {}},
                "status": {"replicas": replicas},
            })));
        }
        // The owner of the sets is not a subject of this test.
        deployments.push(object(json!({
            "metadata": in_plane(plane, "pool"),
            "spec": {"replicas": 50, "template": {}, "strategy": {"type": "RollingUpdate"}},
            "status": {"replicas": 50, "conditions": [condition("Available"), condition("Progressing")]},
        })));
    }
    let (text, _) = aggregated(|out| {
        machines(&all_machines, out);
        machine_sets(&sets, out);
        machine_deployments(&deployments, out);
    });
    let is_owner = |line: &&str| line.starts_with("mcm_machine_set_without_owner");
    let series = text.lines().filter(|line| !line.starts_with('#') && !is_owner(line));
    assert_eq!(series.count(), 3 + 16 * PLANES);
}
