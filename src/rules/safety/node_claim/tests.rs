use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use mcm_api::patch::apply as merge;

const ID: &str = "aws:///eu-west-1/i-1";

/// The Machine `b-1` of namespace `team`, created at second 100, that names Node `a-1` and its VM.
fn machine(change: Value) -> Machine {
    let mut value = json!({
        "metadata": {
            "name": "b-1", "namespace": "team", "uid": "u-b", "creationTimestamp": "1970-01-01T00:01:40Z",
            "labels": { "node": "a-1" },
        },
        "spec": { "providerID": ID },
    });
    merge(&mut value, &change);
    serde_json::from_value(value).unwrap()
}

fn node(change: Value) -> Node {
    let mut value = json!({ "metadata": { "name": "a-1" }, "spec": { "providerID": ID } });
    merge(&mut value, &change);
    serde_json::from_value(value).unwrap()
}

fn found(id: &str, name: &str) -> VmReport {
    VmReport::Found(ReportedVm { provider_id: id.to_owned(), node_provider_id: None, node_name: name.to_owned() })
}

fn at(second: i64) -> Option<Timestamp> {
    Timestamp::from_second(second).ok()
}

fn verdict(node: &Node, machine: &Machine, report: &VmReport, born: i64) -> &'static str {
    match NodeClaim::new(node, machine, report, at(born)) {
        NodeClaim::Own => "own",
        NodeClaim::Foreign(_) => "foreign",
        NodeClaim::Unproven(_) => "unproven",
    }
}

/// Nodes of another namespace, without a Machine, and of a control plane.
fn strangers() -> Vec<Node> {
    let annotated = |value: &str| json!({ "metadata": { "annotations": { (labels::NODE_OF): value } } });
    let labelled = |value: &str| json!({ "metadata": { "labels": { (MACHINE_NAME): value } } });
    let mut both = annotated("demo/a-1/u-a");
    merge(&mut both, &labelled("a-1"));
    let control_plane = json!({ "metadata": { "labels": { (CONTROL_PLANE_ROLES[0]): "" } } });
    let without_id = |mut change: Value| {
        merge(&mut change, &json!({ "spec": { "providerID": null } }));
        change
    };
    let changes = [both, annotated("demo/b-1/u-a"), labelled("a-1"), json!({}), control_plane, annotated("nonsense")];
    changes.into_iter().flat_map(|change| [node(change.clone()), node(without_id(change))]).collect()
}

/// Tries all that the author of a Machine writes: the label, the ID, the class (whose driver finds nothing, or a VM of another
/// account), and the name.
#[test]
fn no_machine_takes_the_node_of_another_by_what_its_author_writes() {
    let statuses = [json!({}), json!({ "status": { "currentStatus": { "phase": "Running" } } })];
    let ids =
        [json!({}), json!({ "spec": { "providerID": "" } }), json!({ "spec": { "providerID": "gce://p/z/a-1" } })];
    let labels = [json!({}), json!({ "metadata": { "labels": { "node": null } } })];
    let reports =
        [VmReport::Pending, VmReport::Missing, found("aws:///eu-west-1/i-2", "ip-2"), found("gce://p/z/a-1", "a-1")];
    let mut tried = 0;
    for (node, status) in strangers().iter().flat_map(|node| statuses.iter().map(move |status| (node, status))) {
        for (id, label) in ids.iter().flat_map(|id| labels.iter().map(move |label| (id, label))) {
            let mut change = status.clone();
            merge(&mut change, id);
            merge(&mut change, label);
            for report in &reports {
                let claim = verdict(node, &machine(change.clone()), report, 50);
                assert_ne!(claim, "own", "{node:?} {change} {report:?}");
                tried += 1;
            }
        }
    }
    assert_eq!(tried, 12 * 2 * 3 * 2 * 4);
}

#[rstest]
#[case::own_uid(json!({ "metadata": { "annotations": { (labels::NODE_OF): "team/b-1/u-b" } } }), json!({}), "own")]
#[case::uid_of_another(json!({ "metadata": { "annotations": { (labels::NODE_OF): "team/b-1/u-x" } } }), json!({}), "unproven")]
#[case::taken_over(json!({ "metadata": { "labels": { (MACHINE_NAME): "b-1" } } }), json!({ "status": { "currentStatus": { "phase": "Running" } } }), "own")]
#[case::taken_over_in_a_deletion(json!({ "metadata": { "labels": { (MACHINE_NAME): "b-1" } } }), json!({ "status": { "currentStatus": { "phase": "Terminating" }, "conditions": [{ "type": "Ready", "status": "False" }] } }), "own")]
#[case::a_new_machine_of_the_same_name(json!({ "metadata": { "labels": { (MACHINE_NAME): "b-1" } } }), json!({}), "unproven")]
#[case::deleted_at_once(json!({ "metadata": { "labels": { (MACHINE_NAME): "b-1" } } }), json!({ "status": { "currentStatus": { "phase": "Terminating" } } }), "unproven")]
#[case::another_vm(json!({ "metadata": { "labels": { (MACHINE_NAME): "b-1" } }, "spec": { "providerID": "aws:///eu-west-1/i-9" } }), json!({ "status": { "currentStatus": { "phase": "Running" } } }), "unproven")]
fn the_evidence_of_stored_objects(#[case] of_node: Value, #[case] of_machine: Value, #[case] expected: &str) {
    assert_eq!(verdict(&node(of_node), &machine(of_machine), &VmReport::Pending, 200), expected);
}

