//! Stores the progress of a deletion in the status.

use jiff::Timestamp;

use crate::machine::{
    Action, Snapshot,
    conditions::{self, NeverMet},
    memory::VmCall,
    progress::DeletionProgress,
    status,
};
use mcm_api::machine::{LastOperation, MachinePhase, OperationState, OperationType};
use mcm_driver::Code;
use mcm_rules::plan::{Event, Plan};

/// Stores the next step, unless it is stored already.
pub(super) fn advance(plan: &mut Plan<Action>, snapshot: &Snapshot, next: DeletionProgress, story: &str, reason: &str) {
    write_progress(plan, snapshot, OperationState::Processing, &next.after(story), reason, None);
}

/// As [`advance`], with an event.
pub(super) fn advance_recording(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    next: DeletionProgress,
    story: &str,
    reason: &str,
    event: Event,
) {
    write_progress(plan, snapshot, OperationState::Processing, &next.after(story), reason, Some(event));
}

/// Stores that a step failed and will be retried, unless it is stored already.
pub(in super::super) fn record_blocked(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    step: DeletionProgress,
    story: &str,
    event: Event,
) {
    write_progress(
        plan,
        snapshot,
        OperationState::Failed,
        &step.after(story),
        "the status shows what the deletion waits for",
        Some(event),
    );
}

pub(super) fn write_progress(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    state: OperationState,
    text: &str,
    reason: &str,
    event: Option<Event>,
) {
    let (machine, now) = (&snapshot.machine, snapshot.now);
    let stored = status::stored(machine);
    let mut next = stored.clone();
    if stored.current_status.phase != MachinePhase::Terminating {
        status::enter(&mut next, MachinePhase::Terminating, false, now);
    }
    next.current_status.preserve_expiry_time = None;
    next.last_operation = operation(state, text, now);
    let never_met = match DeletionProgress::of_text(text) {
        DeletionProgress::Drain => snapshot.memory.never_met_budgets(),
        _ => NeverMet::default(),
    };
    conditions::set_drain_blocked(&mut next.conditions, &never_met, now);
    if let Some(state) = kept_driver_state(snapshot) {
        next.last_known_state = state;
    }
    if !status::is_news(&stored, &next, now) {
        return;
    }
    let action = Action::WriteStatus(Box::new(next));
    match event {
        Some(event) => plan.then_recording(action, reason, event),
        None => plan.then(action, reason),
    };
}

fn operation(state: OperationState, text: &str, now: Timestamp) -> LastOperation {
    match state {
        OperationState::Failed => status::failed_operation(OperationType::Delete, None::<Code>, text, now),
        state => status::operation(OperationType::Delete, state, text, now),
    }
}

/// The state that the driver returned with the error of its last delete.
fn kept_driver_state(snapshot: &Snapshot) -> Option<String> {
    snapshot.memory.failure_of(VmCall::Delete)?.error.last_known_state.clone()
}
