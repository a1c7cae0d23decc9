//! The deletion of the VM, and the Secrets that it needs.

use jiff::{SignedDuration, Timestamp};

use super::record::record_blocked;
use crate::machine::{
    Action, MachinePolicy, Snapshot, memory::VmCall, policy::after, progress::DeletionProgress, retry,
    views::SecretView,
};
use mcm_api::reasons::EventReason;
use mcm_driver::DriverError;
use mcm_rules::plan::{Event, Plan, WaitKind};

/// Polling period for changes that no watch reports.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// Without a VM: the API server deletes a Machine without finalizers at once.
pub(super) const OR_RELEASE: &str =
    "or, if there is no VM, remove the finalizer machine.sapcloud.io/machine-controller-manager from the Machine";

/// The Secrets were read, and all that the class names exist. A driver without them may use the account of the
/// process, where the VM does not exist: it would report a VM as deleted that still runs.
pub(super) fn is_secret_ready(plan: &mut Plan<Action>, snapshot: &Snapshot, progress: DeletionProgress) -> bool {
    match &snapshot.learned.secret {
        SecretView::Read(facts) if facts.missing.is_empty() => return true,
        SecretView::Read(facts) => {
            let missing = facts.missing.join(", ");
            let on = format!("{missing}: it is needed to delete the VM; create it, correct the class, {OR_RELEASE}");
            let event = Event::warning(EventReason::Waiting, format!("Waiting for {on}"));
            record_blocked(plan, snapshot, progress, &format!("Waiting for {on}. "), event);
            plan.wait(WaitKind::Secret, on, None);
        }
        SecretView::NotRead => {
            plan.then(Action::ReadSecret, "the driver needs credentials");
        }
        SecretView::Failed(error) => {
            let until = after(snapshot.now, LOOK_AGAIN);
            plan.wait(WaitKind::Secret, format!("the Secrets of the class to become readable: {error}"), Some(until));
        }
    }
    false
}

pub(super) fn delete_vm(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy) {
    if let Some(failure) = snapshot.memory.failure_of(VmCall::Delete) {
        let until = retry::retry_at(VmCall::Delete, failure, policy, true);
        if snapshot.now < until {
            let error = &failure.error;
            if error.call_again_in.is_some() {
                return wait_for_cloud(plan, error, until);
            }
            let outlook = if error.code.is_transient() {
                "However, will re-try in the next resync. "
            } else {
                "Aborting operation. "
            };
            let story = format!("VM deletion failed due to - {error}. {outlook}");
            let event = Event::warning(EventReason::DeleteFailed, error.to_string());
            record_blocked(plan, snapshot, DeletionProgress::DeleteVm, &story, event);
            plan.wait(WaitKind::DriverRetry, format!("the next attempt to delete the VM: {error}"), Some(until));
            return;
        }
    }
    if is_secret_ready(plan, snapshot, DeletionProgress::DeleteVm) {
        plan.then(Action::DeleteVm, "the Node is drained or missing, so the VM can be deleted");
    }
}

/// Nothing failed.
pub(super) fn wait_for_cloud(plan: &mut Plan<Action>, error: &DriverError, until: Timestamp) {
    plan.wait(WaitKind::CloudOperation, format!("the cloud: {}", error.message), Some(until));
}
