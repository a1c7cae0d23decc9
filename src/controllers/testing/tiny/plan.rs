use kube::ResourceExt;
use serde_json::{Value, json};

use super::{HOLD, KEYS, Snapshot};
use mcm_rules::plan::{Plan, PlanInput, WaitKind};

impl PlanInput for Snapshot {
    type Action = Value;

    fn plan(&self) -> Plan<Value> {
        plan(self)
    }

    fn lint(&self, plan: &Plan<Value>) -> Option<String> {
        lint(self, plan)
    }
}

/// A merge patch of the annotation, if it is not as it should be.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Value> {
    if let Some(text) = snapshot.map.annotations().get(HOLD) {
        return Plan::waiting(WaitKind::Hold, text, None);
    }
    let keys: Vec<&str> = snapshot.map.data.iter().flatten().map(|(key, _)| key.as_str()).collect();
    let keys = keys.join(",");
    let mut plan = Plan::default();
    if snapshot.map.annotations().get(KEYS) != Some(&keys) {
        plan.then(json!({ "metadata": { "annotations": { KEYS: keys } } }), format!("its data has the keys {keys:?}"));
    }
    plan
}

/// An immutable ConfigMap is not written. Planning does not see to that, so that there is something to refuse.
pub(super) fn lint(snapshot: &Snapshot, plan: &Plan<Value>) -> Option<String> {
    let is_refused = snapshot.map.immutable == Some(true) && !plan.steps.is_empty();
    is_refused.then(|| "it would write an immutable object".to_owned())
}
