//! Creates missing Machines and deletes surplus ones, in the deletion order.

use std::{collections::BTreeSet, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::{Action, Snapshot, construct, preserve::PreserveModeChanges};
use crate::object::{
    deletion_order::{DeletionOrder, is_chosen, marked_at, priority, scaled_at, scaled_for},
    in_place, owner,
    strays::CreationGate,
};
use mcm_api::{
    labels::{self, FREEZE, SCALE_UP_DISABLED, TRUE},
    machine::{Machine, MachinePhase, MachineSet, OperationState, OperationType},
    reasons::EventReason,
};
use mcm_rules::plan::{Event, Plan, WaitKind, counted};

/// The most Machines that one plan creates or deletes, as in the reference. The next plan continues with the rest.
pub(super) const BATCH: usize = 100;

/// The minimum age at which a Machine whose creation failed is replaced. If every VM gets the name of a Node that an
/// ended VM left behind, each fails within seconds until a cloud controller has deleted the Node.
const REPLACED_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// Creates missing Machines. If none is missing, deletes surplus Machines, Machines that the autoscaler chose, and
/// failed ones.
///
/// Machines being deleted do not count. Unreadable ones count when Machines are missing and do not count when there are
/// too many, so they cause neither an extra creation nor an extra deletion.
pub(super) fn reconcile(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    replicas: usize,
    mine: &[&Arc<Machine>],
    preservation: &PreserveModeChanges,
) {
    let active: Vec<&Arc<Machine>> = mine.iter().copied().filter(|machine| !machine.is_terminating()).collect();
    let present = active.len().saturating_add(snapshot.unreadable.len());
    if present < replicas {
        grow(plan, snapshot, present, replicas);
    } else {
        for (machine, reason) in superfluous(snapshot, replicas, &active, preservation).into_iter().take(BATCH) {
            delete(plan, machine, reason);
        }
        wait_for_replicas(plan, snapshot, &active);
        finish_deletions(plan, mine);
        wait_for_preserved(plan, snapshot, &active, preservation);
        wait_for_young_failures(plan, snapshot, &active, preservation);
    }
    wait_for_unreadable(plan, snapshot);
    wait_for_availability(plan, &active);
}

/// Deletes all Machines of a set that is being deleted.
pub(super) fn delete_all(plan: &mut Plan<Action>, mine: &[&Arc<Machine>]) {
    let present = mine.iter().filter(|machine| machine.metadata.deletion_timestamp.is_none());
    for machine in present.take(BATCH) {
        delete(plan, machine, format!("the set is being deleted and has {}", count_of(mine.len())));
    }
}

/// Deletes the Machines that the set created and that the API server stored so that they are not its own. No other
/// controller would delete them and their VMs.
pub(super) fn delete_strays(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    for machine in snapshot.strays.altered.iter().take(BATCH) {
        delete(plan, machine, "the set created it, and the API server stored it so that it is not one of the set");
    }
}

/// Waits for the Machines that cannot be decoded, if any.
pub(super) fn wait_for_unreadable(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    if !snapshot.unreadable.is_empty() {
        let mut names: Vec<&str> = snapshot.unreadable.iter().map(String::as_str).collect();
        names.sort_unstable();
        plan.wait(
            WaitKind::Unreadable,
            format!("{} to become readable: {}", count_of(names.len()), names.join(", ")),
            None,
        );
    }
}

/// `1 machine`, `2 machines`.
pub(super) fn count_of(count: usize) -> String {
    counted(count, "machine")
}

fn grow(plan: &mut Plan<Action>, snapshot: &Snapshot, present: usize, replicas: usize) {
    if let Some(obstacle) = growth_forbidden(&snapshot.set) {
        plan.wait(WaitKind::ScaleUpBlocked, format!("{obstacle}; {present} machines < {replicas} replicas"), None);
        return;
    }
    match &snapshot.strays.growth {
        CreationGate::Free => {}
        CreationGate::Paused { why, until } => {
            let text =
                format!("new machines to stay those of the set: {why}; {present} machines < {replicas} replicas");
            plan.wait(WaitKind::WriteUndone, text, Some(*until));
            return;
        }
        CreationGate::Tried { why } => {
            if let Some(machine) = construct::machines(snapshot).next() {
                let reason = format!("see whether that is over: {why}");
                plan.then(Action::TryMachine(Box::new(machine)), reason);
            }
            return;
        }
    }
    let missing = replicas.saturating_sub(present);
    for machine in construct::machines(snapshot).take(missing.min(BATCH)) {
        let event = Event::normal(EventReason::SuccessfulCreate, format!("Created machine: {}", machine.name_any()));
        let reason = format!("{present} machines < {replicas} replicas");
        plan.then_recording(Action::CreateMachine(Box::new(machine)), reason, event);
    }
}

fn growth_forbidden(set: &MachineSet) -> Option<String> {
    if labels::is_true(set, FREEZE) {
        return Some(format!("the set to be unfrozen (label {FREEZE}={TRUE})"));
    }
    set.labels()
        .contains_key(SCALE_UP_DISABLED)
        .then(|| format!("the in-place update to end, during which this set must not grow (label {SCALE_UP_DISABLED})"))
}

/// The Machines to delete, each with the reason, in deletion order. Machines that are replaced regardless of the
/// replicas are part of the surplus, although some may be late in that order.
fn superfluous<'a>(
    snapshot: &Snapshot,
    replicas: usize,
    active: &[&'a Arc<Machine>],
    preservation: &PreserveModeChanges,
) -> Vec<(&'a Arc<Machine>, String)> {
    let mut candidates: Vec<&Arc<Machine>> = active.to_vec();
    // A Machine whose Node was just updated in place moves to the new set, so this set does not delete it.
    candidates.retain(|machine| !in_place::was_updated(machine));
    let scaled = scaled_at(&snapshot.set.metadata);
    candidates
        .sort_by_cached_key(|machine| (!is_chosen(machine, scaled), DeletionOrder::for_machine(machine, snapshot.now)));
    let present = candidates.len();
    let surplus = present.saturating_sub(replicas);
    let is_final = !is_to_be_scaled(snapshot);
    let is_replaced = |machine: &Machine| {
        must_be_replaced(machine, snapshot.now, preservation) && replaced_at(machine, snapshot).is_none()
    };
    let goes_anyway = |machine: &Machine| is_final && is_chosen(machine, scaled) || is_replaced(machine);
    let mut others = surplus.saturating_sub(candidates.iter().filter(|machine| goes_anyway(machine)).count());
    candidates.retain(|machine| {
        let is_surplus = others > 0 && !goes_anyway(machine);
        others -= usize::from(is_surplus);
        is_surplus || goes_anyway(machine)
    });
    let reason = |(index, machine): (usize, &'a Arc<Machine>)| {
        let why = if is_chosen(machine, scaled) {
            "the autoscaler chose it for deletion".to_owned()
        } else if is_replaced(machine) {
            "it failed and has to be replaced".to_owned()
        } else {
            describe(machine)
        };
        let reason = if index < surplus { format!("{present} machines > {replicas} replicas: {why}") } else { why };
        (machine, reason)
    };
    candidates.into_iter().enumerate().map(reason).collect()
}

/// The deployment has other replicas than those for which it last scaled the set, or is unknown. Its autoscaler lowers them with
/// each Machine that it chooses, so that a chosen Machine may be part of a surplus that the set does not have yet.
fn is_to_be_scaled(snapshot: &Snapshot) -> bool {
    let meta = &snapshot.set.metadata;
    match (&snapshot.deployment, owner::controller_of(meta)) {
        (Some(deployment), _) => scaled_for(meta).is_some_and(|replicas| replicas != deployment.spec.replicas),
        (None, controller) => controller.is_some(),
    }
}

fn wait_for_replicas(plan: &mut Plan<Action>, snapshot: &Snapshot, active: &[&Arc<Machine>]) {
    let scaled = scaled_at(&snapshot.set.metadata);
    let deleted = plan.steps.iter().filter_map(|step| match &step.action {
        Action::DeleteMachine(machine) => Some(machine.name_any()),
        _ => None,
    });
    let deleted: BTreeSet<String> = deleted.collect();
    let is_kept = |machine: &&Arc<Machine>| is_chosen(machine, scaled) && !deleted.contains(&machine.name_any());
    let kept = active.iter().copied().filter(is_kept).count();
    if kept > 0 && is_to_be_scaled(snapshot) {
        let text = format!("its deployment to scale it for {} that the autoscaler chose", count_of(kept));
        plan.wait(WaitKind::MachineCount, text, None);
    }
}

/// A Machine can be left in phase Terminating without a deletion timestamp; without this it would stay forever.
fn finish_deletions(plan: &mut Plan<Action>, mine: &[&Arc<Machine>]) {
    let room = BATCH.saturating_sub(plan.steps.len());
    let stuck = mine.iter().filter(|machine| machine.is_terminating() && machine.metadata.deletion_timestamp.is_none());
    for machine in stuck.take(room) {
        delete(plan, machine, "it is in phase Terminating without a deletion timestamp");
    }
}

fn delete(plan: &mut Plan<Action>, machine: &Arc<Machine>, reason: impl Into<String>) {
    let event = Event::normal(EventReason::SuccessfulDelete, format!("Deleted machine: {}", machine.name_any()));
    plan.then_recording(Action::DeleteMachine(machine.clone()), reason, event);
}

fn wait_for_preserved(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    active: &[&Arc<Machine>],
    preservation: &PreserveModeChanges,
) {
    let kept: Vec<&Machine> = active
        .iter()
        .map(|machine| machine.as_ref())
        .filter(|machine| machine.phase() == MachinePhase::Failed && preservation.keeps(machine, snapshot.now))
        .collect();
    if !kept.is_empty() {
        let until = kept.iter().filter_map(|machine| machine.preserved_until(snapshot.now)).min();
        let names: Vec<String> = kept.iter().map(|machine| machine.name_any()).collect();
        plan.wait(
            WaitKind::Preservation,
            format!("the preservation of failed machines to end: {}", names.join(", ")),
            until,
        );
    }
}

fn must_be_replaced(machine: &Machine, now: Timestamp, preservation: &PreserveModeChanges) -> bool {
    machine.phase() == MachinePhase::Failed && !preservation.keeps(machine, now)
}

/// The time from which a Machine that failed soon after its creation may be replaced. `None`: now.
fn replaced_at(machine: &Machine, snapshot: &Snapshot) -> Option<Timestamp> {
    snapshot.young_failures.replaced_at(machine, snapshot.now).max(replaced_once_old(machine, snapshot.now))
}

/// The same for a Machine whose creation failed, by its creation timestamp.
fn replaced_once_old(machine: &Machine, now: Timestamp) -> Option<Timestamp> {
    let operation = &machine.status.as_ref()?.last_operation;
    let failed_in_creation =
        operation.type_ == Some(OperationType::Create) && operation.state == Some(OperationState::Failed);
    let created = machine.metadata.creation_timestamp.as_ref()?.0;
    let is_young = (SignedDuration::ZERO..REPLACED_AFTER).contains(&now.duration_since(created));
    if failed_in_creation && is_young { created.checked_add(REPLACED_AFTER).ok() } else { None }
}

fn wait_for_young_failures(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    active: &[&Arc<Machine>],
    preservation: &PreserveModeChanges,
) {
    let failed = active.iter().filter(|machine| must_be_replaced(machine, snapshot.now, preservation));
    let young: Vec<Timestamp> = failed.filter_map(|machine| replaced_at(machine, snapshot)).collect();
    if let Some(first) = young.iter().min() {
        let text = format!("{} to be old enough to be replaced", count_of(young.len()));
        plan.wait(WaitKind::Replacement, text, Some(*first));
    }
}

fn wait_for_availability(plan: &mut Plan<Action>, active: &[&Arc<Machine>]) {
    let missing = active.iter().filter(|machine| !machine.is_available()).count();
    if missing > 0 {
        plan.wait(
            WaitKind::MachineAvailability,
            format!("{missing} of {} to become available", count_of(active.len())),
            None,
        );
    }
}

fn describe(machine: &Machine) -> String {
    let phase = machine.phase();
    let phase = if phase == MachinePhase::New { "not created yet" } else { phase.as_str() };
    let marked = if marked_at(machine).is_some() { ", chosen by the autoscaler" } else { "" };
    format!("first in deletion order ({phase}, priority {}{marked})", priority(machine))
}
