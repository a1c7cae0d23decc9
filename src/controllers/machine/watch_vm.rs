//! Checks the VM of a Machine without a target cluster periodically: no Node shows whether it still runs. The Machine
//! keeps its phase and never gets another VM; a condition shows the state of the VM.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::NodeAddress;

use super::{
    Action, MachinePolicy, Snapshot, conditions,
    memory::VmCall,
    policy::after,
    retry, status,
    views::{ClassView, DriverVmView, SecretView},
};
use mcm_api::{
    machine::MachinePhase,
    reasons::{EventReason, VmReason},
};
use mcm_driver::{Code, Vm};
use mcm_rules::plan::{Event, Plan, WaitKind};

/// The longest time for which a check waits for others, so that drivers describe all VMs with one call.
const LONGEST_GATHERING: SignedDuration = SignedDuration::from_secs(3);

/// The Machine has a VM and no Node that shows its health.
pub(super) fn is_needed(snapshot: &Snapshot) -> bool {
    let machine = &snapshot.machine;
    !snapshot.has_target() && machine.phase() == MachinePhase::Available && !machine.spec.provider_id.is_empty()
}

/// How long a check waits for those of other Machines with the same account. All are due at the same time.
pub(super) fn gathering(policy: &MachinePolicy) -> SignedDuration {
    (policy.vm_check_period() / 4).min(LONGEST_GATHERING)
}

/// Plans the next check, or shows its result.
pub(super) fn plan(snapshot: &Snapshot, policy: &MachinePolicy) -> Plan<Action> {
    let mut plan = Plan::default();
    match &snapshot.learned.vm {
        DriverVmView::NotAsked => look(&mut plan, snapshot, policy),
        DriverVmView::NotFound | DriverVmView::Deleted => {
            if let Some(text) = gone(snapshot) {
                show(&mut plan, snapshot, Some((VmReason::NotFound, &text)), None);
            }
        }
        DriverVmView::Found(vm)
        | DriverVmView::Uninitialized(vm)
        | DriverVmView::Created(vm)
        | DriverVmView::Initialized(vm) => {
            let text = vm.halted.as_ref().map(|state| format!("VM {} is not running: it is {state}", vm.provider_id));
            show(&mut plan, snapshot, text.as_deref().map(|text| (VmReason::NotRunning, text)), Some(vm));
        }
    }
    if plan.steps.is_empty() && plan.waits.is_empty() {
        plan.wait(WaitKind::VmCheck, "the next check of the VM", Some(next_look(snapshot, policy)));
    }
    plan
}

/// The problem of a VM that does not exist. `None` if the driver cannot look VMs up.
fn gone(snapshot: &Snapshot) -> Option<String> {
    let id = &snapshot.machine.spec.provider_id;
    let answer = snapshot.learned.no_vm.as_ref();
    if answer.is_some_and(|error| error.code == Code::Unimplemented) {
        return None;
    }
    let end = answer.and_then(|error| error.vm.as_ref()?.halted.as_deref());
    Some(match end {
        Some(end) => format!("VM {id} does not exist any more: it is {end}"),
        None => format!("VM {id} does not exist any more"),
    })
}

fn look(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy) {
    let due = snapshot.memory.looked_at.map(|_| next_look(snapshot, policy)).filter(|due| *due > snapshot.now);
    let failure = snapshot.memory.failure_of(VmCall::Status);
    let again = failure.map(|failure| retry::retry_at(VmCall::Status, failure, policy, false));
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
            let until = after(snapshot.now, policy.vm_check_period());
            plan.wait(WaitKind::Secret, "the Secrets of the class, to check the VM", Some(until));
        }
    }
}

/// The next common time, not too soon after the last look: at most 1.2 periods after it.
fn next_look(snapshot: &Snapshot, policy: &MachinePolicy) -> Timestamp {
    let period = policy.vm_check_period();
    let earliest = after(snapshot.memory.looked_at.unwrap_or(snapshot.now), period / 5).as_second();
    let period = period.as_secs().max(1);
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
