//! From another infrastructure provider to mcm: core keeps the machines.
//!
//! ```text
//! before   MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ AWSMachine ────────────────────▶ VM
//! after    MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ MCMMachine ─▶ native Machine ─▶ VM
//! ```

use serde_json::json;

use super::{
    Kind, Snapshot, hold,
    start::start_under_core,
    step::{RemainingWork, detach, each, expect_paused, make, make_each, wait, want},
    swap,
};

/// Creates class, template and MCMMachines. An MCMMachine without an owner has no controller.
pub fn describe(s: &Snapshot) -> RemainingWork {
    let Some(wanted) = swap::template_wanted(s) else {
        return wait("the template to be convertible again, or mcm adopt abort");
    };
    let class = make_each(s, &[Kind::Class], &swap::class_made(s).objects);
    class.and(match swap::own_template(s) {
        None => make(s, Kind::InfraTemplate, &wanted),
        Some(template) => swap::describe(s, template, "the infrastructure object", |member| member.other),
    })
}

/// Undoes [`describe`]. The class stays, because other machines may use it by now.
pub fn forget(s: &Snapshot) -> RemainingWork {
    swap::forget(s, Kind::InfraTemplate)
}

/// Switches the references. The provider mcm confirms that it runs and that each MCMMachine is paused, before anything refers to
/// one.
pub fn refer(s: &Snapshot) -> RemainingWork {
    let todo = each(s.recorded(), |member| match (member.machine, member.infra) {
        (Some(machine), Some(infra)) => {
            let owner = json!({ "metadata": { "ownerReferences": machine.as_controller() } });
            want(infra, &owner).and(expect_paused([infra]))
        }
        _ => wait(format!("Machine {} and its MCMMachine", member.name)),
    });
    todo.then(|| swap::refer(s, Kind::InfraTemplate))
}

/// Undoes [`refer`].
pub fn refer_back(s: &Snapshot) -> RemainingWork {
    match swap::other_template(s) {
        Some(template) => swap::refer(s, template.kind),
        None => wait(format!("the template {} of the other provider", swap::template_name(s))),
    }
}

/// Removes the objects of the other provider, to which there are no references any more. Their templates stay.
pub fn remove(s: &Snapshot) -> RemainingWork {
    detach(s.recorded().filter_map(|member| member.other))
}

/// Resumes from the MCMMachines, which adopt the VMs, up to the deployment.
pub fn start(s: &Snapshot) -> RemainingWork {
    start_under_core(s).then(|| hold::release_classes(s))
}
