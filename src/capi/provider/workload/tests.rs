use std::sync::Arc;

use rstest::rstest;
use serde_json::json;

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
    let plan = plan(&Snapshot { cluster, has_pools, kubeconfig, attempt });
    assert_eq!(plan.steps.into_iter().next().map(|step| step.action), expected);
}
