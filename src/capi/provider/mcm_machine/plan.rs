use jiff::SignedDuration;

use super::{Action, Snapshot, membership::LoadBalancerMembership, native, parts::MachineConditionVerdicts, status};
use crate::{
    object::{
        gate::{self, GatedSnapshot, gate, report},
        view::ObjectView,
    },
    provider::class::ClassResolution,
};
use mcm_api::reasons::ProviderReason;
use mcm_controllers::object::finalizer;
use mcm_conversion::types::names;
use mcm_rules::plan::{Plan, PlanInput, SentPatch, UndoneWrite, WaitKind};

/// Time until the infrastructure of another provider is read again for a class that needs it.
const NETWORK_PERIOD: SignedDuration = SignedDuration::from_secs(15);

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self)
    }

    fn sent_patch<'a>(&'a self, action: &'a Action) -> Option<SentPatch<'a>> {
        match action {
            Action::PatchSelf(patch) => Some(SentPatch::new(&*self.object, patch)),
            Action::PatchNative { machine, patch } => Some(SentPatch::new(&**machine, patch)),
            Action::PatchClass { class, patch } => Some(SentPatch::new(&**class, patch)),
            _ => None,
        }
    }

    fn show_undone(&self, plan: &mut Plan<Action>, undone: &[UndoneWrite]) {
        gate::show_undone(self, plan, undone);
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus(_))
    }
}

/// Plans the next steps of an MCMMachine. A plan has at most one write of the object itself.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    gate(snapshot, tear_down).unwrap_or_else(|| {
        let mut plan = Plan::default();
        provide(&mut plan, snapshot);
        plan
    })
}

/// Writes the native Machine, the ID of its VM, and the status, in this order.
fn provide(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let class = snapshot.described();
    let parts = MachineConditionVerdicts::from_snapshot(snapshot, &class);
    match snapshot.own_native() {
        Some(machine) => {
            if read_network(plan, snapshot, &class) || restore_class(plan, snapshot, &class) {
                return;
            }
            if let Some((action, reason)) = snapshot.applied_in_place(&class) {
                plan.then(action, reason);
                return;
            }
            if let Some(patch) = native::healed(snapshot, machine) {
                let action = Action::PatchNative { machine: machine.clone(), patch };
                plan.then(action, "the MCM Machine lacks its owner or a label");
                return;
            }
            if let Some(id) = snapshot.node_form(&class).filter(|_| snapshot.object.spec.provider_id.is_empty()) {
                let patch = serde_json::json!({ "spec": { "providerID": id } });
                plan.then(Action::PatchSelf(patch), "the ID of the VM is stored before anything else");
                return;
            }
        }
        None if parts.may_create() && take_over(plan, snapshot) => return,
        None if parts.may_create() && is_free(snapshot) && !snapshot.is_member() => {
            if read_network(plan, snapshot, &class) {
                return;
            }
            create(plan, snapshot, &class);
            return;
        }
        None => {}
    }
    show_refusal(plan, &class);
    let summary = parts.summary();
    let has_news = report(plan, snapshot, status::current(snapshot, &class, &parts), "its conditions changed");
    if !has_news {
        parts.membership.proceed(plan);
    }
    if !summary.is_true() {
        let missing = if summary.message.is_empty() { summary.reason } else { summary.message };
        // The infrastructure of another provider is not watched.
        let due = snapshot.session.network.as_ref().and_then(|_| snapshot.now.checked_add(NETWORK_PERIOD).ok());
        plan.wait(WaitKind::Infrastructure, format!("its VM: {missing}"), due);
    }
}

/// A refused update in place ends only with another VM, which core or a user requests.
fn show_refusal(plan: &mut Plan<Action>, class: &ClassResolution) {
    if let ClassResolution::Problem(refusal) = class
        && refusal.reason == ProviderReason::NewVmRequired.as_str()
    {
        plan.wait(WaitKind::Class, format!("another VM: {}", refusal.message), None);
    }
}

/// The network of a class that names none is read before the class is created.
fn read_network(plan: &mut Plan<Action>, snapshot: &Snapshot, class: &ClassResolution) -> bool {
    let Some(action) = snapshot.missing_network(class) else { return false };
    plan.then(action, "the class leaves its network to the Cluster");
    true
}

/// A former MCMMachine of this name was removed by force, and its native Machine keeps the VM that the object names.
fn take_over(plan: &mut Plan<Action>, snapshot: &Snapshot) -> bool {
    let Some(machine) = snapshot.native.known() else { return false };
    let Some(patch) = native::taken_over(snapshot, machine) else { return false };
    let action = Action::PatchNative { machine: machine.clone(), patch };
    plan.then(action, "the object takes over its VM from an earlier object of this name");
    true
}

/// None of the needed names is in use, and no VM was lost.
fn is_free(snapshot: &Snapshot) -> bool {
    matches!(snapshot.native, ObjectView::Missing)
        && snapshot.rival.is_none()
        && !snapshot.is_own_class_taken()
        && !snapshot.is_vm_lost()
}

