//! Writes of a Machine that the API server refused: by validation, such as of label values, or by a webhook. A retry
//! fails until something changes, so retries become ever rarer, and the status shows the refusal.

use super::{Action, Snapshot, create, delete, memory::RefusedWrite, progress::DeletionProgress};
use mcm_api::reasons::EventReason;
use mcm_rules::plan::{Event, Plan, Step, WaitKind};

/// Drops the steps from the first one on that would repeat a refused write too early, and waits instead.
pub(super) fn hold_back(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let first = plan.steps.iter().enumerate().find_map(|(index, step)| Some((index, refusal_of(step, snapshot)?)));
    let Some((index, refusal)) = first else { return };
    plan.steps.truncate(index);
    wait(plan, snapshot, refusal);
}

fn refusal_of<'a>(step: &Step<Action>, snapshot: &'a Snapshot) -> Option<&'a RefusedWrite> {
    match &step.action {
        Action::PatchMachine(patch) => snapshot.memory.refusal_of(patch, snapshot.now),
        _ => None,
    }
}

fn wait(plan: &mut Plan<Action>, snapshot: &Snapshot, refusal: &RefusedWrite) {
    let (what, until) = (refusal.awaited(), Some(refusal.retry_at()));
    if snapshot.is_deleting() {
        let progress = DeletionProgress::from_machine(&snapshot.machine).max(DeletionProgress::GetVmStatus);
        let event = Event::warning(EventReason::Waiting, format!("Waiting for {what}"));
        delete::record_blocked(plan, snapshot, progress, &format!("Waiting for {what}. "), event);
    } else if create::is_needed(snapshot) {
        return create::needs::wait_visibly(plan, snapshot, WaitKind::MachineWrite, &what, until);
    }
    plan.wait(WaitKind::MachineWrite, what, until);
}
