//! From another infrastructure provider to mcm: core keeps the machines.
//!
//! ```text
//! before   MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ AWSMachine ────────────────────▶ VM
//! after    MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ MCMMachine ─▶ native Machine ─▶ VM
//! ```

use serde_json::json;

use super::{
    object::{Kind, UnstructuredObject},
    snapshot::Snapshot,
    step::{RemainingWork, Step, detach, pause_each, paused, resume_each},
    swap, to_capi,
};
use mcm_conversion::types::MigrationSide;

/// Steps until the authority is switched. Each can be undone.
pub const BEFORE: [Step; 3] = [
    Step { title: "pause the CAPI objects", todo: pause_all, undo: Some(resume_all) },
    Step { title: "create class, template and MCMMachines, paused", todo: describe, undo: Some(forget) },
    Step { title: "switch the references to the MCMMachines", todo: refer, undo: Some(refer_back) },
];

/// Steps after the switch.
pub const AFTER: [Step; 3] = [
    Step { title: "remove the objects of the other provider", todo: remove, undo: None },
    Step { title: "tag the VMs as their class specifies", todo: swap::tag, undo: None },
    Step { title: "unpause the CAPI objects", todo: start, undo: None },
];

/// Step 1. Core confirms that each object is paused.
fn pause_all(s: &Snapshot) -> RemainingWork {
    let mut todo = pause_each(s, &[swap::of_core(s), others(s)].concat());
    swap::hold(&mut todo, s);
    todo
}

/// The class stays, because other machines may use it by now.
fn resume_all(s: &Snapshot) -> RemainingWork {
    resume_each(&[others(s), swap::of_core(s)].concat()).then(|| swap::release(s))
}

/// Step 2. An MCMMachine without an owner has no controller.
fn describe(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let (Some(class), false) = (swap::class(s), swap::template_name(s).is_empty()) else {
        todo.expect(false, "the template to be convertible again, or mcm adopt abort");
        return todo;
    };
    for made in swap::class_made(s).objects {
        todo.make(s, Kind::Class, &paused(Kind::Class, made, s));
    }
    let Some(template) = swap::own_template(s) else {
        let spec = json!({ "machineClassRef": { "name": class["metadata"]["name"] } });
        let template = json!({
            "apiVersion": Kind::InfraTemplate.api_version(), "kind": "MCMMachineTemplate",
            "metadata": { "name": swap::template_name(s) }, "spec": { "template": { "spec": spec } },
        });
        todo.make(s, Kind::InfraTemplate, &paused(Kind::InfraTemplate, template, s));
        return todo;
    };
    for member in s.recorded() {
        match member.other {
            Some(other) => {
                let infra = swap::infrastructure(other, Kind::InfraMachine, template);
                todo.make(s, Kind::InfraMachine, &paused(Kind::InfraMachine, infra, s));
            }
            None => todo.expect(false, format!("the infrastructure object {}", member.name)),
        }
    }
    todo
}

fn forget(s: &Snapshot) -> RemainingWork {
    swap::forget(s, Kind::InfraTemplate)
}

/// Step 3. The provider mcm confirms that it runs and that each MCMMachine is paused, before anything refers to one.
fn refer(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    for member in s.recorded() {
        let (Some(machine), Some(infra)) = (member.machine, member.infra) else {
            todo.expect(false, format!("Machine {} and its MCMMachine", member.name));
            continue;
        };
        todo.want(infra, &json!({ "metadata": { "ownerReferences": machine.as_controller() } }));
        todo.expect_paused([infra]);
    }
    todo.then(|| swap::refer(s, Kind::InfraTemplate))
}

fn refer_back(s: &Snapshot) -> RemainingWork {
    match swap::other_template(s) {
        Some(template) => swap::refer(s, template.kind),
        None => {
            let mut todo = RemainingWork::default();
            todo.expect(false, format!("the template {} of the other provider", swap::template_name(s)));
            todo
        }
    }
}

/// First after the switch: there are no references to the objects of the other provider any more. Their templates stay.
fn remove(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    detach(&mut todo, s.recorded().filter_map(|member| member.other));
    todo
}

/// Last: resumes from the MCMMachines, which adopt the VMs, up to the deployment.
fn start(s: &Snapshot) -> RemainingWork {
    to_capi::start(s).then(|| swap::release(s))
}

/// The infrastructure objects of the other provider.
fn others(s: &Snapshot) -> Vec<&UnstructuredObject> {
    s.members_of(MigrationSide::OtherProvider).into_iter().filter_map(|member| member.other).collect()
}
