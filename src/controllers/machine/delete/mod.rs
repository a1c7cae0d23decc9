//! Deletion, from the deletion timestamp to the end: find the Node, drain it, delete the VM, delete the Node, remove
//! the finalizer.
//!
//! Every step can be repeated. The status is written when a step takes long or fails, so that users see it and the next
//! process continues from there after a crash. Quick steps are not written.

use serde_json::Value;

use super::{
    Action, MachinePolicy, Snapshot,
    memory::VmCall,
    progress::DeletionProgress,
    retry,
    running::renamed,
    steps::{is_node_certain, set},
    views::{ClassView, DriverVmView, TargetNodeView},
};
use crate::object::finalizer;
use mcm_api::{labels, machine::OperationState, reasons::EventReason, syntax};
use mcm_driver::Vm;
use mcm_rules::plan::{Event, Plan, WaitKind};
use record::{advance, write_progress};
use vm::{OR_RELEASE, delete_vm, is_secret_ready, wait_for_cloud};

mod drain;
mod node;
mod record;
mod vm;
mod volumes;

pub(super) use drain::forced_from;
pub(super) use record::record_blocked;

/// Plans the next step for a Machine with a deletion timestamp.
pub(super) fn plan(snapshot: &Snapshot, policy: &MachinePolicy) -> Plan<Action> {
    let mut plan = Plan::default();
    let machine = &snapshot.machine;
    if !finalizer::has(&machine.metadata, labels::FINALIZER) {
        wait_for_others(&mut plan, snapshot);
        return plan;
    }
    let progress = DeletionProgress::from_machine(machine);
    if snapshot.learned.vm == DriverVmView::Deleted || progress >= DeletionProgress::DeleteNode {
        node::plan(&mut plan, snapshot, progress);
        return plan;
    }
    if !is_class_known(&mut plan, snapshot, progress) {
        return plan;
    }
    match progress {
        DeletionProgress::DetachVolumes if volumes::plan(&mut plan, snapshot) => {}
        DeletionProgress::DetachVolumes | DeletionProgress::DeleteVm => delete_vm(&mut plan, snapshot, policy),
        _ => drain_node(&mut plan, snapshot, policy, progress),
    }
    plan
}

/// The part of this controller is done, or it never had one.
fn wait_for_others(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let others = snapshot.machine.metadata.finalizers.as_deref().unwrap_or_default();
    if others.is_empty() {
        return;
    }
    let what = format!("other controllers to remove their finalizers: {}", others.join(", "));
    let reason = "the status shows what the deletion waits for";
    write_progress(plan, snapshot, OperationState::Processing, &format!("Waiting for {what}"), reason, None);
    plan.wait(WaitKind::Finalizers, what, None);
}

/// The class is known. The driver cannot be called without it, and the VM must not leak.
fn is_class_known(plan: &mut Plan<Action>, snapshot: &Snapshot, progress: DeletionProgress) -> bool {
    let name = &snapshot.machine.spec.class.name;
    let on = match &snapshot.class {
        ClassView::Present { .. } => return true,
        ClassView::Unknown => {
            plan.wait(WaitKind::ClassUnknown, format!("the MachineClass {name} to become readable"), None);
            return false;
        }
        ClassView::Missing => {
            format!(
                "the MachineClass {name}, which does not exist: it is needed to delete the VM; create it again, {OR_RELEASE}"
            )
        }
        ClassView::Unserved(class) => {
            format!("a driver for the provider {:?} of the MachineClass {name}", class.provider)
        }
    };
    let event = Event::warning(EventReason::Waiting, format!("Waiting for {on}"));
    record_blocked(plan, snapshot, progress.max(DeletionProgress::GetVmStatus), &format!("Waiting for {on}. "), event);
    plan.wait(WaitKind::Class, on, None);
    false
}

