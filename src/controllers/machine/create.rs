//! From a Machine without a VM to one whose VM is known and booting.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    Action, Policy, Snapshot,
    action::BootstrapToken,
    health,
    memory::Call,
    plan::set,
    policy::after,
    retry,
    snapshot::{ClassView, NodeView, SecretView, TokenView, VmView},
    status, token,
};
use crate::{
    api::{
        labels,
        machine::{MachineClass, MachinePhase, MachineStatus, OperationState, OperationType},
        reasons::EventReason,
    },
    controllers::{
        finalizer,
        plan::{Note, Plan},
    },
    driver::{Capabilities, Code, DriverError, Vm},
};

/// How soon to look again where nothing tells when things change.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// How soon to ask the driver again after an answer that makes no sense.
const ASK_AGAIN: SignedDuration = SignedDuration::from_mins(3);

/// Whether the VM of a Machine or its Node is not known yet, or the phase does not say so.
pub(super) fn is_needed(snapshot: &Snapshot) -> bool {
    let machine = &snapshot.machine;
    let is_unlinked = snapshot.has_target() && machine.node_name().is_none();
    machine.spec.provider_id.is_empty() || is_unlinked || is_unsettled(machine.phase())
}

/// Phases that end when the VM is known. `Terminating` without a deletion timestamp was written by mistake, for an earlier
/// Machine of the same name.
const fn is_unsettled(phase: MachinePhase) -> bool {
    matches!(phase, MachinePhase::New | MachinePhase::CrashLoopBackOff | MachinePhase::Terminating)
}

/// Phases in which a VM may be made. In the others there was one, so a missing one is for health to notice.
const fn may_create(phase: MachinePhase) -> bool {
    is_unsettled(phase) || matches!(phase, MachinePhase::Pending)
}

/// What comes next on the way to a known VM.
pub(super) fn plan(snapshot: &Snapshot, policy: &Policy) -> Plan<Action> {
    let mut plan = Plan::default();
    if snapshot.machine.phase() == MachinePhase::Failed {
        plan.wait("its deletion, for a failed Machine gets no VM any more", None);
        return plan;
    }
    if snapshot.vm == VmView::Deleted {
        give_up_stale(&mut plan, snapshot);
        return plan;
    }
    if let Some((call, error, until)) = pending_failure(snapshot, policy) {
        fail(&mut plan, snapshot, policy, call, error, until);
        return plan;
    }
    if let Some(vm) = snapshot.vm.vm() {
        settle(&mut plan, snapshot, policy, vm);
        return plan;
    }
    if usable_class(&mut plan, snapshot).is_none() || !is_secret_ready(&mut plan, snapshot) {
        return plan;
    }
    match snapshot.vm {
        VmView::NotFound => missing(&mut plan, snapshot, policy),
        _ => {
            plan.then(Action::AskVm, "a VM may be there already");
        }
    }
    plan
}

/// The driver certainly knows no VM.
fn missing(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy) {
    let machine = &snapshot.machine;
    let id = &machine.spec.provider_id;
    if !id.is_empty() {
        let node_name = machine.node_name().unwrap_or_default();
        if snapshot.has_target() && node_name.is_empty() {
            let error = DriverError::new(Code::NotFound, format!("the VM {id} is not there"));
            return fail(plan, snapshot, policy, Call::Ask, &error, after(snapshot.now, ASK_AGAIN));
        }
        let vm = Vm { provider_id: id.clone(), node_name: node_name.to_owned(), ..Vm::default() };
        return settle(plan, snapshot, policy, &vm);
    }
    if !may_create(machine.phase()) {
        plan.wait(
            "the VM to be found by the driver: the Machine had one, so none is made",
            Some(after(snapshot.now, ASK_AGAIN)),
        );
        return;
    }
    if snapshot.has_target() && snapshot.now >= policy.creation_deadline_of(machine) {
        return expire(plan, snapshot, policy);
    }
    if is_token_ready(plan, snapshot, policy) {
        plan.then(Action::CreateVm, "the driver knows no VM of this Machine");
    }
}

