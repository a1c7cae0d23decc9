//! From a deletion timestamp to the end: find the Node, drain it, delete the VM, delete the Node, let go.
//!
//! Every step can be repeated. A status is written where a step takes long or fails, so that others see it and so that
//! whoever comes after a crash goes on from there; steps that take no time are not written.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    Action, Policy, Snapshot, evacuate,
    memory::{Call, NodeWrite},
    plan::set,
    policy::after,
    progress::Progress,
    retry,
    snapshot::{ClassView, NodeView, SecretView, VmView},
    status,
};
use crate::{
    api::{
        labels,
        machine::{LastOperation, MachinePhase, OperationState, OperationType},
        node::Node,
        reasons::EventReason,
    },
    controllers::{
        finalizer,
        plan::{Note, Plan},
    },
    driver::{Code, Vm},
};

/// How soon to look again where nothing tells when things change.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// What comes next for a Machine with a deletion timestamp.
pub(super) fn plan(snapshot: &Snapshot, policy: &Policy) -> Plan<Action> {
    let mut plan = Plan::default();
    let machine = &snapshot.machine;
    if !finalizer::has(&machine.metadata, labels::FINALIZER) {
        if machine.metadata.finalizers.as_ref().is_some_and(|others| !others.is_empty()) {
            plan.wait("finalizers of others to be removed", None);
        }
        return plan;
    }
    let progress = Progress::of(machine);
    if snapshot.vm == VmView::Deleted || progress >= Progress::DeleteNode {
        delete_node(&mut plan, snapshot, progress);
        return plan;
    }
    if !is_class_known(&mut plan, snapshot, progress) {
        return plan;
    }
    match progress {
        // Where volumes are waited for, `DetachVolumes` gets a step of its own.
        Progress::DetachVolumes | Progress::DeleteVm => delete_vm(&mut plan, snapshot, policy),
        _ => leave_node(&mut plan, snapshot, policy, progress),
    }
    plan
}

/// The driver cannot be called without its class, and a VM must not be forgotten.
fn is_class_known(plan: &mut Plan<Action>, snapshot: &Snapshot, progress: Progress) -> bool {
    let name = &snapshot.machine.spec.class.name;
    let on = match &snapshot.class {
        ClassView::Present { .. } => return true,
        ClassView::Unknown => {
            plan.wait("the MachineClasses to be known", None);
            return false;
        }
        ClassView::Missing => {
            format!(
                "the MachineClass {name}, which does not exist: without it the VM cannot be deleted; create it again"
            )
        }
        ClassView::Unserved(class) => {
            format!("a driver for the provider {:?} of the MachineClass {name}", class.provider)
        }
    };
    let note = Note::warning(EventReason::Waiting, format!("Waiting for {on}"));
    stall(plan, snapshot, progress.max(Progress::AskVm), &format!("Waiting for {on}. "), note);
    plan.wait(on, None);
    false
}

/// Finds out which Node is to be emptied, and empties it.
fn leave_node(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy, progress: Progress) {
    if !snapshot.has_target() {
        let story = "Running without target cluster, skipping node drain and volume attachment deletion. ";
        return advance(plan, snapshot, Progress::DeleteVm, story, "without a target cluster there is no Node");
    }
    if snapshot.machine.node_name().is_some() {
        return evacuate::plan(plan, snapshot, policy, progress);
    }
    match &snapshot.node {
        NodeView::Present(node) if snapshot.vm == VmView::NotAsked => {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            return link(plan, name, None);
        }
        NodeView::Unknown => {
            plan.wait("the Nodes of the target cluster to be known", None);
            return;
        }
        _ => {}
    }
    match &snapshot.vm {
        VmView::NotAsked if progress == Progress::Drain => skip_drain(plan, snapshot),
        VmView::NotAsked => ask(plan, snapshot, policy, progress),
        view => match view.vm() {
            Some(vm) if !vm.node_name.is_empty() && !snapshot.is_node_of_another_vm(vm) => {
                link(plan, &vm.node_name, Some(vm));
            }
            _ => skip_drain(plan, snapshot),
        },
    }
}

