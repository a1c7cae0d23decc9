//! The machines that are deleted first when the number of machines is lowered. The program that lowers it marks them
//! just before, in objects of another watch, so these are read live first.

use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Action, Snapshot, shares::PoolShare};
use mcm_api::{
    labels,
    machine::{Machine, MachineDeployment},
};
use mcm_conversion::types::names;
use mcm_rules::plan::{Plan, WaitKind};

/// Priority of a native Machine whose Node the autoscaler is about to delete: before others, and after Machines that a
/// user chose.
const TO_BE_DELETED: i64 = 2;

/// The marks for a lower number of machines are known, or there are none. Otherwise a step of the plan reads
/// them.
pub(super) fn is_known(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    share: &PoolShare,
    deployment: &MachineDeployment,
) -> bool {
    let wanted = share.replicas.filter(|_| !snapshot.is_scaled_elsewhere());
    if wanted.is_none_or(|wanted| wanted >= deployment.spec.replicas) {
        return true;
    }
    if snapshot.has_members() {
        return is_read(plan, snapshot.session.has_read_machines, Action::ReadMachines);
    }
    if !is_autoscaled(snapshot) {
        return true;
    }
    match (&snapshot.session.to_be_deleted, &snapshot.nodes_unknown) {
        (None, Some(problem)) => {
            let text = format!("the Nodes of the pool, because the autoscaler chose some of them: {problem}");
            plan.wait(WaitKind::CacheUntrusted, text, None);
            false
        }
        (known, _) => is_read(plan, known.is_some(), Action::ReadNodes),
    }
}

fn is_read(plan: &mut Plan<Action>, is_read: bool, read: Action) -> bool {
    if !is_read && !plan.steps.iter().any(|step| step.action == read) {
        plan.then(read, "the client that lowered the number may have just chosen machines");
    }
    is_read
}

/// An autoscaler that finds no Machine of a Node taints the Node, drains it and lowers the number.
fn is_autoscaled(snapshot: &Snapshot) -> bool {
    let annotations = snapshot.owner.known().and_then(|owner| owner.metadata.annotations.as_ref());
    let has = |key| annotations.is_some_and(|all| all.contains_key(key));
    has(names::AUTOSCALER_MIN) || has(names::AUTOSCALER_MAX)
}

/// Sets the priority of native Machines with such Nodes, and resets it if the Node stays.
pub(super) fn by_nodes(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let Some(chosen) = &snapshot.session.to_be_deleted else { return };
    for (name, machine) in &snapshot.machines {
        if let Some(patch) = priority(machine, chosen.contains(name)) {
            let action = Action::PatchNative { machine: machine.clone(), patch };
            plan.then(action, "the taint of its Node shows whether the autoscaler deletes it");
        }
    }
}

fn priority(machine: &Machine, is_chosen: bool) -> Option<Value> {
    let stored =
        machine.annotations().get(labels::PRIORITY).map(|text| text.parse().unwrap_or(labels::DEFAULT_PRIORITY));
    let next = match (is_chosen, stored) {
        (true, None) => Some(TO_BE_DELETED.to_string()),
        (true, Some(stored)) if stored > TO_BE_DELETED => Some(TO_BE_DELETED.to_string()),
        (false, Some(TO_BE_DELETED)) => None,
        _ => return None,
    };
    Some(json!({ "metadata": { "annotations": { labels::PRIORITY: next } } }))
}
