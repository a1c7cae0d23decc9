//! Creation: from a Machine without a VM to one whose VM is known and booting.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    Action, MachinePolicy, Snapshot,
    memory::VmCall,
    policy::after,
    retry,
    running::marks,
    status,
    steps::{delete_token, set, wait_for_nodes},
    views::{DriverVmView, SecretView, TargetNodeView},
};
use crate::object::{finalizer, owner};
use mcm_api::{
    labels,
    machine::{Machine, MachinePhase, MachineStatus, OperationState, OperationType},
    reasons::EventReason,
    syntax,
};
use mcm_driver::{Code, DriverError, Vm};
use mcm_rules::plan::{Event, Plan, WaitKind};
use needs::{is_secret_ready, is_token_ready, is_user_data_ready, usable_class, wait_visibly};

pub(super) mod needs;
pub(super) mod settle;

/// Reason to delete the token of a Machine that failed.
const UNUSED_TOKEN: &str = "the Machine failed, so no VM will join with the token";

/// When to call the driver again after an inconsistent result.
const ASK_AGAIN: SignedDuration = SignedDuration::from_mins(3);

/// Creation is not finished: the provider ID or the Node name is not stored yet, or the phase is an early one.
pub(super) fn is_needed(snapshot: &Snapshot) -> bool {
    let machine = &snapshot.machine;
    let is_unlinked = snapshot.has_target() && machine.node_name().is_none();
    machine.spec.provider_id.is_empty() || is_unlinked || is_unsettled(&machine.phase())
}

/// Phases before the VM is known. `Terminating` without a deletion timestamp is a leftover of an earlier Machine of the
/// same name.
const fn is_unsettled(phase: &MachinePhase) -> bool {
    matches!(phase, MachinePhase::New | MachinePhase::CrashLoopBackOff | MachinePhase::Terminating)
}

/// Phases in which a VM may be created. In the others there was one; if it is missing, the health check fails the
/// Machine.
const fn may_create(phase: &MachinePhase) -> bool {
    is_unsettled(phase) || matches!(phase, MachinePhase::Pending)
}

/// A driver may have been called for a Machine. The finalizer is written before the first call, so a Machine
/// whose class or Secret never existed lacks it and can be deleted without them.
pub(super) fn may_have_begun(machine: &Machine) -> bool {
    !machine.spec.provider_id.is_empty() || machine.node_name().is_some() || machine.phase() != MachinePhase::New
}

/// A change of the class or its Secrets concerns a Machine now: it calls the driver, or waits to call it.
pub fn may_call_driver(machine: &Machine) -> bool {
    machine.spec.provider_id.is_empty() || machine.is_terminating() || may_create(&machine.phase())
}

/// Plans the next step of the creation.
pub(super) fn plan(snapshot: &Snapshot, policy: &MachinePolicy) -> Plan<Action> {
    let mut plan = Plan::default();
    if snapshot.machine.phase() == MachinePhase::Failed {
        plan.wait(WaitKind::MachineDeletion, "its deletion, because a failed Machine never gets a VM", None);
        return plan;
    }
    if snapshot.learned.vm == DriverVmView::Deleted {
        mark_stale_failed(&mut plan, snapshot);
        return plan;
    }
    if let Some((call, error, until)) = pending_failure(snapshot, policy) {
        record_failure(&mut plan, snapshot, policy, call, error, until);
        return plan;
    }
    if let Some(vm) = snapshot.learned.vm.vm() {
        vm_known(&mut plan, snapshot, policy, vm);
        return plan;
    }
    if usable_class(&mut plan, snapshot).is_none() || !is_secret_ready(&mut plan, snapshot) {
        return plan;
    }
    if let Some(patch) = finalizer::add(&snapshot.machine.metadata, labels::FINALIZER) {
        plan.then(Action::PatchMachine(patch), "a Machine that may have a VM carries the finalizer");
        return plan;
    }
    match snapshot.learned.vm {
        DriverVmView::NotFound => vm_missing(&mut plan, snapshot, policy),
        // The driver continues its operation, and reports the result.
        DriverVmView::NotAsked if may_continue(snapshot) => vm_missing(&mut plan, snapshot, policy),
        // Without a token no VM can be created, so there is no need to call the cloud.
        _ if snapshot.memory.token_failure().is_some() && !is_token_ready(&mut plan, snapshot, policy) => {}
        _ => {
            plan.then(Action::GetVmStatus, "a VM of this Machine may exist already");
        }
    }
    plan
}