fn link(plan: &mut Plan<Action>, node_name: &str, vm: Option<&Vm>) {
    let mut patch = Value::Null;
    set(&mut patch, &["metadata", "labels", labels::NODE], node_name);
    if let Some(vm) = vm {
        set(&mut patch, &["spec", "providerID"], vm.provider_id.as_str());
    }
    plan.then(Action::PatchMachine(patch), "the Node has to be drained first, and only the label leads to it");
}

fn skip_drain(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let story = "Skipping drain as nodeName is not a valid one for machine. ";
    advance(plan, snapshot, Progress::DeleteVm, story, "there is no Node to be drained");
}

/// Asks the driver which Node the VM is, if there is one.
fn ask(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy, progress: Progress) {
    if let Some(failure) = snapshot.memory.failure_of(Call::Ask) {
        let until = retry::retry_at(Call::Ask, failure, policy, true);
        if snapshot.now < until {
            let story = if failure.error.code.is_transient() {
                format!("{ASK_FAILED}with retry. ")
            } else {
                format!("{ASK_FAILED}without retry. machine code: {} ", failure.error)
            };
            let note = Note::warning(EventReason::DeleteFailed, failure.error.to_string());
            stall(plan, snapshot, Progress::AskVm, &story, note);
            plan.wait(format!("the next try to find the VM: {}", failure.error), Some(until));
            return;
        }
    }
    if progress == Progress::Start {
        return advance(plan, snapshot, Progress::AskVm, "", "the driver is asked which Node the VM is");
    }
    if is_secret_ready(plan, snapshot) {
        plan.then(Action::AskVm, "a VM may be there, and may have joined");
    }
}

/// As the reference writes it.
const ASK_FAILED: &str = "Error occurred with decoding machine error status while getting VM status, aborting ";

/// The driver is called with what the Secrets have: a missing one does not block a deletion, an unreadable one does.
fn is_secret_ready(plan: &mut Plan<Action>, snapshot: &Snapshot) -> bool {
    match &snapshot.secret {
        SecretView::Read(_) => return true,
        SecretView::NotRead => {
            plan.then(Action::ReadSecret, "the driver needs credentials");
        }
        SecretView::Failed(error) => {
            let until = after(snapshot.now, LOOK_AGAIN);
            plan.wait(format!("the Secrets of the class to be readable: {error}"), Some(until));
        }
    }
    false
}

fn delete_vm(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy) {
    if let Some(failure) = snapshot.memory.failure_of(Call::Delete) {
        let until = retry::retry_at(Call::Delete, failure, policy, true);
        if snapshot.now < until {
            let error = &failure.error;
            let outlook = if error.code.is_transient() {
                "However, will re-try in the next resync. "
            } else {
                "Aborting operation. "
            };
            let story = format!("VM deletion failed due to - {error}. {outlook}");
            let note = Note::warning(EventReason::DeleteFailed, error.to_string());
            stall(plan, snapshot, Progress::DeleteVm, &story, note);
            plan.wait(format!("the next try to delete the VM: {error}"), Some(until));
            return;
        }
    }
    if is_secret_ready(plan, snapshot) {
        plan.then(Action::DeleteVm, "nothing needs the VM any more");
    }
}

fn delete_node(plan: &mut Plan<Action>, snapshot: &Snapshot, progress: Progress) {
    if progress == Progress::Release {
        return release(plan, snapshot);
    }
    match snapshot.own_node() {
        NodeView::Present(node) => delete_present_node(plan, snapshot, &node),
        NodeView::Unknown if snapshot.machine.node_name().is_some() => {
            if progress < Progress::DeleteNode {
                let story = "VM deletion was successful. ";
                return advance(plan, snapshot, Progress::DeleteNode, story, "the VM is gone");
            }
            plan.wait("the Nodes of the target cluster to be known", None);
        }
        NodeView::Unknown | NodeView::Absent | NodeView::NoTarget => release(plan, snapshot),
    }
}