#[rstest]
#[case::its_id(json!({}), found("aws:///eu-west-1a/i-1", "x"), 50, "own")]
#[case::its_node_id(json!({ "spec": { "providerID": "azure:///subscriptions/S/a-1" } }), VmReport::Found(ReportedVm { provider_id: "azure:///west/a-1".into(), node_provider_id: Some("azure:///subscriptions/s/a-1".into()), node_name: "a-1".into() }), 50, "own")]
#[case::its_name_and_younger(json!({ "spec": { "providerID": "" } }), found(ID, "a-1"), 100, "own")]
#[case::its_name_and_older(json!({ "spec": { "providerID": "" } }), found(ID, "a-1"), 99, "unproven")]
#[case::its_name_in_another_project(json!({ "spec": { "providerID": "gce://other/z/a-1" } }), found("gce:///own/z/a-1", "a-1"), 200, "foreign")]
#[case::a_control_plane_of_before(json!({ "metadata": { "labels": { (CONTROL_PLANE_ROLES[1]): "" } } }), found(ID, "a-1"), 99, "foreign")]
#[case::a_control_plane_of_its_class(json!({ "metadata": { "labels": { (CONTROL_PLANE_ROLES[1]): "" } } }), found(ID, "a-1"), 100, "own")]
#[case::a_control_plane_of_its_name(json!({ "metadata": { "labels": { (CONTROL_PLANE_ROLES[0]): "" } }, "spec": { "providerID": "" } }), found(ID, "a-1"), 200, "foreign")]
#[case::no_name_and_younger(json!({ "spec": { "providerID": "" } }), found("", ""), 100, "own")]
#[case::no_name_and_older(json!({ "spec": { "providerID": "" } }), found("", ""), 99, "foreign")]
#[case::another_name(json!({ "spec": { "providerID": "" } }), found(ID, "a-2"), 200, "foreign")]
#[case::another_machine_of_the_namespace(json!({ "metadata": { "annotations": { (labels::NODE_OF): "team/dead/u" } } }), found(ID, "a-1"), 200, "own")]
#[case::a_machine_of_another_namespace(json!({ "metadata": { "annotations": { (labels::NODE_OF): "demo/a-1/u" } } }), found(ID, "a-1"), 200, "foreign")]
#[case::one_that_no_manager_has(json!({ "metadata": { "annotations": { (labels::NODE_OF): "demo/a-1/u", (NOT_MANAGED): "1" } } }), found(ID, "a-1"), 200, "own")]
#[case::one_whose_manager_may_answer(json!({ "metadata": { "annotations": { (labels::NODE_OF): "demo/a-1/u", (NOT_MANAGED): "1" }, "finalizers": [NODE_FINALIZER] } }), found(ID, "a-1"), 200, "foreign")]
#[case::moved(json!({ "metadata": { "annotations": { (labels::NODE_OF): "team/b-1/before" } }, "spec": { "providerID": "" } }), found(ID, "a-1"), 50, "own")]
#[case::no_vm(json!({}), VmReport::Missing, 200, "foreign")]
#[case::no_look_up_and_younger(json!({}), VmReport::Unsupported, 100, "own")]
#[case::no_look_up_and_older(json!({}), VmReport::Unsupported, 99, "foreign")]
fn the_evidence_of_drivers(
    #[case] of_node: Value,
    #[case] report: VmReport,
    #[case] born: i64,
    #[case] expected: &str,
) {
    assert_eq!(verdict(&node(of_node), &machine(json!({})), &report, born), expected);
}

#[rstest]
#[case::zone_and_region("aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-1", Some(true))]
#[case::slashes("gce:///p/z/a", "gce://p/z/a", Some(true))]
#[case::case_of_letters("Azure:///Sub/A", "azure:///sub/a", Some(true))]
#[case::project("gce:///p/z/a", "gce://q/z/a", Some(false))]
#[case::another("aws:///r/i-1", "aws:///r/i-2", Some(false))]
#[case::forms_that_cannot_be_compared("azure:///west/a", "azure:///s/rg/vm/a", None)]
#[case::others("metal:///p/u1", "metal://u2", None)]
#[case::none("", "aws:///r/i-2", None)]
fn provider_ids_are_compared_by_what_is_unique(#[case] one: &str, #[case] other: &str, #[case] expected: Option<bool>) {
    assert_eq!((is_one_vm(one, other, &["a"]), is_one_vm(other, one, &["a"])), (expected, expected));
}

#[test]
fn a_rollout_changes_only_nodes_that_name_the_machine() {
    let own = machine(json!({}));
    let named = |metadata: Value| is_named(&node(json!({ "metadata": metadata })), &own);
    assert!(named(json!({ "labels": { (MACHINE_NAME): "b-1" } })));
    assert!(named(json!({ "annotations": { (labels::NODE_OF): "team/b-1/u-b" } })));
    assert!(!named(json!({})) && !named(json!({ "labels": { (MACHINE_NAME): "a-1" } })));
    assert!(!named(
        json!({ "labels": { (MACHINE_NAME): "b-1" }, "annotations": { (labels::NODE_OF): "demo/b-1/u-a" } })
    ));
}
