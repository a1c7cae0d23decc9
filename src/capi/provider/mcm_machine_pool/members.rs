//! Pools whose VMs are also Machines of Cluster API: core creates a Machine for each MCMMachine. The native set still
//! chooses the machines to delete; core drains them, so each is deleted through its Machine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;
use serde_json::json;

use super::{Action, MachinePoolMember, Snapshot, native::labels_of};
use crate::object::view::ObjectView;
use mcm_api::{labels, machine::Machine as NativeMachine};
use mcm_controllers::object::owner;
use mcm_conversion::types::{ClassRef, MCMMachine, MCMMachineSpec, Machine, names};
use mcm_rules::plan::{Plan, WaitKind};

/// Priority of native machines that are deleted before others: lower than the default of 3.
const FIRST: &str = "1";

/// Copies the annotation `delete-machine` to the native Machine before the number of machines changes.
pub(super) fn choose(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    for (name, machine) in &snapshot.machines {
        let Some(of_core) = snapshot.members.get(name).and_then(|member| member.machine.known()) else { continue };
        let is_chosen = has_annotation(&of_core.metadata, names::DELETE_MACHINE);
        let priority = machine.annotations().get(labels::PRIORITY).map(String::as_str);
        if is_chosen == (priority == Some(FIRST)) {
            continue;
        }
        let patch = json!({ "metadata": { "annotations": { labels::PRIORITY: is_chosen.then_some(FIRST) } } });
        let action = Action::PatchNative { machine: machine.clone(), patch };
        plan.then(action, "its Machine shows whether it is deleted first");
    }
}

/// Creates an MCMMachine for each native Machine.
pub(super) fn create(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    for (name, machine) in &snapshot.machines {
        match snapshot.members.get(name) {
            None if machine.is_terminating() => {}
            None => {
                let member = Action::CreateMember(Box::new(member(snapshot, machine)));
                plan.then(member, "Cluster API core creates a Machine for it");
            }
            Some(member) if !is_own(snapshot, member) => {
                plan.wait(
                    WaitKind::Infrastructure,
                    format!("MCMMachine {name}, which does not belong to the pool, to be deleted"),
                    None,
                );
            }
            Some(member) => keep_filter(plan, snapshot, member),
        }
    }
}

/// Copies the watch filter of the pool to an MCMMachine.
fn keep_filter(plan: &mut Plan<Action>, snapshot: &Snapshot, member: &MachinePoolMember) {
    let Some(filter) = &snapshot.watch_filter else { return };
    if member.object.labels().get(names::WATCH_FILTER) != Some(filter) {
        let patch = json!({ "metadata": { "labels": { (names::WATCH_FILTER): filter } } });
        let action = Action::PatchMember { member: member.object.clone(), patch };
        plan.then(action, "the label of its manager changed");
    }
}

/// Deletes the Machine of a terminating or deleted native Machine. An MCMMachine without a Machine waits until core has
/// created it. For a terminating pool core creates none any more, so the MCMMachine itself is deleted and the native
/// controllers drain its Node.
pub(super) fn delete(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let is_last = snapshot.object.metadata.deletion_timestamp.is_some() || snapshot.is_abandoned();
    for (name, member) in snapshot.members.iter().filter(|(_, member)| is_own(snapshot, member)) {
        let stays = snapshot.machines.get(name).is_some_and(|machine| !machine.is_terminating());
        let is_unknown = snapshot.unreadable_machines.contains(name);
        if stays || is_unknown || member.object.metadata.deletion_timestamp.is_some() {
            continue;
        }
        match &member.machine {
            ObjectView::Present(machine) if machine.metadata.deletion_timestamp.is_none() => {
                plan.then(
                    Action::DeleteMachine(machine.clone()),
                    "Cluster API core drains the Node before the VM is deleted",
                );
            }
            ObjectView::Present(_) => {
                plan.wait(
                    WaitKind::MachineDeletion,
                    format!("Cluster API core to drain the Node of Machine {name}"),
                    None,
                );
            }
            ObjectView::Missing if is_last && snapshot.session.has_read_machines => {
                let action = Action::DeleteMember(member.object.clone());
                plan.then(action, "Cluster API core creates no Machine for a pool that is being deleted");
            }
            ObjectView::Missing if is_last => {
                if !plan.steps.iter().any(|step| step.action == Action::ReadMachines) {
                    plan.then(Action::ReadMachines, "Cluster API core may have just created its Machine");
                }
            }
            ObjectView::Missing | ObjectView::Unknown => {
                plan.wait(
                    WaitKind::Owner,
                    format!("Cluster API core to create Machine {name}, so that it can be deleted"),
                    None,
                );
            }
        }
    }
}

fn is_own(snapshot: &Snapshot, member: &MachinePoolMember) -> bool {
    member.object.labels().get(labels::POOL) == Some(&snapshot.object.name_any())
}

fn has_annotation(meta: &ObjectMeta, annotation: &str) -> bool {
    meta.annotations.as_ref().is_some_and(|all| all.contains_key(annotation))
}

/// The pool is an owner but not the controller, which is the Machine.
fn member(snapshot: &Snapshot, machine: &NativeMachine) -> MCMMachine {
    let pool = snapshot.owner.known().map(|owner| owner.name_any()).unwrap_or_default();
    let mut labels = labels_of(snapshot);
    labels.insert(names::POOL_NAME.to_owned(), names::label_value(&pool));
    let owner = owner::reference_to(snapshot.object.as_ref()).map(|reference| OwnerReference {
        controller: None,
        block_owner_deletion: None,
        ..reference
    });
    MCMMachine {
        metadata: ObjectMeta {
            name: Some(machine.name_any()),
            namespace: machine.namespace(),
            labels: Some(labels),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: MCMMachineSpec {
            machine_class_ref: ClassRef { name: machine.spec.class.name.clone() },
            ..MCMMachineSpec::default()
        },
        status: None,
    }
}

/// The Machine of a member, if core created it.
pub(super) fn machine_of(member: &MCMMachine, machine: ObjectView<Machine>) -> ObjectView<Machine> {
    match machine {
        ObjectView::Present(machine)
            if owner::controller_of(&member.metadata)
                .is_some_and(|one| Some(&one.uid) != machine.metadata.uid.as_ref()) =>
        {
            ObjectView::Missing
        }
        other => other,
    }
}