fn create(plan: &mut Plan<Action>, snapshot: &Snapshot, class: &ClassResolution) {
    let ClassResolution::Usable { name, content, is_inline } = class else { return };
    if !snapshot.object.spec.provider_id.is_empty() && !snapshot.session.has_read_natives {
        plan.then(Action::ReadNatives, "another MCM Machine may have just adopted the VM");
        return;
    }
    if *is_inline {
        match &snapshot.own_class {
            ObjectView::Present(_) => {}
            ObjectView::Unknown => {
                plan.wait(WaitKind::ClassUnknown, format!("MachineClass {name} to become readable"), None);
                return;
            }
            ObjectView::Missing if matches!(snapshot.infrastructure, ObjectView::Unknown) => {
                plan.wait(WaitKind::Unreadable, "the MCMCluster to become readable", None);
                return;
            }
            ObjectView::Missing => {
                let class = Action::CreateClass(Box::new(native::class(snapshot, content)));
                plan.then(class, "the object describes the VM itself");
                return;
            }
        }
    }
    let reason = match snapshot.object.spec.provider_id.as_str() {
        "" => "the Machine has its bootstrap data and no VM yet",
        _ => "the VM exists and is adopted",
    };
    plan.then(Action::CreateNative(Box::new(native::machine(snapshot, name, content))), reason);
}

/// Restores the class that the object describes, if a user removed it by force: without it the VM can be neither seen
/// nor deleted.
fn restore_class(plan: &mut Plan<Action>, snapshot: &Snapshot, class: &ClassResolution) -> bool {
    let ClassResolution::Usable { content, is_inline: true, .. } = class else { return false };
    let is_gone = matches!(snapshot.own_class, ObjectView::Missing) && !snapshot.is_member();
    if is_gone {
        let class = Action::CreateClass(Box::new(native::class(snapshot, content)));
        plan.then(class, "the class that the object describes was deleted");
    }
    is_gone
}

/// Deletes the native Machine with its VM, then removes the finalizer.
fn tear_down(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let meta = &snapshot.object.metadata;
    let Some(release) = finalizer::remove(meta, names::MACHINE_FINALIZER) else {
        if meta.finalizers.as_ref().is_some_and(|others| !others.is_empty()) {
            plan.wait(WaitKind::Finalizers, "other controllers to remove their finalizers", None);
        }
        return;
    };
    let class = snapshot.described();
    if matches!(snapshot.native, ObjectView::Unknown) {
        plan.wait(WaitKind::Unreadable, "the MCM Machine to become readable", None);
        return;
    }
    let has_native = snapshot.own_native().is_some();
    if has_native && (read_network(plan, snapshot, &class) || restore_class(plan, snapshot, &class)) {
        return;
    }
    let membership = LoadBalancerMembership::from_snapshot(snapshot, false);
    if has_native || membership.has_changed(snapshot) {
        let text = "the MCM Machine is being deleted";
        if report(plan, snapshot, status::deleting(snapshot, &class, text, &membership), "it is being deleted") {
            return;
        }
    }
    if membership.proceed(plan) {
        return;
    }
    if let Some(machine) = snapshot.own_native() {
        if let Some(patch) = native::released(snapshot, machine) {
            let action = Action::PatchNative { machine: machine.clone(), patch };
            plan.then(action, "its VM is deleted with it, and Cluster API core has already drained the Node");
        }
        if machine.metadata.deletion_timestamp.is_none() {
            plan.then(Action::DeleteNative(machine.clone()), "the VM is deleted before the object");
        }
        plan.wait(WaitKind::MachineDeletion, "the VM to be deleted", None);
        return;
    }
    // A named VM that was never adopted is deleted like any other, through a native Machine, unless another object owns
    // it.
    let was_taken = snapshot.stored().machine_ref.is_some();
    let is_untaken = !was_taken
        && !snapshot.is_member()
        && snapshot.rival.is_none()
        && matches!(snapshot.native, ObjectView::Missing);
    if !snapshot.object.spec.provider_id.is_empty() && is_untaken {
        match &class {
            ClassResolution::Usable { .. } if read_network(plan, snapshot, &class) => {}
            ClassResolution::Usable { .. } if is_free(snapshot) => create(plan, snapshot, &class),
            ClassResolution::Usable { .. } => {
                plan.wait(WaitKind::Class, "the name of its MachineClass to become free", None);
            }
            ClassResolution::Problem(problem) => {
                let next = status::deleting(
                    snapshot,
                    &class,
                    &problem.message,
                    &LoadBalancerMembership::from_snapshot(snapshot, false),
                );
                report(plan, snapshot, next, "the VM cannot be deleted without its class");
                plan.wait(WaitKind::Class, problem.message.clone(), None);
            }
        }
        return;
    }
    if !snapshot.session.is_native_gone && matches!(snapshot.native, ObjectView::Missing) {
        plan.then(Action::ReadNative, "the cache may be stale, and the VM must not be left behind");
        return;
    }
    plan.then(Action::PatchSelf(release), "there is no MCM Machine and therefore no VM");
}