/// The call that began the creation can be repeated. Without user data the VM is looked up instead.
fn may_continue(snapshot: &Snapshot) -> bool {
    let has_user_data = matches!(&snapshot.learned.secret, SecretView::Read(facts) if facts.has_user_data);
    snapshot.memory.is_creating() && has_user_data
}

/// The driver reported that no VM exists, or that it is being created.
fn vm_missing(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy) {
    let machine = &snapshot.machine;
    let id = &machine.spec.provider_id;
    if !id.is_empty() {
        let node_name = machine.node_name().unwrap_or_default();
        let is_unproven = snapshot.has_target() && node_name.is_empty();
        if is_unproven && snapshot.memory.has_given_up_vm() {
            return mark_stale_failed(plan, snapshot);
        }
        if is_unproven || machine.is_infrastructure() {
            let error = DriverError::new(Code::NotFound, format!("VM {id} does not exist"));
            return record_failure(plan, snapshot, policy, VmCall::Status, &error, after(snapshot.now, ASK_AGAIN));
        }
        let vm = Vm { provider_id: id.clone(), node_name: node_name.to_owned(), ..Vm::default() };
        return vm_known(plan, snapshot, policy, &vm);
    }
    if !may_create(&machine.phase()) {
        plan.wait(
            WaitKind::VmLookup,
            "the driver to find the VM, because the Machine had one and no other is created",
            Some(after(snapshot.now, ASK_AGAIN)),
        );
        return;
    }
    if !is_user_data_ready(plan, snapshot) {
        return;
    }
    if snapshot.has_target() && snapshot.now >= policy.creation_deadline_of(machine) {
        return mark_late_failed(plan, snapshot, policy);
    }
    if machine.is_of_cluster_api() && !machine.blocks_move() {
        let mark = json!({ "metadata": { "annotations": { (labels::BLOCK_MOVE): "" } } });
        plan.then(Action::PatchMachine(mark), "clusterctl must not move a Machine whose VM is being created");
        return;
    }
    if is_token_ready(plan, snapshot, policy) {
        let reason = match snapshot.learned.vm {
            DriverVmView::NotFound => "the driver found no VM of this Machine",
            _ => "the cloud had not finished the creation",
        };
        plan.then(Action::CreateVm, reason);
    }
}

