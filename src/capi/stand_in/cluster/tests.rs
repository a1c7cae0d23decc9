use std::sync::Arc;

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Action, Snapshot, plan::plan};
use crate::stand_in::standing::StandInStatus;

fn snapshot(standing: StandInStatus, spec: Value) -> Snapshot {
    let object = json!({ "metadata": { "name": "c", "namespace": "ns" }, "spec": spec });
    Snapshot {
        standing,
        object: Arc::new(serde_json::from_value(object).unwrap()),
        watch_filter: None,
        now: Timestamp::from_second(100).unwrap(),
    }
}

/// S5: refused with a condition.
#[rstest]
#[case::plain(json!({}), "Serving")]
#[case::paused(json!({ "paused": true }), "Serving")]
#[case::topology(json!({ "topology": { "classRef": { "name": "a" } } }), "TopologyUnsupported")]
#[case::control_plane(
    json!({ "controlPlaneRef": { "apiGroup": "g", "kind": "KubeadmControlPlane", "name": "a" } }),
    "ControlPlaneUnsupported"
)]
fn s5_what_is_not_served_is_refused_with_a_condition(#[case] spec: Value, #[case] reason: &str) {
    let mut snapshot = snapshot(StandInStatus::Serving, spec);
    let steps = plan(&snapshot).steps;
    let [Action::WriteStatus(status)] = &steps.iter().map(|step| step.action.clone()).collect::<Vec<_>>()[..] else {
        panic!("{steps:?}")
    };
    assert_eq!((status.conditions[0].type_.as_str(), status.conditions[0].reason.as_str()), ("StandIn", reason));
    Arc::make_mut(&mut snapshot.object).status = Some((**status).clone());
    assert!(plan(&snapshot).steps.is_empty(), "the same facts are no write");
}

/// S1, S2.
#[rstest]
#[case(StandInStatus::NotAsked)]
#[case(StandInStatus::Core("x".into()))]
#[case(StandInStatus::Unknown("x".into()))]
fn s1_s2_no_cluster_is_written_where_the_stand_in_may_not_act(#[case] standing: StandInStatus) {
    let plan = plan(&snapshot(standing, json!({})));
    assert!(plan.steps.is_empty() && plan.waits.len() == 1);
}
