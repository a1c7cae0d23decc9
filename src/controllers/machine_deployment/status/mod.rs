//! The status: counters computed from the Machines, and the conditions in which people, the autoscaler and Gardener see
//! the progress of a rollout.

mod obstacles;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::{
    SetCreateFailure, Snapshot,
    bounds::ReplicaBounds,
    overlap,
    sets::{OwnedSets, SetView, i32_count},
    steps::machines as machines_of,
};
use crate::object::{
    condition::{self, ConditionRefresh, DesiredCondition},
    summary::{LONGEST_TEXT, MOST_FAILED, failed_machines},
    text::cut,
};
use mcm_api::{
    machine::{Machine, MachineDeploymentCondition, MachineDeploymentStatus, MachinePhase},
    reasons::{ConditionReason, ConditionType, EventReason},
};
use mcm_rules::plan::Event;

/// How long after the progress deadline to reconcile, so that the deadline has certainly passed.
const GRACE: SignedDuration = SignedDuration::from_secs(1);

/// Inputs of the status besides the snapshot.
pub(super) struct DeploymentStatusInput<'a> {
    pub snapshot: &'a Snapshot,
    pub sets: &'a OwnedSets,
    pub bounds: &'a ReplicaBounds,
    /// Name and replicas of the new set, if this plan creates it.
    pub created: Option<(&'a str, i32)>,
    /// How many names of new sets turned out to be taken.
    pub collisions: i32,
}

/// The status after this plan.
pub(super) fn status_of(facts: &DeploymentStatusInput<'_>) -> MachineDeploymentStatus {
    let mut status = counters_of(facts);
    let stored = facts.snapshot.deployment.status.clone().unwrap_or_default();
    if let Some(progress) = progress(facts, &stored, &status) {
        condition::set(&mut status.conditions, ConditionType::Progressing, Some(progress), facts.snapshot.now);
    }
    tell_waits(facts, &mut status);
    let overlap = overlap::condition(facts.snapshot);
    condition::set(&mut status.conditions, ConditionType::SelectorsOverlap, overlap, facts.snapshot.now);
    status
}

/// The event of a status whose selectors newly overlap with those of other deployments.
pub(super) fn overlap_event(snapshot: &Snapshot, status: &MachineDeploymentStatus) -> Option<Event> {
    let message = |status: &MachineDeploymentStatus| {
        condition::find(&status.conditions, ConditionType::SelectorsOverlap).map(|condition| condition.message.clone())
    };
    let text = message(status)?;
    let is_news = snapshot.deployment.status.as_ref().and_then(message).as_ref() != Some(&text);
    is_news.then(|| Event::warning(EventReason::SelectorsOverlap, text))
}

/// Separates the last event from the current wait in the message of `Progressing`.
const WAITING: &str = "; waiting for ";

/// Brings the message of `Progressing` up to date. Reason and times stay: the deadline of the rollout depends on them.
fn tell_waits(facts: &DeploymentStatusInput<'_>, status: &mut MachineDeploymentStatus) {
    let spec = &facts.snapshot.deployment.spec;
    let is_met = is_complete(status, spec.replicas);
    let waits = if spec.paused || is_met { None } else { waits(facts, status) };
    let (available, wanted) = (status.available_replicas, spec.replicas);
    let Some(condition) = condition::find_mut(&mut status.conditions, ConditionType::Progressing) else { return };
    if condition.reason == ConditionReason::MachineSetCreateError.as_str() {
        return;
    }
    let mut message = condition.message.split(WAITING).next().unwrap_or_default().to_owned();
    if condition.reason == ConditionReason::NewMachineSetAvailable.as_str() {
        let subject = subject(facts);
        message = match is_met {
            true => format!("{subject} has all its machines"),
            false => format!("{subject} had all its machines; {available} available, {wanted} replicas"),
        };
    }
    if let Some(waits) = waits {
        message.push_str(WAITING);
        message.push_str(&waits);
    }
    condition.message = message;
}

/// The wait that Machines or a set report, or else the numbers that are not right yet. Completes "waiting for".
fn waits(facts: &DeploymentStatusInput<'_>, status: &MachineDeploymentStatus) -> Option<String> {
    let machines = facts.sets.sets.iter().flat_map(|set| &set.machines);
    let new = facts.sets.new_set().map_or(&[][..], |set| &set.machines);
    let available = i32_count(new.iter().filter(|machine| machine.is_available()));
    let missing = facts.snapshot.deployment.spec.replicas.saturating_sub(available);
    let surplus = status.replicas.saturating_sub(status.updated_replicas);
    obstacles::top(machines.map(AsRef::as_ref))
        .or_else(|| Some(format!("the machine set: {}", replica_failure(facts.sets)?.message)))
        .or_else(|| {
            (missing > 0).then(|| format!("{} of the current template to become available", machines_of(missing)))
        })
        .or_else(|| (surplus > 0).then(|| format!("{} of other templates to be deleted", machines_of(surplus))))
}

