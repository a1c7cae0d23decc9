//! Machines that `clusterctl move` waits for, because their VMs may be under creation. At the target a Machine has
//! another UID, which is the token of its creation, so a Machine that is moved before its ID is stored would get a
//! second VM.
//!
//! The annotation costs no extra write: the Machine is created with it, and the write that stores the ID removes it.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{may_continue, vm_known, vm_missing};
use crate::machine::{
    Action, MachinePolicy, Snapshot,
    memory::VmCall,
    policy::after,
    retry,
    views::{ClassView, DriverVmView, SecretView},
};
use mcm_api::labels;
use mcm_rules::plan::{Plan, WaitKind};

/// When to read Secrets again that could not be read.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// Its cluster is paused: no VM is begun, and one that was begun is found. The cloud is only read.
pub(in super::super) fn plan(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy) {
    let now = snapshot.now;
    let is_creating = snapshot.memory.is_creating();
    let call = if is_creating { VmCall::Create } else { VmCall::Status };
    let failure = snapshot.memory.failure_of(call);
    let retry = failure.map(|failure| (&failure.error, retry::retry_at(call, failure, policy, false)));
    if let Some((error, until)) = retry.filter(|(_, until)| now < *until) {
        plan.wait(WaitKind::DriverRetry, format!("the next attempt to find its VM: {error}"), Some(until));
        return;
    }
    if let Some(vm) = snapshot.learned.vm.vm() {
        return vm_known(plan, snapshot, policy, vm);
    }
    if !matches!(snapshot.class, ClassView::Present { .. }) {
        plan.wait(WaitKind::Class, "its MachineClass, which is needed to find out whether it has a VM", None);
        return;
    }
    match (&snapshot.learned.secret, &snapshot.learned.vm) {
        (SecretView::NotRead, _) => drop(plan.then(Action::ReadSecret, "the driver needs credentials")),
        (SecretView::Failed(error), _) => {
            let text = format!("the Secrets of the class to become readable: {error}");
            plan.wait(WaitKind::Secret, text, Some(after(now, LOOK_AGAIN)));
        }
        (SecretView::Read(facts), _) if !facts.missing.is_empty() => {
            plan.wait(WaitKind::Secret, facts.missing.join(", "), None);
        }
        (SecretView::Read(_), DriverVmView::NotFound) => {
            let freed = json!({ "metadata": { "annotations": { (labels::BLOCK_MOVE): Value::Null } } });
            plan.then(Action::PatchMachine(freed), "it has no VM, and none is created while it is on hold");
        }
        // The driver continues its operation, and reports the result.
        (SecretView::Read(_), DriverVmView::NotAsked) if may_continue(snapshot) => vm_missing(plan, snapshot, policy),
        (SecretView::Read(_), _) => drop(plan.then(Action::GetVmStatus, "a VM of this Machine may be being created")),
    }
}
