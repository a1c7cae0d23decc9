//! The status of a set.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{ReplicaWriteFailure, Snapshot, validate::InvalidSet};
use crate::object::{
    condition::{self, ConditionRefresh, DesiredCondition},
    summary::{LONGEST_TEXT, failed_machines},
    text::cut,
    time::whole_seconds,
};
use mcm_api::{
    machine::{Machine, MachinePhase, MachineSetStatus},
    reasons::{ConditionReason, ConditionType},
};

/// A status that differs from the stored one.
pub(super) struct SetStatusChange {
    pub(super) status: MachineSetStatus,
    pub(super) reason: String,
    /// The set is invalid for a reason that the stored status does not contain.
    pub(super) newly_invalid: bool,
    /// Why the set creates no Machines, if the stored status does not contain it.
    pub(super) newly_stopped: Option<String>,
}

/// The new status; `None` if it does not differ from the stored one.
pub(super) fn change(
    snapshot: &Snapshot,
    mine: &[&Arc<Machine>],
    invalid: Option<&InvalidSet>,
) -> Option<SetStatusChange> {
    let set = snapshot.set.as_ref();
    let before = set.status.clone().unwrap_or_default();
    let mut status = counts(snapshot, mine);
    status.observed_generation = set.metadata.generation.unwrap_or_default();
    status.failed_machines = failed_machines(mine.iter().copied());
    status.last_operation = before.last_operation.clone();
    status.conditions = before.conditions.clone();
    let stopped = stopped(snapshot, mine);
    let failure = snapshot.failure.as_ref().or(stopped.as_ref());
    let failure = failure.map(|failure| replica_failure(snapshot, mine, failure));
    let is_new = condition::set(&mut status.conditions, ConditionType::ReplicaFailure, failure, snapshot.now);
    let newly_stopped = stopped.filter(|_| is_new && snapshot.failure.is_none()).map(|failure| failure.message);
    let said = invalid.map(|invalid| {
        DesiredCondition::is_true(ConditionReason::InvalidSpec, invalid.to_string())
            .refreshed(ConditionRefresh::OnMessage)
    });
    let newly_invalid = condition::set(&mut status.conditions, ConditionType::Invalid, said, snapshot.now);
    condition::set(
        &mut status.conditions,
        ConditionType::Paused,
        condition::paused(snapshot.hold.as_ref()),
        snapshot.now,
    );
    if status == before {
        return None;
    }
    status.last_operation.last_update_time = Some(Time(whole_seconds(snapshot.now)));
    let reason = format!(
        "replicas {}, ready {}, available {}, generation {}",
        status.replicas, status.ready_replicas, status.available_replicas, status.observed_generation
    );
    Some(SetStatusChange { status, reason, newly_invalid, newly_stopped })
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
        preserved_failed_replicas: count(&Machine::is_preserved_failed),
        auto_preserve_failed_machine_count: count(&Machine::is_auto_preserved)
            .saturating_add(saturated(snapshot.unreadable_preserved)),
        ..MachineSetStatus::default()
    }
}

fn saturated(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Why a set that lacks Machines creates none: its last Machines did not stay its own.
fn stopped(snapshot: &Snapshot, mine: &[&Arc<Machine>]) -> Option<ReplicaWriteFailure> {
    let active = mine.iter().filter(|machine| !machine.is_terminating()).count();
    let present = saturated(active.saturating_add(snapshot.unreadable.len()));
    let why = snapshot.strays.growth.obstacle().filter(|_| present < snapshot.set.spec.replicas)?;
    Some(ReplicaWriteFailure { message: why.to_owned() })
}

fn replica_failure(snapshot: &Snapshot, mine: &[&Arc<Machine>], failure: &ReplicaWriteFailure) -> DesiredCondition {
    let active = mine.iter().filter(|machine| !machine.is_terminating()).count();
    let present = saturated(active.saturating_add(snapshot.unreadable.len()));
    let reason = match present.cmp(&snapshot.set.spec.replicas) {
        std::cmp::Ordering::Less => ConditionReason::FailedCreate.as_str(),
        std::cmp::Ordering::Greater => ConditionReason::FailedDelete.as_str(),
        std::cmp::Ordering::Equal => "",
    };
    DesiredCondition::new("True", reason, cut(&failure.message, LONGEST_TEXT))
}
