use serde_json::Value;

use super::{Action, Policy, Snapshot, create, delete, health, node_link};
use crate::{
    api::{labels, machine::MachinePhase},
    controllers::{finalizer, plan::Plan},
};

/// What a Machine needs next.
///
/// Answers at most a few actions that can be carried out in one go; ask again with their outcomes in the snapshot.
pub fn plan(snapshot: &Snapshot, policy: &Policy) -> Plan<Action> {
    if snapshot.is_deleting() {
        return delete::plan(snapshot, policy);
    }
    let mut plan = Plan::default();
    if let Some(patch) = finalizer::add(&snapshot.machine.metadata, labels::FINALIZER) {
        plan.then(Action::PatchMachine(patch), "a Machine keeps a finalizer for as long as it may have a VM");
        return plan;
    }
    if snapshot.is_frozen {
        plan.wait("the API server of the target cluster to be reachable again", None);
        return plan;
    }
    let class = &snapshot.machine.spec.class;
    if class.kind.is_empty() || class.name.is_empty() {
        plan.wait("spec.class.kind and spec.class.name to be set", None);
        return plan;
    }
    if snapshot.machine.node_name().is_some() && snapshot.machine.phase() != MachinePhase::New {
        append(&mut plan, health::plan(snapshot, policy));
        append(&mut plan, node_link::plan(snapshot));
        if !plan.steps.is_empty() {
            return plan;
        }
    }
    if create::is_needed(snapshot) {
        append(&mut plan, create::plan(snapshot, policy));
    }
    plan
}

fn append(plan: &mut Plan<Action>, other: Plan<Action>) {
    plan.steps.extend(other.steps);
    plan.waits.extend(other.waits);
}

/// Sets `patch[path[0]][path[1]]… = value`, making objects on the way.
pub(super) fn set(patch: &mut Value, path: &[&str], value: impl Into<Value>) {
    let mut place = patch;
    for key in path {
        if !place.is_object() {
            *place = Value::Object(serde_json::Map::new());
        }
        let Some(object) = place.as_object_mut() else { return };
        place = object.entry((*key).to_owned()).or_insert(Value::Null);
    }
    *place = value.into();
}