/// The VM is known: store who it is, finish it, say so.
fn settle(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy, vm: &Vm) {
    let machine = &snapshot.machine;
    let is_unlinked = snapshot.has_target() && machine.node_name().is_none();
    let is_stale = is_unlinked && snapshot.is_node_of_another_vm(vm);
    let may_link = is_unlinked && !is_stale && snapshot.node != NodeView::Unknown;
    let mut identity = Value::Null;
    if machine.spec.provider_id.is_empty() {
        set(&mut identity, &["spec", "providerID"], vm.provider_id.as_str());
    }
    if may_link && !vm.node_name.is_empty() {
        set(&mut identity, &["metadata", "labels", labels::NODE], vm.node_name.as_str());
    }
    if machine.metadata.annotations.as_ref().and_then(|map| map.get(labels::PRIORITY)).is_none_or(String::is_empty) {
        set(&mut identity, &["metadata", "annotations", labels::PRIORITY], labels::DEFAULT_PRIORITY.to_string());
    }
    if !identity.is_null() {
        set(&mut identity, &["metadata", "managedFields"], untracked());
        let reason = "who the VM is must be known before anything else is done";
        match snapshot.vm {
            VmView::Created(_) => plan.then_noting(
                Action::PatchMachine(identity),
                reason,
                Note::normal(EventReason::Created, format!("VM {} was created", vm.provider_id)),
            ),
            _ => plan.then(Action::PatchMachine(identity), reason),
        };
        return;
    }
    if is_stale {
        return match snapshot.memory.failure_of(Call::Delete) {
            Some(_) => give_up_stale(plan, snapshot),
            None => {
                let reason = format!("the Node {} belongs to an earlier VM, so this one cannot join", vm.node_name);
                plan.then(Action::DeleteVm, reason);
            }
        };
    }
    if is_unlinked && vm.node_name.is_empty() {
        let error = DriverError::new(Code::Internal, "the driver answered with a VM that has no node name");
        return fail(plan, snapshot, policy, Call::Ask, &error, after(snapshot.now, ASK_AGAIN));
    }
    if is_unlinked {
        plan.wait("the Nodes of the target cluster to be known", None);
        return;
    }
    if matches!(snapshot.vm, VmView::Created(_) | VmView::Uninitialized(_)) {
        let Some(driver) = usable_class(plan, snapshot) else { return };
        if driver.initialize {
            if is_secret_ready(plan, snapshot) && is_token_ready(plan, snapshot, policy) {
                plan.then(Action::InitializeVm, "the VM exists and is not finished");
            }
            return;
        }
    }
    if is_unsettled(machine.phase()) {
        announce(plan, snapshot, policy, vm);
    }
}

/// Ends the record of who wrote which field, as the API server offers it. In an object that only controllers write it says
/// nothing, and to keep it is a quarter of the work of each write.
fn untracked() -> Value {
    json!([{}])
}

/// The VM is there. If its Node serves already, `Pending` is skipped.
fn announce(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy, vm: &Vm) {
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
            "the VM is there, and without a target cluster nothing is to follow",
        );
        return;
    }
    if health::may_serve(snapshot, policy) {
        return health::join(plan, snapshot, next);
    }
    let text = "Creating machine on cloud provider";
    next.last_operation = status::operation(OperationType::Create, OperationState::Processing, text, now);
    status::enter(&mut next, MachinePhase::Pending, true, now);
    plan.then(Action::WriteStatus(Box::new(next)), "the VM is there and has to join the cluster");
}

fn give_up_stale(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let mut next = status::stored(&snapshot.machine);
    next.last_operation = status::failed_operation(OperationType::Create, None, "VM using old node obj", snapshot.now);
    status::enter(&mut next, MachinePhase::Failed, false, snapshot.now);
    let note = Note::warning(EventReason::Failed, "the VM has the name of a Node that an earlier VM left behind");
    plan.then_noting(Action::WriteStatus(Box::new(next)), "a Node object must not pass from one VM to another", note);
}

