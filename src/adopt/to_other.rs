//! From mcm to another infrastructure provider: core keeps the machines.
//!
//! ```text
//! before   MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ MCMMachine ─▶ native Machine ─▶ VM
//! after    MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ AWSMachine ────────────────────▶ VM
//! ```
//!
//! The other provider finds the VM by its ID, with which its object is created. So it never creates one.

use super::{
    object::{Kind, UnstructuredObject},
    snapshot::Snapshot,
    step::{RemainingWork, Step, detach, pause_each, paused, resume, resume_each},
    swap, to_capi,
};
use mcm_conversion::types::MigrationSide;

/// Steps until the authority is switched. Each can be undone.
pub const BEFORE: [Step; 4] = [
    Step { title: "pause the CAPI objects", todo: pause_all, undo: Some(resume_all) },
    Step { title: "remove the tags of their class from the VMs", todo: swap::untag, undo: Some(swap::tag) },
    Step { title: "create the objects of the other provider, paused", todo: describe, undo: Some(forget) },
    Step { title: "switch the references to the objects of the other provider", todo: refer, undo: Some(refer_back) },
];

/// Steps after the switch.
pub const AFTER: [Step; 2] = [
    Step { title: "remove the MCMMachines and MCM Machines", todo: remove, undo: None },
    Step { title: "unpause the objects of Cluster API and of the other provider", todo: start, undo: None },
];

/// Step 1. Core and the provider mcm confirm that each object is paused.
fn pause_all(s: &Snapshot) -> RemainingWork {
    let mut todo = pause_each(s, &[swap::of_core(s), ours(s)].concat());
    swap::hold(&mut todo, s);
    todo
}

fn resume_all(s: &Snapshot) -> RemainingWork {
    resume_each(&[ours(s), swap::of_core(s)].concat()).then(|| swap::release(s))
}

/// Step 3. Each object has the ID of its VM and no owner, without which its controller does nothing.
fn describe(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let Some(template) = swap::other_template(s) else {
        let made = swap::template_made(s).objects;
        for (kind, template) in made.into_iter().filter_map(|made| Some((Kind::from_value(&made)?, made))) {
            todo.make(s, kind, &paused(kind, template, s));
        }
        todo.expect(!todo.actions.is_empty(), "the class to be convertible again, or mcm adopt abort");
        return todo;
    };
    let kind = swap::machine_kind_of(template.kind);
    for member in s.recorded() {
        match member.infra {
            Some(infra) => todo.make(s, kind, &paused(kind, swap::infrastructure(infra, kind, template), s)),
            None => todo.expect(false, format!("MCMMachine {}", member.name)),
        }
    }
    todo
}

fn forget(s: &Snapshot) -> RemainingWork {
    swap::other_template(s).map(|template| swap::forget(s, template.kind)).unwrap_or_default()
}

/// Step 4.
fn refer(s: &Snapshot) -> RemainingWork {
    swap::other_template(s).map(|template| swap::refer(s, template.kind)).unwrap_or_default()
}

fn refer_back(s: &Snapshot) -> RemainingWork {
    swap::refer(s, Kind::InfraTemplate)
}

/// First after the switch. Their template and their class stay.
fn remove(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    detach(&mut todo, s.recorded().flat_map(|member| [member.native, member.infra]).flatten());
    todo
}

/// Last: core makes its Machines owners of the objects, which starts the other provider.
fn start(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    for other in s.recorded().filter_map(|member| member.other) {
        todo.want(other, &resume(other));
    }
    let todo = todo.then(|| to_capi::start_core(s));
    let todo = todo.then(|| {
        let mut todo = RemainingWork::default();
        for member in s.recorded().filter(|member| member.node.is_some()) {
            let text = format!("the other provider to report {} as ready", member.name);
            todo.expect(member.other.is_some_and(is_ready), text);
        }
        todo
    });
    todo.then(|| swap::release(s))
}

/// As both versions of the contract express it.
fn is_ready(other: &UnstructuredObject) -> bool {
    let status = &other.value["status"];
    status["ready"] == true || status["initialization"]["provisioned"] == true
}

/// The objects of the provider mcm.
pub fn ours(s: &Snapshot) -> Vec<&UnstructuredObject> {
    let members = s.members_of(MigrationSide::ClusterApi);
    members.into_iter().flat_map(|member| [member.infra, member.native]).flatten().collect()
}
