use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};

use super::{Action, KubeconfigAttempt, Snapshot, plan::plan};
use crate::object::view::ObjectView;
use mcm_conversion::types::Cluster;

fn cluster() -> ObjectView<Cluster> {
    let cluster = json!({ "metadata": { "name": "c", "namespace": "ns" }, "spec": {} });
    ObjectView::Present(Arc::new(serde_json::from_value(cluster).unwrap()))
}

fn secret(version: &str) -> ObjectView<String> {
    ObjectView::Present(Arc::new(version.to_owned()))
}

fn attempt(version: &str, problem: Option<&str>) -> Option<KubeconfigAttempt> {
    Some(KubeconfigAttempt { version: version.to_owned(), problem: problem.map(str::to_owned) })
}

fn connect(version: &str) -> Option<Action> {
    Some(Action::Connect(version.to_owned()))
}

/// Row `Cluster` of 3.6: the kubeconfig is followed; a connection stays while its Secret is missing.
#[rstest]
#[case::first(cluster(), true, secret("1"), None, connect("1"))]
#[case::connected(cluster(), true, secret("1"), attempt("1", None), None)]
#[case::rotated(cluster(), true, secret("2"), attempt("1", None), connect("2"))]
#[case::wrong(cluster(), true, secret("1"), attempt("1", Some("no key")), None)]
#[case::corrected(cluster(), true, secret("2"), attempt("1", Some("no key")), connect("2"))]
#[case::missing(cluster(), true, ObjectView::Missing, None, Some(Action::Miss))]
#[case::came_late(cluster(), true, secret("1"), attempt("", Some("no Secret")), connect("1"))]
#[case::deleted(cluster(), true, ObjectView::Missing, attempt("1", None), None)]
#[case::unreadable(cluster(), true, ObjectView::Unknown, None, None)]
#[case::no_pools(cluster(), false, secret("1"), None, None)]
#[case::last_pool_gone(cluster(), false, secret("1"), attempt("1", None), Some(Action::Disconnect))]
#[case::cluster_gone(ObjectView::Missing, true, secret("1"), attempt("1", None), Some(Action::Disconnect))]
#[case::cluster_unknown(ObjectView::Unknown, true, secret("1"), attempt("1", None), None)]
fn a_workload_cluster_is_connected_while_there_are_pools(
    #[case] cluster: ObjectView<Cluster>,
    #[case] has_pools: bool,
    #[case] kubeconfig: ObjectView<String>,
    #[case] attempt: Option<KubeconfigAttempt>,
    #[case] expected: Option<Action>,
) {
    let plan = plan(&Snapshot { cluster, has_pools, kubeconfig, attempt, left: Vec::new(), is_undecided: false });
    assert_eq!(plan.steps.into_iter().next().map(|step| step.action), expected);
}

fn going(change: &Value) -> ObjectView<Cluster> {
    let mut cluster = json!({
        "metadata": { "name": "c", "namespace": "ns", "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": {},
    });
    mcm_api::patch::apply(&mut cluster, change);
    ObjectView::Present(Arc::new(serde_json::from_value(cluster).unwrap()))
}

/// The finalizer of a Node is removed before the connection. At the source of a move, and with a Cluster that lives on, it stays.
#[rstest]
#[case::deleted(going(&json!({})), &["n"], false, &["remove the finalizer of Node n"])]
#[case::all_released(going(&json!({})), &[], false, &["disconnect"])]
#[case::unreadable(going(&json!({})), &[], true, &[])]
#[case::some_unreadable(going(&json!({})), &["n"], true, &["remove the finalizer of Node n"])]
#[case::moved(
    going(&json!({ "metadata": { "annotations": { "clusterctl.cluster.x-k8s.io/delete-for-move": "" } } })), &["n"], false,
    &["disconnect"]
)]
#[case::paused(going(&json!({ "spec": { "paused": true } })), &["n"], false, &["disconnect"])]
#[case::alive(cluster(), &["n"], false, &["disconnect"])]
#[case::gone(ObjectView::Missing, &["n"], false, &["disconnect"])]
fn no_node_keeps_our_finalizer_after_its_cluster(
    #[case] cluster: ObjectView<Cluster>,
    #[case] left: &[&str],
    #[case] is_undecided: bool,
    #[case] expected: &[&str],
) {
    let node = |name: &&str| Arc::new(serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap());
    let left = left.iter().map(node).collect();
    let (kubeconfig, attempt) = (secret("1"), attempt("1", None));
    let plan = plan(&Snapshot { cluster, has_pools: false, kubeconfig, attempt, left, is_undecided });
    assert_eq!(plan.steps.into_iter().map(|step| step.action.to_string()).collect::<Vec<_>>(), expected);
    assert_eq!(plan.waits.len(), usize::from(expected.is_empty()));
}
