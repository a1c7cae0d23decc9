//! What is known of the set.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{Failure, Snapshot, preserve, validate::InvalidSet};
use crate::{
    api::{
        machine::{
            Machine, MachinePhase, MachineSet, MachineSetCondition, MachineSetStatus, MachineSummary, OperationState,
        },
        reasons::{ConditionReason, ConditionType},
    },
    controllers::owner,
};

/// A status that differs from the one that is stored.
pub(super) struct Change {
    pub(super) status: MachineSetStatus,
    pub(super) reason: String,
    /// The set was found invalid for a reason that was not known before.
    pub(super) newly_invalid: bool,
}

/// The status as it should be; `None` if that is how it is.
pub(super) fn change(snapshot: &Snapshot, mine: &[&Arc<Machine>], invalid: Option<&InvalidSet>) -> Option<Change> {
    let set = snapshot.set.as_ref();
    let before = set.status.clone().unwrap_or_default();
    let mut status = counts(snapshot, mine);
    status.observed_generation = set.metadata.generation.unwrap_or_default();
    status.failed_machines = failed_machines(set, mine);
    status.last_operation = before.last_operation.clone();
    status.conditions = before.conditions.clone();
    let reported = snapshot.failure.as_ref().map(|failure| replica_failure(snapshot, mine, failure));
    set_condition(&mut status.conditions, ConditionType::ReplicaFailure, reported, same_reason);
    let reported = invalid.map(|invalid| {
        condition(snapshot, ConditionType::Invalid, ConditionReason::InvalidSpec.as_str(), &invalid.to_string())
    });
    let newly_invalid = set_condition(&mut status.conditions, ConditionType::Invalid, reported, same_message);
    if status == before {
        return None;
    }
    status.last_operation.last_update_time = Some(Time(snapshot.now));
    let reason = format!(
        "replicas {}, ready {}, available {}, generation {}",
        status.replicas, status.ready_replicas, status.available_replicas, status.observed_generation
    );
    Some(Change { status, reason, newly_invalid })
}

fn counts(snapshot: &Snapshot, mine: &[&Arc<Machine>]) -> MachineSetStatus {
    let count = |holds: &dyn Fn(&Machine) -> bool| saturated(mine.iter().filter(|machine| holds(machine)).count());
    let wanted_labels = &snapshot.set.spec.template.metadata.labels;
    MachineSetStatus {
        replicas: saturated(mine.len().saturating_add(snapshot.unreadable.len())),
        fully_labeled_replicas: count(&|machine| {
            wanted_labels.iter().all(|(key, value)| machine.labels().get(key) == Some(value))
        }),
        ready_replicas: count(&|machine| machine.phase() == MachinePhase::Running && !machine.is_terminating()),
        available_replicas: count(&Machine::is_available),
        preserved_failed_replicas: count(&is_preserved_failed),
        auto_preserve_failed_machine_count: count(&preserve::is_auto_preserved),
        ..MachineSetStatus::default()
    }
}

fn saturated(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Even when the time is over: until the Machine is deleted it is still there for someone to look at.
fn is_preserved_failed(machine: &Machine) -> bool {
    machine.phase() == MachinePhase::Failed && !machine.is_terminating() && preserve::expiry(machine).is_some()
}

fn failed_machines(set: &MachineSet, mine: &[&Arc<Machine>]) -> Vec<MachineSummary> {
    let summary = |machine: &&Arc<Machine>| {
        let operation = &machine.status.as_ref()?.last_operation;
        if operation.state != Some(OperationState::Failed) || is_preserved_failed(machine) {
            return None;
        }
        let owner = owner::controller_of(&machine.metadata).map_or_else(|| set.name_any(), |owner| owner.name.clone());
        Some(MachineSummary {
            name: machine.name_any(),
            provider_id: machine.spec.provider_id.clone(),
            last_operation: operation.clone(),
            owner_ref: owner,
        })
    };
    mine.iter().filter_map(summary).collect()
}

fn replica_failure(snapshot: &Snapshot, mine: &[&Arc<Machine>], failure: &Failure) -> MachineSetCondition {
    let active = mine.iter().filter(|machine| !machine.is_terminating()).count();
    let present = saturated(active.saturating_add(snapshot.unreadable.len()));
    let reason = match present.cmp(&snapshot.set.spec.replicas) {
        std::cmp::Ordering::Less => ConditionReason::FailedCreate.as_str(),
        std::cmp::Ordering::Greater => ConditionReason::FailedDelete.as_str(),
        std::cmp::Ordering::Equal => "",
    };
    condition(snapshot, ConditionType::ReplicaFailure, reason, &failure.message)
}

fn condition(snapshot: &Snapshot, type_: ConditionType, reason: &str, message: &str) -> MachineSetCondition {
    MachineSetCondition {
        type_: type_.as_str().to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(Time(snapshot.now)),
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// The text of an error can differ at each attempt; a status written each time would be a loop.
fn same_reason(old: &MachineSetCondition, new: &MachineSetCondition) -> bool {
    old.status == new.status && old.reason == new.reason
}

fn same_message(old: &MachineSetCondition, new: &MachineSetCondition) -> bool {
    same_reason(old, new) && old.message == new.message
}

/// Sets or removes one condition and leaves the others alone. True if it was set and is not what it was.
fn set_condition(
    conditions: &mut Vec<MachineSetCondition>,
    type_: ConditionType,
    wanted: Option<MachineSetCondition>,
    same: fn(&MachineSetCondition, &MachineSetCondition) -> bool,
) -> bool {
    let Some(mut wanted) = wanted else {
        conditions.retain(|condition| condition.type_ != type_.as_str());
        return false;
    };
    match conditions.iter_mut().find(|condition| condition.type_ == type_.as_str()) {
        Some(old) if same(old, &wanted) => false,
        Some(old) => {
            if old.status == wanted.status {
                wanted.last_transition_time = old.last_transition_time.clone();
            }
            *old = wanted;
            true
        }
        None => {
            conditions.push(wanted);
            true
        }
    }
}
