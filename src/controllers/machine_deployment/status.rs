//! The status: counters from the Machines themselves, and the conditions by which people, the autoscaler and Gardener
//! tell how a rollout goes.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::{
    Failure, Snapshot,
    autoscaler::whole_seconds,
    conditions::{self, Reading},
    rollout::Bounds,
    sets::{Family, SetView, count_of},
};
use crate::api::{
    machine::{
        Machine, MachineDeploymentCondition, MachineDeploymentStatus, MachinePhase, MachineSummary, OperationState,
    },
    reasons::{ConditionReason, ConditionType},
};

/// How long after the deadline a stuck rollout is looked at again, so that it is over by then.
const GRACE: SignedDuration = SignedDuration::from_secs(1);

/// What the status is made from besides the snapshot.
pub(super) struct Facts<'a> {
    pub snapshot: &'a Snapshot,
    pub family: &'a Family,
    pub bounds: &'a Bounds,
    /// Name and size of the new set, if this plan creates it.
    pub created: Option<(&'a str, i32)>,
    /// Names of new sets that turned out to be taken.
    pub collisions: i32,
}

/// The status after this plan.
pub(super) fn status_of(facts: &Facts<'_>) -> MachineDeploymentStatus {
    let stored = facts.snapshot.deployment.status.clone().unwrap_or_default();
    let mut status = counted(facts, &stored);
    let now = whole_seconds(facts.snapshot.now);
    conditions::remove(&mut status.conditions, ConditionType::Invalid);
    let available = available(facts, &status);
    conditions::set(&mut status.conditions, ConditionType::Available, available, now);
    if let Some(reading) = progress(facts, &stored, &status) {
        conditions::set(&mut status.conditions, ConditionType::Progressing, reading, now);
    }
    match replica_failure(facts.family) {
        Some(reading) => conditions::set(&mut status.conditions, ConditionType::ReplicaFailure, reading, now),
        None => conditions::remove(&mut status.conditions, ConditionType::ReplicaFailure),
    }
    status
}

/// The rollout is done: as many as wanted, all of the current template, all available, nothing else.
pub(super) fn is_complete(status: &MachineDeploymentStatus, desired: i32) -> bool {
    status.updated_replicas == desired && status.replicas == desired && status.available_replicas == desired
}

/// When a rollout that makes no progress becomes a stuck one.
pub(super) fn progress_deadline(facts: &Facts<'_>, status: &MachineDeploymentStatus) -> Option<Timestamp> {
    let spec = &facts.snapshot.deployment.spec;
    let condition = conditions::find(&status.conditions, ConditionType::Progressing)?;
    let settled = [ConditionReason::NewMachineSetAvailable, ConditionReason::ProgressDeadlineExceeded];
    if spec.paused || settled.iter().any(|reason| condition.reason == reason.as_str()) {
        return None;
    }
    Some(deadline_of(condition, spec.progress_deadline_seconds)? + GRACE)
}

fn counted(facts: &Facts<'_>, stored: &MachineDeploymentStatus) -> MachineDeploymentStatus {
    let sets = &facts.family.sets;
    let machines = || sets.iter().flat_map(|set| &set.machines);
    let wanted: i32 =
        sets.iter().map(SetView::wanted_replicas).sum::<i32>() + facts.created.map_or(0, |(_, size)| size);
    let available = count_of(machines().filter(|machine| machine.is_available()));
    MachineDeploymentStatus {
        observed_generation: facts.snapshot.deployment.metadata.generation.unwrap_or_default(),
        replicas: facts.family.existing(),
        updated_replicas: facts.family.new_set().map_or(0, |set| set.count().existing()),
        ready_replicas: count_of(
            machines().filter(|machine| machine.phase() == MachinePhase::Running && !machine.is_terminating()),
        ),
        available_replicas: available,
        unavailable_replicas: (wanted - available).max(0),
        preserved_failed_replicas: count_of(machines().filter(|machine| is_preserved_failed(machine))),
        collision_count: (facts.collisions > 0).then_some(facts.collisions).or(stored.collision_count),
        conditions: stored.conditions.clone(),
        failed_machines: sets.iter().flat_map(failed_machines).collect(),
    }
}

fn is_preserved_failed(machine: &Machine) -> bool {
    let expires = |machine: &Machine| machine.status.as_ref()?.current_status.preserve_expiry_time.clone();
    machine.phase() == MachinePhase::Failed && expires(machine).is_some()
}

/// In the order of their names.
fn failed_machines(set: &SetView) -> Vec<MachineSummary> {
    let mut failed: Vec<MachineSummary> = set
        .machines
        .iter()
        .filter(|machine| !is_preserved_failed(machine))
        .filter_map(|machine| {
            let operation = &machine.status.as_ref()?.last_operation;
            (operation.state == Some(OperationState::Failed)).then(|| MachineSummary {
                name: machine.name_any(),
                provider_id: machine.spec.provider_id.clone(),
                last_operation: operation.clone(),
                owner_ref: set.name(),
            })
        })
        .collect();
    failed.sort_by(|one, other| one.name.cmp(&other.name));
    failed
}