/// Finds the Node and drains it.
fn drain_node(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy, progress: DeletionProgress) {
    if !snapshot.has_target() {
        let story = "Running without target cluster, skipping node drain and volume attachment deletion. ";
        return advance(plan, snapshot, DeletionProgress::DeleteVm, story, "without a target cluster there is no Node");
    }
    let is_asked = snapshot.learned.vm != DriverVmView::NotAsked;
    let is_unproven = snapshot.unproven().is_some() || snapshot.is_other_node_unproven();
    let renamed = renamed::plan(snapshot);
    if !renamed.steps.is_empty() {
        plan.steps.extend(renamed.steps);
        return;
    }
    if snapshot.machine.node_name().is_some() {
        return match is_unproven && !is_asked && !drain::is_forced(snapshot, policy) {
            true => get_status(plan, snapshot, policy, progress),
            false => drain::plan(plan, snapshot, policy, progress),
        };
    }
    match &snapshot.own_node() {
        TargetNodeView::Present(node) if !is_asked => {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            return link_or_drain(plan, snapshot, policy, progress, name, None);
        }
        TargetNodeView::Unknown if is_unproven || drain::is_forced(snapshot, policy) => {}
        _ if !is_node_certain(plan, snapshot, "a Node that is missing in the cache may exist") => {
            return;
        }
        _ => {}
    }
    match snapshot.learned.vm.vm() {
        _ if !is_asked => get_status(plan, snapshot, policy, progress),
        Some(vm) if !vm.node_name.is_empty() && !snapshot.is_node_of_another_vm(vm) => {
            link_or_drain(plan, snapshot, policy, progress, &vm.node_name, Some(vm));
        }
        _ => skip_drain(plan, snapshot),
    }
}

/// Drains the Node of this name, after its name was stored, if a label can store it.
fn link_or_drain(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    policy: &MachinePolicy,
    progress: DeletionProgress,
    node_name: &str,
    vm: Option<&Vm>,
) {
    if !syntax::is_label_value(node_name) {
        return drain::plan(plan, snapshot, policy, progress);
    }
    let mut patch = Value::Null;
    set(&mut patch, &["metadata", "labels", labels::NODE], node_name);
    if let Some(vm) = vm {
        set(&mut patch, &["spec", "providerID"], vm.provider_id.as_str());
    }
    plan.then(Action::PatchMachine(patch), "the label names the Node that has to be drained");
}

fn skip_drain(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let story = "Skipping drain as nodeName is not a valid one for machine. ";
    advance(plan, snapshot, DeletionProgress::DeleteVm, story, "there is no Node to drain");
}

/// Calls the driver to learn the Node name of the VM, if there is a VM.
fn get_status(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy, progress: DeletionProgress) {
    if let Some(failure) = snapshot.memory.failure_of(VmCall::Status) {
        let until = retry::retry_at(VmCall::Status, failure, policy, true);
        if snapshot.now < until {
            if failure.error.call_again_in.is_some() {
                return wait_for_cloud(plan, &failure.error, until);
            }
            let story = if failure.error.code.is_transient() {
                format!("{STATUS_FAILED}with retry. ")
            } else {
                format!("{STATUS_FAILED}without retry. machine code: {} ", failure.error)
            };
            let event = Event::warning(EventReason::DeleteFailed, failure.error.to_string());
            record_blocked(plan, snapshot, DeletionProgress::GetVmStatus, &story, event);
            plan.wait(
                WaitKind::DriverRetry,
                format!("the next attempt to find the VM: {}", failure.error),
                Some(until),
            );
            return;
        }
    }
    if progress == DeletionProgress::Start {
        return advance(
            plan,
            snapshot,
            DeletionProgress::GetVmStatus,
            "",
            "the driver is called for the Node name of the VM",
        );
    }
    if is_secret_ready(plan, snapshot, DeletionProgress::GetVmStatus) {
        plan.then(Action::GetVmStatus, "a VM may exist and may have joined");
    }
}

/// Text of the reference.
const STATUS_FAILED: &str = "Error occurred with decoding machine error status while getting VM status, aborting ";