/// Too late to begin: what is created now could not join in time.
fn expire(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy) {
    let mut next = status::stored(&snapshot.machine);
    // The reason of the last failure is worth more than the time that has passed since.
    if next.last_operation.state != Some(OperationState::Failed) {
        let text = late_text(snapshot, policy);
        next.last_operation = status::failed_operation(OperationType::Create, None, text, snapshot.now);
    }
    status::enter(&mut next, MachinePhase::Failed, false, snapshot.now);
    let note = Note::warning(EventReason::Failed, late_text(snapshot, policy));
    plan.then_noting(Action::WriteStatus(Box::new(next)), "the creation timeout has passed", note);
}

/// What is said of a Machine that did not join in time.
pub(super) fn late_text(snapshot: &Snapshot, policy: &Policy) -> String {
    let timeout = policy.creation_timeout_of(&snapshot.machine);
    format!("Machine {} failed to join the cluster in {timeout} minutes.", snapshot.name())
}

/// A call of the creation flow that failed and must not be repeated yet.
fn pending_failure<'a>(snapshot: &'a Snapshot, policy: &Policy) -> Option<(Call, &'a DriverError, Timestamp)> {
    [Call::Ask, Call::Create, Call::Initialize]
        .into_iter()
        .filter_map(|call| {
            let failure = snapshot.memory.failure_of(call)?;
            Some((call, &failure.error, retry::retry_at(call, failure, policy, false)))
        })
        .filter(|(_, _, until)| snapshot.now < *until)
        .max_by_key(|(_, _, until)| *until)
}

/// Records a failure of the driver and waits for the next try, or for the creation timeout.
fn fail(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    policy: &Policy,
    call: Call,
    error: &DriverError,
    until: Timestamp,
) {
    let (machine, now) = (&snapshot.machine, snapshot.now);
    let deadline = policy.creation_deadline_of(machine);
    let is_late = now >= deadline;
    if may_create(machine.phase()) {
        let next = failed_status(snapshot, call, error, is_late);
        if status::is_news(&status::stored(machine), &next, now) {
            let reason = if is_late { EventReason::Failed } else { EventReason::CreateFailed };
            let note = Note::warning(reason, next.last_operation.description.clone());
            plan.then_noting(Action::WriteStatus(Box::new(next)), format!("the driver answered {}", error.code), note);
        }
    }
    let until = if is_late { until } else { until.min(deadline) };
    plan.wait(format!("the next try: {error}"), Some(until));
}