/// The new set, or the deployment without one.
fn subject(facts: &DeploymentStatusInput<'_>) -> String {
    match facts.sets.new_set().map(SetView::name) {
        Some(name) => format!("machine set {name}"),
        None => format!("machine deployment {}", facts.snapshot.deployment.name_any()),
    }
}

/// The status of a deployment that rolls nothing out: without `Progressing`.
pub(super) fn counters_of(facts: &DeploymentStatusInput<'_>) -> MachineDeploymentStatus {
    let stored = facts.snapshot.deployment.status.clone().unwrap_or_default();
    let mut status = counted(facts, &stored);
    let now = facts.snapshot.now;
    condition::remove(&mut status.conditions, ConditionType::Invalid);
    condition::remove(&mut status.conditions, ConditionType::Paused);
    let available = available(facts, &status);
    condition::set(&mut status.conditions, ConditionType::Available, Some(available), now);
    condition::set(&mut status.conditions, ConditionType::ReplicaFailure, replica_failure(facts.sets), now);
    status
}

/// The rollout is complete: exactly the desired replicas exist, all with the current template, all available.
pub(super) fn is_complete(status: &MachineDeploymentStatus, desired: i32) -> bool {
    status.updated_replicas == desired && status.replicas == desired && status.available_replicas == desired
}

/// When a rollout without progress exceeds its progress deadline.
pub(super) fn progress_deadline(
    facts: &DeploymentStatusInput<'_>,
    status: &MachineDeploymentStatus,
) -> Option<Timestamp> {
    let spec = &facts.snapshot.deployment.spec;
    let condition = condition::find(&status.conditions, ConditionType::Progressing)?;
    let settled = [ConditionReason::NewMachineSetAvailable, ConditionReason::ProgressDeadlineExceeded];
    if spec.paused || settled.iter().any(|reason| condition.reason == reason.as_str()) {
        return None;
    }
    deadline_of(condition, spec.progress_deadline_seconds)?.checked_add(GRACE).ok()
}

fn counted(facts: &DeploymentStatusInput<'_>, stored: &MachineDeploymentStatus) -> MachineDeploymentStatus {
    let sets = &facts.sets.sets;
    let machines = || sets.iter().flat_map(|set| &set.machines);
    let created = facts.created.map_or(0, |(_, replicas)| replicas);
    let desired = sets.iter().map(SetView::desired_replicas).fold(created, i32::saturating_add);
    let available = i32_count(machines().filter(|machine| machine.is_available()));
    let is_ready = |machine: &Machine| machine.phase() == MachinePhase::Running && !machine.is_terminating();
    MachineDeploymentStatus {
        observed_generation: facts.snapshot.deployment.metadata.generation.unwrap_or_default(),
        replicas: facts.sets.current(),
        updated_replicas: facts.sets.new_set().map_or(0, |set| set.counts.current()),
        ready_replicas: i32_count(machines().filter(|machine| is_ready(machine))),
        available_replicas: available,
        unavailable_replicas: desired.saturating_sub(available).max(0),
        preserved_failed_replicas: i32_count(machines().filter(|machine| machine.is_preserved_failed())),
        collision_count: (facts.collisions > 0).then_some(facts.collisions).or(stored.collision_count),
        conditions: stored.conditions.clone(),
        failed_machines: sets.iter().flat_map(|set| failed_machines(&set.machines)).take(MOST_FAILED).collect(),
    }
}

/// The condition `Available`. Preserved Failed Machines lower the number that is needed.
fn available(facts: &DeploymentStatusInput<'_>, status: &MachineDeploymentStatus) -> DesiredCondition {
    let needed = (facts.bounds.min_available() - status.preserved_failed_replicas).max(0);
    let message = format!("{} available, {needed} needed", status.available_replicas);
    let condition = if status.available_replicas >= needed {
        DesiredCondition::is_true(ConditionReason::MinimumReplicasAvailable, message)
    } else {
        DesiredCondition::is_false(ConditionReason::MinimumReplicasUnavailable, message)
    };
    condition.refreshed(ConditionRefresh::OnMessage)
}

