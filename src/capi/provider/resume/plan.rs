use super::{Action, Snapshot};
use mcm_rules::plan::{Plan, PlanInput};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self)
    }
}

/// Plans the next step: one read serves all Clusters.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    if !snapshot.unread.is_empty() {
        let reason = "the caches may lack objects that were created while the Clusters were paused";
        plan.then(Action::Read(snapshot.unread.clone()), reason);
    }
    plan
}