/// The VM is known: store its identity, initialize it, then set the phase.
fn vm_known(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy, vm: &Vm) {
    let machine = &snapshot.machine;
    let is_unlinked = snapshot.has_target() && machine.node_name().is_none();
    // The Machine ran and lost its label: the Node of that name belongs to it, whatever the Node's provider ID.
    let is_new = matches!(snapshot.learned.vm, DriverVmView::Created(_)) || is_unsettled(&machine.phase());
    let is_stale = is_unlinked && is_new && snapshot.is_node_of_another_vm(vm);
    let may_link = is_unlinked && !is_stale && snapshot.node != TargetNodeView::Unknown;
    let mut identity = Value::Null;
    if machine.spec.provider_id.is_empty() {
        set(&mut identity, &["spec", "providerID"], vm.provider_id.as_str());
    }
    let is_label = syntax::is_label_value(&vm.node_name);
    if may_link && !vm.node_name.is_empty() && is_label {
        set(&mut identity, &["metadata", "labels", labels::NODE], vm.node_name.as_str());
    }
    if machine.metadata.annotations.as_ref().and_then(|map| map.get(labels::PRIORITY)).is_none_or(String::is_empty) {
        set(&mut identity, &["metadata", "annotations", labels::PRIORITY], labels::DEFAULT_PRIORITY.to_string());
    }
    if machine.blocks_move() {
        set(&mut identity, &["metadata", "annotations", labels::BLOCK_MOVE], Value::Null);
    }
    for (key, value) in news_for_cluster_api(machine, vm) {
        set(&mut identity, &["metadata", "annotations", key], value);
    }
    if !identity.is_null() {
        if is_made_by_a_set(machine) {
            set(&mut identity, &["metadata", "managedFields"], untracked());
        }
        return store_identity(plan, snapshot, policy, vm, identity);
    }
    if is_stale {
        return match snapshot.memory.failure_of(VmCall::Delete) {
            Some(_) => mark_stale_failed(plan, snapshot),
            None => delete_stale(plan, snapshot, vm),
        };
    }
    if is_unlinked && vm.node_name.is_empty() {
        let error = DriverError::new(Code::Internal, "the driver returned a VM without a node name");
        return record_failure(plan, snapshot, policy, VmCall::Status, &error, after(snapshot.now, ASK_AGAIN));
    }
    if is_unlinked && !is_label {
        let problem = syntax::label_value_problem(&vm.node_name).unwrap_or_default();
        let message = format!(
            "the VM's Node name {:?} cannot be the value of the label {}: it {problem}",
            vm.node_name,
            labels::NODE
        );
        let error = DriverError::new(Code::InvalidArgument, message);
        return record_failure(plan, snapshot, policy, VmCall::Status, &error, after(snapshot.now, ASK_AGAIN));
    }
    if is_unlinked {
        return wait_for_nodes(plan, snapshot);
    }
    if matches!(snapshot.learned.vm, DriverVmView::Created(_) | DriverVmView::Uninitialized(_)) {
        let Some(driver) = usable_class(plan, snapshot) else { return };
        if driver.initialize {
            if is_secret_ready(plan, snapshot) && is_token_ready(plan, snapshot, policy) {
                plan.then(Action::InitializeVm, "the VM exists and is not initialized");
            }
            return;
        }
    }
    if is_unsettled(&machine.phase()) {
        mark_pending(plan, snapshot, policy, vm);
    }
}

/// Facts about the VM that only Machines of Cluster API note, in annotations that the Go programs do not have.
fn news_for_cluster_api<'a>(machine: &Machine, vm: &'a Vm) -> impl Iterator<Item = (&'static str, &'a str)> {
    let known = [
        (labels::VM_ZONE, machine.vm_zone(), vm.zone.as_deref()),
        (labels::NODE_PROVIDER_ID, machine.node_provider_id(), vm.node_provider_id.as_deref()),
    ];
    let is_of_cluster_api = machine.is_of_cluster_api();
    let news = known.map(|(key, noted, reported)| reported.filter(|_| noted != reported).map(|value| (key, value)));
    news.into_iter().flatten().filter(move |_| is_of_cluster_api)
}

/// Stores the ID and Node name of the VM in one write. If the API server refuses it, the ID is stored alone, because the VM
/// cannot be deleted without it.
fn store_identity(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy, vm: &Vm, identity: Value) {
    let (machine, now) = (&snapshot.machine, snapshot.now);
    let alone = json!({ "spec": { "providerID": vm.provider_id } });
    let patch = match snapshot.memory.refusal_of(&identity, now) {
        None => identity,
        Some(_) if machine.spec.provider_id.is_empty() && snapshot.memory.refusal_of(&alone, now).is_none() => alone,
        Some(refusal) => {
            let deadline = policy.creation_deadline_of(machine);
            if snapshot.has_target() && now >= deadline && may_create(&machine.phase()) {
                return mark_late_failed(plan, snapshot, policy);
            }
            let until = if now < deadline { refusal.retry_at().min(deadline) } else { refusal.retry_at() };
            return wait_visibly(plan, snapshot, WaitKind::MachineWrite, &refusal.awaited(), Some(until));
        }
    };
    let reason = "the VM's identity is stored before anything else";
    match snapshot.learned.vm {
        DriverVmView::Created(_) => plan.then_recording(
            Action::PatchMachine(patch),
            reason,
            Event::normal(EventReason::Created, format!("VM {} was created", vm.provider_id)),
        ),
        _ => plan.then(Action::PatchMachine(patch), reason),
    };
}

