//! The end of a preservation. The time is cleared last, so that an interrupted end is continued.

use std::sync::Arc;

use super::{
    super::{Action, NodeWrite, Snapshot, status, steps::is_refused},
    condition::{is_told_stopped, tell_stopped},
    copy::{changed, forgotten},
    start::released,
};
use mcm_api::{node::Node, reasons::EventReason};
use mcm_rules::plan::{Event, Plan};

/// How a preservation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PreservationEnd {
    pub reason: &'static str,
    /// The annotations that requested it are removed.
    pub forgets: bool,
}

/// Takes everything back, in this order: the condition, the Node's annotations and taint, the Machine's annotations, the
/// time.
pub(super) fn plan(plan: &mut Plan<Action>, snapshot: &Snapshot, node: Option<&Arc<Node>>, end: PreservationEnd) {
    let machine = &snapshot.machine;
    let expiry = machine.preserve_expiry();
    if let Some(node) = node.filter(|_| expiry.is_some()) {
        if !is_told_stopped(node) {
            if !is_refused(plan, snapshot, NodeWrite::TellPreserved) {
                tell_stopped(plan, snapshot, node);
            }
            return;
        }
        let patch = released(node, end.forgets);
        if !patch.is_null() {
            if !is_refused(plan, snapshot, NodeWrite::EndPreservation) {
                let purpose = NodeWrite::EndPreservation;
                plan.then(Action::PatchNode { node: Arc::clone(node), patch, purpose }, end.reason);
            }
            return;
        }
    }
    if end.forgets {
        let patch = changed(machine, None, forgotten(machine, snapshot.now));
        if !patch.is_null() {
            plan.then(Action::PatchMachine(patch), end.reason);
            return;
        }
    }
    if expiry.is_some() {
        let mut next = status::stored(machine);
        next.current_status.preserve_expiry_time = None;
        let event = Event::normal(EventReason::PreservationStopped, format!("no longer preserved: {}", end.reason));
        plan.then_recording(Action::WriteStatus(Box::new(next)), end.reason, event);
    }
}