/// Failed Machines that somebody wants to keep are not held against the deployment.
fn available(facts: &Facts<'_>, status: &MachineDeploymentStatus) -> Reading {
    let needed = (facts.bounds.at_least() - status.preserved_failed_replicas).max(0);
    let message = format!("{} machines are available, {needed} are needed", status.available_replicas);
    if status.available_replicas >= needed {
        Reading::is_true(ConditionReason::MinimumReplicasAvailable, message)
    } else {
        Reading::is_false(ConditionReason::MinimumReplicasUnavailable, message)
    }
}

/// What the condition `Progressing` says now; `None` if it stays as it is.
fn progress(facts: &Facts<'_>, stored: &MachineDeploymentStatus, status: &MachineDeploymentStatus) -> Option<Reading> {
    let spec = &facts.snapshot.deployment.spec;
    let condition = conditions::find(&stored.conditions, ConditionType::Progressing);
    let has_reason = |reason: ConditionReason| condition.is_some_and(|condition| condition.reason == reason.as_str());
    let new_set = facts.family.new_set().map(SetView::name);
    let subject = match &new_set {
        Some(name) => format!("machine set {name}"),
        None => format!("machine deployment {}", facts.snapshot.deployment.name_any()),
    };
    if spec.paused {
        return (!has_reason(ConditionReason::DeploymentPaused)
            && !has_reason(ConditionReason::ProgressDeadlineExceeded))
        .then(|| Reading::is_unknown(ConditionReason::DeploymentPaused, "the deployment is paused"));
    }
    if let (Some(Failure::Other { message }), None) = (&facts.snapshot.failure, &new_set) {
        let text = format!("could not create the new machine set: {message}");
        return Some(Reading::is_false(ConditionReason::MachineSetCreateError, text));
    }
    if let Some((name, _)) = facts.created {
        return Some(Reading::is_true(ConditionReason::NewMachineSetCreated, format!("created machine set {name}")));
    }
    let was_complete = has_reason(ConditionReason::NewMachineSetAvailable);
    if is_complete(status, spec.replicas) {
        let text = format!("{subject} has all its machines");
        return (!was_complete).then(|| Reading::is_true(ConditionReason::NewMachineSetAvailable, text));
    }
    if was_complete && !facts.family.is_rolling() {
        return None;
    }
    let old = |status: &MachineDeploymentStatus| status.replicas - status.updated_replicas;
    let moved = status.updated_replicas > stored.updated_replicas
        || old(status) < old(stored)
        || status.ready_replicas > stored.ready_replicas
        || status.available_replicas > stored.available_replicas;
    if moved && !was_complete {
        return Some(
            Reading::is_true(ConditionReason::MachineSetUpdated, format!("{subject} is progressing")).confirmed(),
        );
    }
    if has_reason(ConditionReason::DeploymentPaused) {
        return Some(Reading::is_unknown(ConditionReason::DeploymentResumed, "the deployment is resumed"));
    }
    if condition.is_none() || was_complete || has_reason(ConditionReason::MachineSetCreateError) {
        return match new_set {
            Some(name) => Some(Reading::is_true(
                ConditionReason::FoundNewMachineSet,
                format!("found machine set {name} of this template"),
            )),
            // Recreate: the old Machines go first.
            None => was_complete
                .then(|| Reading::is_true(ConditionReason::MachineSetUpdated, format!("{subject} is progressing"))),
        };
    }
    let over = deadline_of(condition?, spec.progress_deadline_seconds)? < facts.snapshot.now;
    let text = format!("{subject} made no progress in {} seconds", spec.progress_deadline_seconds.unwrap_or_default());
    over.then(|| Reading::is_false(ConditionReason::ProgressDeadlineExceeded, text))
}

fn deadline_of(condition: &MachineDeploymentCondition, seconds: Option<i32>) -> Option<Timestamp> {
    let since = condition.last_update_time.as_ref()?.0;
    since.checked_add(SignedDuration::from_secs(i64::from(seconds?))).ok()
}

/// As the new set reports it, or else any other.
fn replica_failure(family: &Family) -> Option<Reading> {
    family.new_set().into_iter().chain(family.old_sets()).find_map(|set| {
        let conditions = &set.draft.seen().status.as_ref()?.conditions;
        let condition =
            conditions.iter().find(|condition| condition.type_ == ConditionType::ReplicaFailure.as_str())?;
        Some(Reading {
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            confirmed: false,
        })
    })
}