/// The condition `Progressing`; `None` if it does not change.
fn progress(
    facts: &DeploymentStatusInput<'_>,
    stored: &MachineDeploymentStatus,
    status: &MachineDeploymentStatus,
) -> Option<DesiredCondition> {
    let spec = &facts.snapshot.deployment.spec;
    let condition = condition::find(&stored.conditions, ConditionType::Progressing);
    let has_reason = |reason: ConditionReason| condition.is_some_and(|condition| condition.reason == reason.as_str());
    let new_set = facts.sets.new_set().map(SetView::name);
    let subject = subject(facts);
    if spec.paused {
        return (!has_reason(ConditionReason::DeploymentPaused)
            && !has_reason(ConditionReason::ProgressDeadlineExceeded))
        .then(|| DesiredCondition::is_unknown(ConditionReason::DeploymentPaused, "the deployment is paused"));
    }
    if let Some(message) = creation_obstacle(facts.snapshot).filter(|_| new_set.is_none()) {
        let text = format!("could not create the new machine set: {}", cut(message, LONGEST_TEXT));
        return Some(DesiredCondition::is_false(ConditionReason::MachineSetCreateError, text));
    }
    if let Some((name, _)) = facts.created {
        return Some(DesiredCondition::is_true(
            ConditionReason::NewMachineSetCreated,
            format!("created machine set {name}"),
        ));
    }
    let was_complete = has_reason(ConditionReason::NewMachineSetAvailable);
    if is_complete(status, spec.replicas) {
        let text = format!("{subject} has all its machines");
        return (!was_complete).then(|| DesiredCondition::is_true(ConditionReason::NewMachineSetAvailable, text));
    }
    if was_complete && !facts.sets.is_rolling() {
        return None;
    }
    let old = |status: &MachineDeploymentStatus| status.replicas - status.updated_replicas;
    let moved = status.updated_replicas > stored.updated_replicas
        || old(status) < old(stored)
        || status.ready_replicas > stored.ready_replicas
        || status.available_replicas > stored.available_replicas;
    if moved && !was_complete {
        return Some(
            DesiredCondition::is_true(ConditionReason::MachineSetUpdated, format!("{subject} is progressing"))
                .refreshed(ConditionRefresh::Always),
        );
    }
    if has_reason(ConditionReason::DeploymentPaused) {
        return Some(DesiredCondition::is_unknown(ConditionReason::DeploymentResumed, "the deployment is resumed"));
    }
    if condition.is_none() || was_complete || has_reason(ConditionReason::MachineSetCreateError) {
        return match new_set {
            Some(name) => Some(DesiredCondition::is_true(
                ConditionReason::FoundNewMachineSet,
                format!("found machine set {name} of this template"),
            )),
            // Recreate: the old Machines are deleted first.
            None => was_complete.then(|| {
                DesiredCondition::is_true(ConditionReason::MachineSetUpdated, format!("{subject} is progressing"))
            }),
        };
    }
    let over = deadline_of(condition?, spec.progress_deadline_seconds)? < facts.snapshot.now;
    let text = format!("{subject} made no progress in {} seconds", spec.progress_deadline_seconds.unwrap_or_default());
    over.then(|| DesiredCondition::is_false(ConditionReason::ProgressDeadlineExceeded, text))
}

/// Why no set can be created.
fn creation_obstacle(snapshot: &Snapshot) -> Option<&str> {
    match &snapshot.failure {
        Some(SetCreateFailure::Other { message }) => Some(message),
        Some(SetCreateFailure::NameTaken) | None => stopped(snapshot),
    }
}

/// Why the deployment creates no set: its last sets did not stay its own, or are not recognised.
fn stopped(snapshot: &Snapshot) -> Option<&str> {
    let unknown = snapshot.sets_paused_until.map(|_| UNKNOWN_SETS);
    snapshot.strays.growth.obstacle().or(unknown)
}

/// Reason of a pause after several sets were created for one spec.
pub const UNKNOWN_SETS: &str = "several machine sets were created for this spec, and none of them is recognised";

/// The event of a status that shows this for the first time.
pub(super) fn newly_stopped(snapshot: &Snapshot, status: &MachineDeploymentStatus) -> Option<Event> {
    let shows = |status: &MachineDeploymentStatus| {
        let condition = condition::find(&status.conditions, ConditionType::Progressing);
        condition.is_some_and(|condition| condition.reason == ConditionReason::MachineSetCreateError.as_str())
    };
    let was_shown = snapshot.deployment.status.as_ref().is_some_and(shows);
    let why = stopped(snapshot).filter(|_| shows(status) && !was_shown)?;
    Some(Event::warning(EventReason::MachineSetCreateError, format!("Failed to create new machine set: {why}")))
}

fn deadline_of(condition: &MachineDeploymentCondition, seconds: Option<i32>) -> Option<Timestamp> {
    let since = condition.last_update_time.as_ref()?.0;
    since.checked_add(SignedDuration::from_secs(i64::from(seconds?))).ok()
}

/// As the new set reports it, or else any other.
fn replica_failure(sets: &OwnedSets) -> Option<DesiredCondition> {
    sets.new_set().into_iter().chain(sets.old_sets()).find_map(|set| {
        let conditions = &set.draft.current().status.as_ref()?.conditions;
        let condition = condition::find(conditions, ConditionType::ReplicaFailure)?;
        Some(DesiredCondition {
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            refresh: ConditionRefresh::Never,
        })
    })
}
