use std::sync::Arc;

use super::{
    Action, Snapshot, claim,
    lint::lint,
    preserve, propagate, replicas, status,
    validate::{InvalidSet, ValidSet, validate},
};
use crate::object::{
    condition,
    draft::{DraftPatch, DraftsByName},
    finalizer,
};
use mcm_api::{labels::FINALIZER, machine::Machine, reasons::EventReason};
use mcm_rules::plan::{Event, Plan, PlanInput, SentPatch, Step, SubjectRef, UndoneWrite, WaitKind};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self)
    }

    fn lint(&self, plan: &Plan<Action>) -> Option<String> {
        lint(self, &plan.steps).first().map(ToString::to_string)
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus(_))
    }

    fn is_look(action: &Action) -> bool {
        matches!(action, Action::TryMachine(_))
    }

    fn subject(action: &Action) -> Option<SubjectRef> {
        action.subject()
    }

    /// A Machine that cannot be brought up to date does not hold up the others.
    const STEPS_DEPEND_ON_ORDER: bool = false;

    fn sent_patch<'a>(&'a self, action: &'a Action) -> Option<SentPatch<'a>> {
        match action {
            Action::PatchSet(patch) => Some(SentPatch::new(&*self.set, patch)),
            Action::PatchMachine { machine, patch } => Some(SentPatch::new(&**machine, patch)),
            _ => None,
        }
    }

    fn show_undone(&self, plan: &mut Plan<Action>, undone: &[UndoneWrite]) {
        if self.hold.is_none() {
            show_undone(self, plan, undone);
        }
    }
}

/// Plans the next steps of a set.
///
/// The loop calls it with fresh snapshots until no steps are left. A plan that creates or deletes Machines, or patches
/// the set, leaves the status to the next plan. After a failure the status is written first, because the retried step may
/// fail again.
pub fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let set = snapshot.set.as_ref();
    if set.metadata.uid.is_none() {
        return Plan::default();
    }
    if let Some(hold) = &snapshot.hold {
        let mut plan = Plan::waiting(WaitKind::Hold, hold.on.as_str(), None);
        if hold.is_confirmed {
            report(&mut plan, snapshot, &claim::controlled(snapshot), None);
        }
        return plan;
    }
    match (set.metadata.deletion_timestamp.is_some(), validate(set)) {
        (false, Ok(valid)) => keep(snapshot, &valid),
        (false, Err(invalid)) => refuse(snapshot, &invalid),
        (true, Ok(valid)) => tear_down(snapshot, &claim::selected(snapshot, &valid.selector)),
        (true, Err(_)) => tear_down(snapshot, &claim::controlled(snapshot)),
    }
}

/// A set that is not being deleted: its finalizer, its Machines, their template, their number, its status.
fn keep(snapshot: &Snapshot, valid: &ValidSet) -> Plan<Action> {
    let set = snapshot.set.as_ref();
    let mut plan = Plan::default();
    if let Some(patch) = finalizer::add(&set.metadata, FINALIZER) {
        plan.then(Action::PatchSet(patch), "add the finalizer: its machines must be deleted before the set");
    }

    let mut drafts = DraftsByName::default();
    let mine = claim::claim(snapshot, &valid.selector, &mut drafts);
    replicas::delete_strays(&mut plan, snapshot);
    propagate::bring_up_to_date(set, &mine, &mut drafts);
    let preservation = preserve::assign(snapshot, &mine, &mut drafts);
    for DraftPatch { current, patch, reason, .. } in drafts.finish() {
        plan.then(Action::PatchMachine { machine: current, patch }, reason);
    }

    replicas::reconcile(&mut plan, snapshot, valid.replicas, &mine, &preservation);
    report(&mut plan, snapshot, &mine, None);
    plan
}

/// A set that is being deleted: its Machines go first, then the set. Machines that have to stay are released by the garbage
/// collector first.
fn tear_down(snapshot: &Snapshot, mine: &[&Arc<Machine>]) -> Plan<Action> {
    let set = snapshot.set.as_ref();
    let mut plan = Plan::default();
    if finalizer::is_orphaning(&set.metadata) {
        plan.wait(
            WaitKind::Finalizers,
            "the garbage collector to remove the set from the owners of its machines",
            None,
        );
        return plan;
    }
    if mine.is_empty() && snapshot.unreadable.is_empty() {
        if let Some(patch) = finalizer::remove(&set.metadata, FINALIZER) {
            plan.then(
                Action::PatchSet(patch),
                "remove the finalizer: the set is being deleted and has no machines left",
            );
        }
        return plan;
    }
    // Without our finalizer, another one keeps the set, such as that of a foreground deletion, which deletes the
    // Machines.
    if finalizer::has(&set.metadata, FINALIZER) {
        replicas::delete_all(&mut plan, mine);
    }
    if !mine.is_empty() {
        plan.wait(
            WaitKind::MachineDeletion,
            format!("{} to be deleted before the set", replicas::count_of(mine.len())),
            None,
        );
    }
    replicas::wait_for_unreadable(&mut plan, snapshot);
    report(&mut plan, snapshot, mine, None);
    plan
}

/// The set is invalid: reports it and does nothing else.
fn refuse(snapshot: &Snapshot, invalid: &InvalidSet) -> Plan<Action> {
    let mut plan = Plan::default();
    report(&mut plan, snapshot, &claim::controlled(snapshot), Some(invalid));
    plan.wait(WaitKind::SpecCorrection, format!("the set to be corrected: {invalid}"), None);
    plan
}

/// Adds the status write at its place in the plan, if the status changes.
fn report(plan: &mut Plan<Action>, snapshot: &Snapshot, mine: &[&Arc<Machine>], invalid: Option<&InvalidSet>) {
    let is_work = |step: &Step<Action>| matches!(step.action, Action::CreateMachine(_) | Action::DeleteMachine(_));
    let work_starts = plan.steps.iter().position(is_work);
    let patches_set = plan.steps.iter().any(|step| matches!(step.action, Action::PatchSet(_)));
    if patches_set || (work_starts.is_some() && snapshot.failure.is_none()) {
        return;
    }
    let Some(change) = status::change(snapshot, mine, invalid) else { return };
    let event = match invalid {
        Some(invalid) if change.newly_invalid => Some(Event::warning(EventReason::InvalidSpec, invalid.to_string())),
        _ => change.newly_stopped.map(|why| Event::warning(EventReason::FailedCreate, why)),
    };
    let step = Step { action: Action::WriteStatus(Box::new(change.status)), reason: change.reason, event };
    plan.steps.insert(work_starts.unwrap_or(plan.steps.len()), step);
}

/// Shows in the condition `InSync` which writes are undone. It waits for the other steps, so that it costs no extra write.
fn show_undone(snapshot: &Snapshot, plan: &mut Plan<Action>, undone: &[UndoneWrite]) {
    let Some((first, others)) = plan.steps.split_first_mut() else {
        let mut status = snapshot.set.status.clone().unwrap_or_default();
        if let Some(shown) = condition::show_undone(&mut status.conditions, undone, snapshot.now) {
            let step = Step { action: Action::WriteStatus(Box::new(status)), reason: shown.reason, event: shown.event };
            plan.steps.push(step);
        }
        return;
    };
    if let (Action::WriteStatus(status), []) = (&mut first.action, others)
        && let Some(shown) = condition::show_undone(&mut status.conditions, undone, snapshot.now)
    {
        first.event = first.event.take().or(shown.event);
    }
}
