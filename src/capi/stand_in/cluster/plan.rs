use super::{Action, Snapshot};
use crate::object::{
    conditions::{self, ConditionVerdict},
    hold,
};
use mcm_api::reasons::{StandInCondition, StandInReason};
use mcm_conversion::types::Cluster;
use mcm_rules::plan::{Plan, PlanInput, WaitKind};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self)
    }

    fn is_status(_: &Action) -> bool {
        true
    }
}

/// Plans the next step for a Cluster.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    let meta = &snapshot.object.metadata;
    let elsewhere = || hold::not_ours(meta, snapshot.watch_filter.as_deref());
    if let Some(on) = snapshot.standing.wait().or_else(elsewhere) {
        plan.wait(WaitKind::Hold, on, None);
        return plan;
    }
    if meta.deletion_timestamp.is_some() {
        return plan;
    }
    let mut next = snapshot.object.status.clone().unwrap_or_default();
    conditions::set(
        &mut next.conditions,
        StandInCondition::StandIn,
        served(&snapshot.object),
        meta.generation,
        snapshot.now,
    );
    if snapshot.object.status.as_ref() != Some(&next) {
        plan.then(Action::WriteStatus(Box::new(next)), "the parts that the stand-in serves changed");
    }
    plan
}

/// S5: unsupported fields are refused.
fn served(cluster: &Cluster) -> ConditionVerdict {
    if cluster.spec.topology.is_some() {
        let text = "the stand-in has no ClusterClass: write the MachineDeployments yourself, without topology";
        return ConditionVerdict::no(StandInReason::TopologyUnsupported, text);
    }
    if !cluster.spec.control_plane_ref.name.is_empty() {
        let text = format!(
            "the stand-in runs no {}: bring the control plane up by other means, without controlPlaneRef",
            cluster.spec.control_plane_ref.kind
        );
        return ConditionVerdict::no(StandInReason::ControlPlaneUnsupported, text);
    }
    ConditionVerdict::yes(StandInReason::Serving)
}
