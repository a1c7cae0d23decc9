//! From mcm to another infrastructure provider: core keeps the machines.
//!
//! ```text
//! before   MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ MCMMachine ─▶ native Machine ─▶ VM
//! after    MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ AWSMachine ────────────────────▶ VM
//! ```
//!
//! The other provider finds the VM by its ID, with which its object is created. So it never creates one.

use super::{
    Kind, Snapshot, UnstructuredObject, hold,
    start::start_core,
    step::{RemainingWork, detach, each, expect, make, resume, wait},
    swap,
};

/// Creates the objects of the other provider. Each has the ID of its VM and no owner, without which its controller does nothing.
pub fn describe(s: &Snapshot) -> RemainingWork {
    if let Some(template) = swap::other_template(s) {
        return swap::describe(s, template, "MCMMachine", |member| member.infra);
    }
    let made = swap::template_made(s).objects;
    let todo = each(&made, |made| Kind::from_value(made).map(|kind| make(s, kind, made)).unwrap_or_default());
    if todo.is_done() { wait("the class to be convertible again, or mcm adopt abort") } else { todo }
}

/// Undoes [`describe`].
pub fn forget(s: &Snapshot) -> RemainingWork {
    swap::other_template(s).map(|template| swap::forget(s, template.kind)).unwrap_or_default()
}

/// Switches the references.
pub fn refer(s: &Snapshot) -> RemainingWork {
    swap::other_template(s).map(|template| swap::refer(s, template.kind)).unwrap_or_default()
}

/// Undoes [`refer`].
pub fn refer_back(s: &Snapshot) -> RemainingWork {
    swap::refer(s, Kind::InfraTemplate)
}

/// Removes MCMMachines and native Machines. Their template and their class stay.
pub fn remove(s: &Snapshot) -> RemainingWork {
    detach(s.recorded().flat_map(|member| [member.native, member.infra]).flatten())
}

/// Resumes core, which makes its Machines owners of the objects; that starts the other provider.
pub fn start(s: &Snapshot) -> RemainingWork {
    let others = s.recorded().filter_map(|member| member.other);
    let surviving = s.recorded().filter(|member| member.node.is_some());
    let reported = || {
        each(surviving, |member| {
            let text = format!("the other provider to report {} as ready", member.name);
            expect(member.other.is_some_and(is_ready), text)
        })
    };
    each(others, resume).then(|| start_core(s)).then(reported).then(|| hold::release_classes(s))
}

/// As both versions of the contract express it.
fn is_ready(other: &UnstructuredObject) -> bool {
    let status = &other.value["status"];
    status["ready"] == true || status["initialization"]["provisioned"] == true
}
