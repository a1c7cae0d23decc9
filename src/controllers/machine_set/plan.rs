use std::sync::Arc;

use super::{
    Action, Snapshot, claim, preserve, propagate, replicas, status,
    validate::{InvalidSet, ValidSet, validate},
};
use crate::{
    api::{labels::FINALIZER, machine::Machine, reasons::EventReason},
    controllers::{
        finalizer,
        plan::{Note, Plan, Step},
    },
};

/// What a set does next.
///
/// To be asked again, with what was written in the snapshot, until there are no steps. The status follows the work: a plan
/// that creates or deletes Machines, or patches the set, leaves it to the next one. Only after a failure it goes first,
/// because the work that is tried again behind it may fail again.
pub fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let set = snapshot.set.as_ref();
    if set.metadata.uid.is_none() {
        return Plan::default();
    }
    match (set.metadata.deletion_timestamp.is_some(), validate(set)) {
        (false, Ok(valid)) => keep(snapshot, &valid),
        (false, Err(invalid)) => refuse(snapshot, &invalid),
        (true, Ok(valid)) => tear_down(snapshot, &claim::selected(snapshot, &valid.selector)),
        (true, Err(_)) => tear_down(snapshot, &claim::controlled(snapshot)),
    }
}

/// A set that lives: guard it, settle who belongs to it, bring its Machines up to date, then their number.
fn keep(snapshot: &Snapshot, valid: &ValidSet) -> Plan<Action> {
    let set = snapshot.set.as_ref();
    let mut plan = Plan::default();
    if let Some(patch) = finalizer::add(&set.metadata, FINALIZER) {
        plan.then(Action::PatchSet(patch), "the set must not go before its machines");
    }

    let (mine, mut edits) = claim::settle(snapshot, &valid.selector);
    propagate::bring_up_to_date(set, &mine, &mut edits);
    let preservation = preserve::assign(set, &mine, &mut edits);
    for (machine, patch, reason) in edits.into_patches() {
        plan.then(Action::PatchMachine { machine, patch }, reason);
    }

    replicas::resize(&mut plan, snapshot, valid.replicas, &mine, &preservation);
    report(&mut plan, snapshot, &mine, None);
    plan
}

/// A set that is being deleted: its Machines go first, then the set.
fn tear_down(snapshot: &Snapshot, mine: &[&Arc<Machine>]) -> Plan<Action> {
    let set = snapshot.set.as_ref();
    let mut plan = Plan::default();
    if mine.is_empty() && snapshot.unreadable.is_empty() {
        if let Some(patch) = finalizer::remove(&set.metadata, FINALIZER) {
            plan.then(Action::PatchSet(patch), "the set is being deleted and has no machine left");
        }
        return plan;
    }
    // Without the finalizer somebody else holds the set, such as a foreground deletion, and sees to its Machines.
    if finalizer::has(&set.metadata, FINALIZER) {
        replicas::delete_all(&mut plan, mine);
    }
    if !mine.is_empty() {
        plan.wait(format!("{} to be gone before the set goes", replicas::count_of(mine.len())), None);
    }
    replicas::wait_for_unreadable(&mut plan, snapshot);
    report(&mut plan, snapshot, mine, None);
    plan
}

/// A set that makes no sense: say so, touch nothing.
fn refuse(snapshot: &Snapshot, invalid: &InvalidSet) -> Plan<Action> {
    let mut plan = Plan::default();
    report(&mut plan, snapshot, &claim::controlled(snapshot), Some(invalid));
    plan.wait(format!("the set to be corrected: {invalid}"), None);
    plan
}

/// Puts the status where it belongs in the plan, if it changes.
fn report(plan: &mut Plan<Action>, snapshot: &Snapshot, mine: &[&Arc<Machine>], invalid: Option<&InvalidSet>) {
    let is_work = |step: &Step<Action>| matches!(step.action, Action::CreateMachine(_) | Action::DeleteMachine(_));
    let work_starts = plan.steps.iter().position(is_work);
    let patches_set = plan.steps.iter().any(|step| matches!(step.action, Action::PatchSet(_)));
    if patches_set || (work_starts.is_some() && snapshot.failure.is_none()) {
        return;
    }
    let Some(change) = status::change(snapshot, mine, invalid) else { return };
    let event = match invalid {
        Some(invalid) if change.newly_invalid => Some(Note::warning(EventReason::InvalidSpec, invalid.to_string())),
        _ => None,
    };
    let step = Step { action: Action::WriteStatus(Box::new(change.status)), reason: change.reason, event };
    plan.steps.insert(work_starts.unwrap_or(plan.steps.len()), step);
}
