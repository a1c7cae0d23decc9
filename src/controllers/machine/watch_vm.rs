//! Checks the VM of a Machine without a target cluster periodically: no Node shows whether it still runs. The Machine
//! keeps its phase and never gets another VM; a condition shows the state of the VM.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::NodeAddress;

use super::{
    Action, Policy, Snapshot, conditions,
    memory::Call,
    policy::after,
    retry, status,
    views::{ClassView, SecretView, VmView},
};
use crate::{
    api::{
        machine::MachinePhase,
        reasons::{EventReason, VmReason},
    },
    driver::Vm,
    plan::{Event, Plan, WaitKind},
};

/// How often. All Machines are due at the same times, so that drivers describe their VMs with few calls.
const PERIOD: SignedDuration = SignedDuration::from_mins(5);

/// Whether the Machine has a VM and no Node that shows its health.
pub(super) fn is_needed(snapshot: &Snapshot) -> bool {
    let machine = &snapshot.machine;
    !snapshot.has_target() && machine.phase() == MachinePhase::Available && !machine.spec.provider_id.is_empty()
}

/// Plans the next check, or shows its result.
pub(super) fn plan(snapshot: &Snapshot, policy: &Policy) -> Plan<Action> {
    let mut plan = Plan::default();
    match &snapshot.learned.vm {
        VmView::NotAsked => look(&mut plan, snapshot, policy),
        VmView::NotFound | VmView::Deleted => {
            let text = format!("VM {} does not exist any more", snapshot.machine.spec.provider_id);
            show(&mut plan, snapshot, Some((VmReason::NotFound, &text)), None);
        }
        VmView::Found(vm) | VmView::Uninitialized(vm) | VmView::Created(vm) | VmView::Initialized(vm) => {
            let text = vm.halted.as_ref().map(|state| format!("VM {} is not running: it is {state}", vm.provider_id));
            show(&mut plan, snapshot, text.as_deref().map(|text| (VmReason::NotRunning, text)), Some(vm));
        }
    }
    if plan.steps.is_empty() && plan.waits.is_empty() {
        plan.wait(WaitKind::VmCheck, "the next check of the VM", Some(next_look(snapshot)));
    }
    plan
}

fn look(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy) {
    let due = snapshot.memory.looked_at.map(|_| next_look(snapshot)).filter(|due| *due > snapshot.now);
    let failure = snapshot.memory.failure_of(Call::Status);
    let again = failure.map(|failure| retry::retry_at(Call::Status, failure, policy, false));
    if let Some(due) = due.max(again.filter(|again| *again > snapshot.now)) {
        plan.wait(WaitKind::VmCheck, "the next check of the VM", Some(due));
        return;
    }
    if !matches!(snapshot.class, ClassView::Present { .. }) {
        plan.wait(WaitKind::Class, "a class with a driver, to check the VM", None);
        return;
    }
    match &snapshot.learned.secret {
        SecretView::NotRead => drop(plan.then(Action::ReadSecret, "the driver needs credentials")),
        // NotFound with other credentials is not an answer about this VM.
        SecretView::Read(facts) if facts.missing.is_empty() => {
            plan.then(Action::GetVmStatus, "there is no Node to show whether the VM is running");
        }
        SecretView::Read(_) | SecretView::Failed(_) => {
            let until = after(snapshot.now, PERIOD);
            plan.wait(WaitKind::Secret, "the Secrets of the class, to check the VM", Some(until));
        }
    }
}

/// The next common time, not too soon after the last look.
fn next_look(snapshot: &Snapshot) -> Timestamp {
    let earliest = after(snapshot.memory.looked_at.unwrap_or(snapshot.now), PERIOD / 2).as_second();
    let period = PERIOD.as_secs();
    let next = earliest.saturating_sub(1).div_euclid(period).saturating_add(1).saturating_mul(period);
    Timestamp::from_second(next).unwrap_or(Timestamp::MAX)
}

fn show(plan: &mut Plan<Action>, snapshot: &Snapshot, problem: Option<(VmReason, &str)>, vm: Option<&Vm>) {
    let stored = status::stored(&snapshot.machine);
    let mut next = stored.clone();
    let is_news = conditions::set_vm_problem(&mut next.conditions, problem, snapshot.now);
    if let Some(vm) = vm {
        refresh_addresses(&mut next.addresses, vm);
    }
    let action = Action::WriteStatus(Box::new(next.clone()));
    match problem {
        Some((_, text)) if is_news => {
            plan.then_recording(action, "the VM is not running", Event::warning(EventReason::Unhealthy, text));
        }
        None if is_news => {
            let event = Event::normal(
                EventReason::Recovered,
                format!("VM {} is running again", snapshot.machine.spec.provider_id),
            );
            plan.then_recording(action, "the VM is running again", event);
        }
        _ if next.addresses != stored.addresses => drop(plan.then(action, "the addresses of the VM changed")),
        _ => {}
    }
}

/// A VM that is started again may have others. Host names stay.
fn refresh_addresses(stored: &mut Vec<NodeAddress>, vm: &Vm) {
    if vm.addresses.is_empty() {
        return;
    }
    stored.retain(|it| it.type_ == "Hostname");
    stored.extend(vm.addresses.iter().cloned());
    stored.sort_by(|a, b| (&a.type_, &a.address).cmp(&(&b.type_, &b.address)));
    stored.dedup();
}
