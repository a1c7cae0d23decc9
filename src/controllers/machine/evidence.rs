//! Looks up the VM of a Machine whose Node does not name it: the Node of a taken over, moved or restored Machine, one that
//! registered anew, or one that is not the Machine's at all.

use jiff::SignedDuration;

use super::{
    Action, MachinePolicy, Snapshot, create,
    memory::VmCall,
    policy::after,
    retry,
    views::{ClassView, DriverVmView, SecretView},
};
use mcm_rules::plan::{Plan, WaitKind};

/// When to read Secrets again that could not be read.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// Plans the call, unless the creation makes it anyway. Its answer stays in the memory, and as an annotation on the Node.
pub(super) fn plan(snapshot: &Snapshot, policy: &MachinePolicy) -> Plan<Action> {
    let mut plan = Plan::default();
    let is_asked = snapshot.learned.vm != DriverVmView::NotAsked;
    let is_needed = snapshot.unproven().is_some() || snapshot.is_other_node_unproven();
    if is_asked || !is_needed || create::is_needed(snapshot) {
        return plan;
    }
    let failure = snapshot.memory.failure_of(VmCall::Status);
    let retry = failure.map(|failure| (&failure.error, retry::retry_at(VmCall::Status, failure, policy, false)));
    if let Some((error, until)) = retry.filter(|(_, until)| snapshot.now < *until) {
        plan.wait(WaitKind::DriverRetry, format!("the next attempt to find its VM: {error}"), Some(until));
        return plan;
    }
    if !matches!(snapshot.class, ClassView::Present { .. }) {
        plan.wait(WaitKind::Class, "a class with a driver, to find out whether its Node is that of its VM", None);
        return plan;
    }
    match &snapshot.learned.secret {
        SecretView::NotRead => {
            plan.then(Action::ReadSecret, "the driver needs credentials");
        }
        SecretView::Read(facts) if facts.missing.is_empty() => {
            plan.then(Action::GetVmStatus, "its Node does not name this Machine, and may be that of another VM");
        }
        SecretView::Read(facts) => {
            plan.wait(WaitKind::Secret, facts.missing.join(", "), None);
        }
        SecretView::Failed(error) => {
            let text = format!("the Secrets of the class to become readable: {error}");
            plan.wait(WaitKind::Secret, text, Some(after(snapshot.now, LOOK_AGAIN)));
        }
    }
    plan
}