fn failed_status(snapshot: &Snapshot, call: Call, error: &DriverError, is_late: bool) -> MachineStatus {
    let now = snapshot.now;
    let mut next = status::stored(&snapshot.machine);
    let text = match call {
        Call::Initialize => format!("Provider error: {error}. Initialize VM Instance"),
        Call::Ask | Call::Create | Call::Delete => format!("Cloud provider message - {error}"),
    };
    let keeps_state = call == Call::Initialize || error.code.is_transient() || error.code == Code::ResourceExhausted;
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

/// What the driver of the class can do; `None` with a wait if the class cannot be used.
fn usable_class(plan: &mut Plan<Action>, snapshot: &Snapshot) -> Option<Capabilities> {
    let name = &snapshot.machine.spec.class.name;
    match &snapshot.class {
        ClassView::Unknown => {
            plan.wait("the MachineClasses to be known", None);
        }
        ClassView::Missing => {
            wait_openly(plan, snapshot, &format!("the MachineClass {name}, which does not exist"), None);
        }
        ClassView::Unserved(class) => {
            let what = format!("a driver for the provider {:?} of the MachineClass {name}", class.provider);
            wait_openly(plan, snapshot, &what, None);
        }
        ClassView::Present { class, .. } if !finalizer::has(&class.metadata, labels::FINALIZER) => {
            let until = after(snapshot.now, LOOK_AGAIN);
            plan.wait(format!("the MachineClass {name} to get its finalizer"), Some(until));
        }
        ClassView::Present { class, driver } => match flaw_of(class) {
            Some(flaw) => wait_openly(plan, snapshot, &format!("the MachineClass {name} to be repaired: {flaw}"), None),
            None => return Some(*driver),
        },
    }
    None
}

/// Waits for something that somebody has to put right, and says so where they look.
fn wait_openly(plan: &mut Plan<Action>, snapshot: &Snapshot, what: &str, until: Option<Timestamp>) {
    let (stored, now) = (status::stored(&snapshot.machine), snapshot.now);
    let text = format!("Waiting for {what}");
    let mut next = stored.clone();
    next.last_operation = status::operation(OperationType::Create, OperationState::Processing, text.as_str(), now);
    if status::is_news(&stored, &next, now) {
        let note = Note::warning(EventReason::Waiting, text);
        plan.then_noting(Action::WriteStatus(Box::new(next)), "others must see what the creation waits for", note);
    }
    plan.wait(what, until);
}

/// What the autoscaler would stumble over.
fn flaw_of(class: &MachineClass) -> Option<String> {
    let template = class.node_template.as_ref()?;
    let missing_capacity = ["cpu", "gpu", "memory"].into_iter().find(|key| !template.capacity.contains_key(*key));
    if let Some(key) = missing_capacity {
        return Some(format!("nodeTemplate.capacity has no {key}"));
    }
    [("instanceType", &template.instance_type), ("region", &template.region), ("zone", &template.zone)]
        .into_iter()
        .find(|(_, value)| value.is_empty())
        .map(|(field, _)| format!("nodeTemplate.{field} is empty"))
}

/// Whether the Secrets were read and are good enough to boot from; asks for them or waits otherwise.
fn is_secret_ready(plan: &mut Plan<Action>, snapshot: &Snapshot) -> bool {
    match &snapshot.secret {
        SecretView::NotRead => {
            plan.then(Action::ReadSecret, "the driver needs credentials and user data");
        }
        SecretView::Failed(error) => {
            let again = Some(after(snapshot.now, LOOK_AGAIN));
            wait_openly(plan, snapshot, &format!("the Secrets of the class to be readable: {error}"), again);
        }
        SecretView::Read(facts) if facts.has_user_data => return true,
        SecretView::Read(facts) if facts.missing.is_empty() => {
            wait_openly(plan, snapshot, "the key userData in the Secrets of the class", None);
        }
        SecretView::Read(facts) => {
            let missing = facts.missing.join(", ");
            wait_openly(plan, snapshot, &format!("the Secret {missing}, which does not exist"), None);
        }
    }
    false
}

/// Whether the bootstrap token is there, if one is wanted; asks for it or waits otherwise.
fn is_token_ready(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy) -> bool {
    let is_wanted = matches!(&snapshot.secret, SecretView::Read(facts) if facts.wants_token);
    if !is_wanted || !snapshot.has_target() {
        return true;
    }
    match &snapshot.token {
        TokenView::Ensured => return true,
        TokenView::Failed(error) => {
            let again = Some(after(snapshot.now, LOOK_AGAIN));
            wait_openly(plan, snapshot, &format!("a bootstrap token: {error}"), again);
        }
        TokenView::NotEnsured => {
            let timeout = policy.creation_timeout_of(&snapshot.machine).as_signed();
            let token = BootstrapToken {
                id: token::id_of(&snapshot.machine),
                expiration: after(snapshot.now, timeout),
                auth_extra_groups: policy.bootstrap_token_groups.clone(),
                description: format!("Lets the machine {} join the cluster", snapshot.name()),
            };
            plan.then(Action::EnsureBootstrapToken(token), "the VM joins with a token of its own");
        }
    }
    false
}