/// Only these Machines lose their `managedFields`: users who apply a Machine themselves need them.
fn is_made_by_a_set(machine: &Machine) -> bool {
    owner::controller_of(&machine.metadata).is_some_and(|controller| controller.kind == "MachineSet")
}

/// The value that clears `managedFields`. On an object that only controllers write they are useless, and creation is 17
/// % faster without them.
fn untracked() -> Value {
    json!([{}])
}

/// The VM exists. If its Node is ready already, `Pending` is skipped.
fn mark_pending(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy, vm: &Vm) {
    let now = snapshot.now;
    let mut next = status::stored(&snapshot.machine);
    if let Some(state) = &vm.last_known_state {
        next.last_known_state.clone_from(state);
    }
    if !snapshot.has_target() {
        let text = "Created machine on cloud provider";
        next.last_operation = status::operation(OperationType::Create, OperationState::Successful, text, now);
        status::enter(&mut next, MachinePhase::Available, false, now);
        status::merge_addresses(&mut next, &vm.addresses, &vm.node_name);
        plan.then(
            Action::WriteStatus(Box::new(next)),
            "the VM exists; without a target cluster this is the final phase",
        );
        return;
    }
    if marks::may_serve(snapshot, policy) {
        return marks::mark_running(plan, snapshot, next);
    }
    let text = "Creating machine on cloud provider";
    next.last_operation = status::operation(OperationType::Create, OperationState::Processing, text, now);
    status::enter(&mut next, MachinePhase::Pending, true, now);
    plan.then(Action::WriteStatus(Box::new(next)), "the VM exists and has to join the cluster");
}

/// As long as a dead Machine keeps its Node, no VM with that name can join. So the replacement of the dead Machine must
/// not wait for a permit, which Machines without a joined VM block.
fn delete_stale(plan: &mut Plan<Action>, snapshot: &Snapshot, vm: &Vm) {
    for dead in snapshot.rivals.readable.iter().filter(|rival| rival.phase() == MachinePhase::Unknown) {
        plan.then(
            Action::WaivePermit(Arc::clone(dead)),
            "its VM does not exist any more: a new VM has the name of its Node",
        );
    }
    let reason = format!("Node {} belongs to an earlier VM, so this VM cannot join", vm.node_name);
    plan.then(Action::DeleteVm, reason);
}

fn mark_stale_failed(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    delete_token(plan, snapshot, UNUSED_TOKEN);
    let mut next = status::stored(&snapshot.machine);
    next.last_operation = status::failed_operation(OperationType::Create, None, "VM using old node obj", snapshot.now);
    status::enter(&mut next, MachinePhase::Failed, false, snapshot.now);
    let event = Event::warning(EventReason::Failed, "the VM has the name of a Node that belongs to an earlier VM");
    plan.then_recording(
        Action::WriteStatus(Box::new(next)),
        "a new VM must not take over the Node object of another VM",
        event,
    );
}

/// The creation timeout has passed: a VM created now could not join in time.
fn mark_late_failed(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy) {
    delete_token(plan, snapshot, UNUSED_TOKEN);
    let mut next = status::stored(&snapshot.machine);
    // The last error is more useful than the fact of the timeout.
    if next.last_operation.state != Some(OperationState::Failed) {
        let text = marks::late_text(snapshot, policy);
        next.last_operation = status::failed_operation(OperationType::Create, None, text, snapshot.now);
    }
    status::enter(&mut next, MachinePhase::Failed, false, snapshot.now);
    let event = Event::warning(EventReason::Failed, marks::late_text(snapshot, policy));
    plan.then_recording(Action::WriteStatus(Box::new(next)), "the creation timeout has passed", event);
}

