use std::sync::Arc;

use super::{Action, Snapshot};
use crate::object::{hold, view::ObjectView};
use mcm_rules::plan::{Plan, PlanInput, WaitKind};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self)
    }
}

/// The machines of a Cluster that is being deleted leave their Nodes, as those of core do. Our finalizer must not stay on them:
/// nothing else would remove it. At the source of a move the machines live on.
fn release(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let Some(cluster) = snapshot.cluster.known().filter(|cluster| cluster.metadata.deletion_timestamp.is_some()) else {
        return;
    };
    if hold::moved(&cluster.metadata).or_else(|| hold::paused(&cluster.metadata, &snapshot.cluster)).is_some() {
        return;
    }
    for node in &snapshot.left {
        plan.then(Action::ReleaseNode(Arc::clone(node)), "its VM is deleted with the Cluster");
    }
    if snapshot.left.is_empty() && snapshot.is_undecided {
        plan.wait(WaitKind::Unreadable, "the MCM Machines of its Nodes to become readable", None);
    }
}

/// Plans the next step for a workload cluster. Failures of its API server are observed by the watch of its Nodes,
/// not here.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    if matches!(snapshot.cluster, ObjectView::Unknown) {
        plan.wait(WaitKind::Owner, "the Cluster to become readable", None);
        return plan;
    }
    if !snapshot.has_pools || matches!(snapshot.cluster, ObjectView::Missing) {
        release(&mut plan, snapshot);
        if snapshot.attempt.is_some() && plan.steps.is_empty() && plan.waits.is_empty() {
            plan.then(Action::Disconnect, "the Cluster has no pools");
        }
        return plan;
    }
    match &snapshot.kubeconfig {
        ObjectView::Present(version) => {
            if snapshot.attempt.as_ref().is_none_or(|attempt| attempt.version != **version) {
                plan.then(Action::Connect(version.to_string()), "its pools have Nodes there");
            }
        }
        // A connection stays: core may be rewriting the Secret.
        ObjectView::Missing | ObjectView::Unknown if snapshot.attempt.is_some() => {}
        ObjectView::Missing => drop(plan.then(Action::Miss, "the pools say what they wait for")),
        ObjectView::Unknown => {}
    }
    if matches!(snapshot.kubeconfig, ObjectView::Missing | ObjectView::Unknown) && plan.steps.is_empty() {
        plan.wait(WaitKind::Secret, "the Secret with the kubeconfig", None);
    }
    plan
}