fn delete_present_node(plan: &mut Plan<Action>, snapshot: &Snapshot, node: &std::sync::Arc<Node>) {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let is_held = finalizer::has(&node.metadata, labels::NODE_FINALIZER);
    if !is_held && node.metadata.deletion_timestamp.is_some() {
        return release(plan, snapshot);
    }
    let purpose = if is_held { NodeWrite::Release } else { NodeWrite::Delete };
    if let Some(failure) = snapshot.memory.node_failure_of(purpose, snapshot.now) {
        let story = match purpose {
            NodeWrite::Release => format!(
                "Removal of finalizers from Node Object \"{name}\" failed due to error: {}, Retrying. ",
                failure.message
            ),
            _ => format!("Deletion of Node Object \"{name}\" failed due to error: {}. ", failure.message),
        };
        let note = Note::warning(EventReason::DeleteFailed, story.trim_end());
        stall(plan, snapshot, Progress::DeleteNode, &story, note);
        plan.wait(format!("the Node {name} to be deletable: {}", failure.message), Some(failure.retry_at()));
        return;
    }
    if is_held {
        let patch = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": [labels::NODE_FINALIZER] } });
        plan.then(Action::AmendNode { node: node.clone(), patch, purpose }, "the VM is gone, so the Node may go");
    } else {
        plan.then(Action::DeleteNode(node.clone()), "the VM of the Node is gone");
    }
}

fn release(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    if let Some(patch) = finalizer::remove(&snapshot.machine.metadata, labels::FINALIZER) {
        let note = Note::normal(EventReason::Deleted, "VM and Node are gone");
        plan.then_noting(Action::PatchMachine(patch), "nothing is left of the Machine", note);
    }
}

/// Writes that a step comes next, unless that is what is stored.
pub(super) fn advance(plan: &mut Plan<Action>, snapshot: &Snapshot, next: Progress, story: &str, reason: &str) {
    write(plan, snapshot, OperationState::Processing, &next.after(story), reason, None);
}

/// As [`advance`], with an event.
pub(super) fn advance_noting(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    next: Progress,
    story: &str,
    reason: &str,
    note: Note,
) {
    write(plan, snapshot, OperationState::Processing, &next.after(story), reason, Some(note));
}

/// Writes that a step failed and will be tried again, unless that is known.
pub(super) fn stall(plan: &mut Plan<Action>, snapshot: &Snapshot, step: Progress, story: &str, note: Note) {
    write(
        plan,
        snapshot,
        OperationState::Failed,
        &step.after(story),
        "others must see what the deletion waits for",
        Some(note),
    );
}

fn write(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    state: OperationState,
    text: &str,
    reason: &str,
    note: Option<Note>,
) {
    let (machine, now) = (&snapshot.machine, snapshot.now);
    let stored = status::stored(machine);
    let mut next = stored.clone();
    if stored.current_status.phase != MachinePhase::Terminating {
        status::enter(&mut next, MachinePhase::Terminating, false, now);
    }
    next.current_status.preserve_expiry_time = None;
    next.last_operation = operation(state, text, now);
    if let Some(state) = kept_driver_state(snapshot) {
        next.last_known_state = state;
    }
    if !status::is_news(&stored, &next, now) {
        return;
    }
    let action = Action::WriteStatus(Box::new(next));
    match note {
        Some(note) => plan.then_noting(action, reason, note),
        None => plan.then(action, reason),
    };
}

fn operation(state: OperationState, text: &str, now: Timestamp) -> LastOperation {
    match state {
        OperationState::Failed => status::failed_operation(OperationType::Delete, None::<Code>, text, now),
        state => status::operation(OperationType::Delete, state, text, now),
    }
}

/// What the driver asked to keep when its last delete failed.
fn kept_driver_state(snapshot: &Snapshot) -> Option<String> {
    snapshot.memory.failure_of(Call::Delete)?.error.last_known_state.clone()
}