/// A call of the creation flow that failed and must not be repeated yet.
fn pending_failure<'a>(snapshot: &'a Snapshot, policy: &MachinePolicy) -> Option<(VmCall, &'a DriverError, Timestamp)> {
    [VmCall::Status, VmCall::Create, VmCall::Initialize]
        .into_iter()
        .filter_map(|call| {
            let failure = snapshot.memory.failure_of(call)?;
            Some((call, &failure.error, retry::retry_at(call, failure, policy, false)))
        })
        .filter(|(_, _, until)| snapshot.now < *until)
        .max_by_key(|(_, _, until)| *until)
}

/// Records an error of the driver and waits for the next attempt or the creation timeout.
fn record_failure(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    policy: &MachinePolicy,
    call: VmCall,
    error: &DriverError,
    until: Timestamp,
) {
    let (machine, now) = (&snapshot.machine, snapshot.now);
    let deadline = policy.creation_deadline_of(machine);
    let is_late = now >= deadline;
    if error.call_again_in.is_some() && !is_late {
        if let Some(next) = noted(machine, error) {
            plan.then(Action::WriteStatus(Box::new(next)), "the driver needs this state in the next process as well");
        }
        plan.wait(WaitKind::CloudOperation, format!("the cloud: {}", error.message), Some(until.min(deadline)));
        return;
    }
    if may_create(&machine.phase()) {
        let next = failed_status(snapshot, call, error, is_late);
        if status::is_news(&status::stored(machine), &next, now) {
            let reason = if is_late { EventReason::Failed } else { EventReason::CreateFailed };
            let event = Event::warning(reason, next.last_operation.description.clone());
            if is_late {
                delete_token(plan, snapshot, UNUSED_TOKEN);
            }
            plan.then_recording(
                Action::WriteStatus(Box::new(next)),
                format!("the driver returned {}", error.code),
                event,
            );
        }
    }
    let until = if is_late { until } else { until.min(deadline) };
    plan.wait(WaitKind::DriverRetry, format!("the next attempt: {error}"), Some(until));
}

/// The status with the state that a driver gave for a pause, if that is not stored yet.
fn noted(machine: &Machine, error: &DriverError) -> Option<MachineStatus> {
    let state = error.last_known_state.as_ref().filter(|state| !state.is_empty())?;
    let stored = status::stored(machine);
    let is_new = may_create(&machine.phase()) && stored.last_known_state != *state;
    is_new.then(|| MachineStatus { last_known_state: state.clone(), ..stored })
}

fn failed_status(snapshot: &Snapshot, call: VmCall, error: &DriverError, is_late: bool) -> MachineStatus {
    let now = snapshot.now;
    let mut next = status::stored(&snapshot.machine);
    let text = match call {
        VmCall::Initialize => format!("Provider error: {error}. Initialize VM Instance"),
        VmCall::Status | VmCall::Create | VmCall::Delete => format!("Cloud provider message - {error}"),
    };
    let keeps_state = call == VmCall::Initialize || error.code.is_transient() || error.code == Code::ResourceExhausted;
    match error.last_known_state.as_deref() {
        Some(state) if !state.is_empty() => state.clone_into(&mut next.last_known_state),
        _ if keeps_state => {}
        _ => next.last_known_state.clear(),
    }
    next.last_operation = status::failed_operation(OperationType::Create, Some(error.code), text, now);
    let phase = if is_late { MachinePhase::Failed } else { MachinePhase::CrashLoopBackOff };
    status::enter(&mut next, phase, false, now);
    next
}
