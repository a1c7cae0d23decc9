use super::{Action, Snapshot};
use crate::object::view::View;
use mcm_rules::plan::{Plan, Plannable, WaitKind};

impl Plannable for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self)
    }
}

/// Plans the next step for a workload cluster. Whether its API server answers is observed by the watch of its Nodes,
/// not here.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    if matches!(snapshot.cluster, View::Unknown) {
        plan.wait(WaitKind::Owner, "the Cluster to become readable", None);
        return plan;
    }
    if !snapshot.has_pools || matches!(snapshot.cluster, View::Missing) {
        if snapshot.attempt.is_some() {
            plan.then(Action::Disconnect, "the Cluster has no pools");
        }
        return plan;
    }
    match &snapshot.kubeconfig {
        View::Present(version) => {
            if snapshot.attempt.as_ref().is_none_or(|attempt| attempt.version != **version) {
                plan.then(Action::Connect(version.to_string()), "its pools have Nodes there");
            }
        }
        // A connection stays: core may be rewriting the Secret.
        View::Missing | View::Unknown if snapshot.attempt.is_some() => {}
        View::Missing => drop(plan.then(Action::Miss, "the pools say what they wait for")),
        View::Unknown => {}
    }
    if matches!(snapshot.kubeconfig, View::Missing | View::Unknown) && plan.steps.is_empty() {
        plan.wait(WaitKind::Secret, "the Secret with the kubeconfig", None);
    }
    plan
}
