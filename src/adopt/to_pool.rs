//! From a deployment of core with the provider mcm to the pool of another infrastructure provider from which it came.
//!
//! ```text
//! before   MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ MCMMachine ─▶ native Machine ─▶ VM
//! after    MachinePool ─▶ AWSMachinePool ─▶ Auto Scaling group ──────────────────────────▶ VM
//! ```

use std::collections::BTreeSet;

use serde_json::json;

use super::{
    from_pool::{both, bounds_before, pools},
    group,
    object::{Kind, UnstructuredObject},
    snapshot::Snapshot,
    step::{RemainingWork, Step, detach, pause_each, resume_each},
    swap, to_native, to_other,
};
pub use mcm_conversion::{provider_id, types::MigrationSide};

/// Steps until the authority is switched. Each can be undone.
pub const BEFORE: [Step; 3] = [
    Step { title: "pause the CAPI objects and the MachinePool", todo: pause_all, undo: Some(resume_all) },
    Step { title: "remove the tags of their class from the VMs", todo: swap::untag, undo: Some(swap::tag) },
    Step { title: "wait until the VMs joined their group", todo: group::join, undo: Some(group::left) },
];

/// Steps after the switch.
pub const AFTER: [Step; 2] = [
    Step { title: "remove the MachineDeployment and the objects of mcm", todo: remove, undo: None },
    Step { title: "unpause the MachinePool, with its machines", todo: fill, undo: None },
];

/// Step 1. Core and the provider mcm confirm that each of their objects is paused.
fn pause_all(s: &Snapshot) -> RemainingWork {
    let mut todo = pause_each(s, &[swap::of_core(s), to_other::ours(s), pools(s)].concat());
    swap::hold(&mut todo, s);
    todo
}

fn resume_all(s: &Snapshot) -> RemainingWork {
    let todo = resume_each(&[to_other::ours(s), swap::of_core(s), pools(s)].concat());
    todo.then(|| swap::release(s))
}

/// First after the switch, while core does not look at the Nodes of the pool. Template and class stay.
fn remove(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let ours = s.recorded().filter_map(|member| member.native).chain(to_native::of_cluster_api(s));
    detach(&mut todo, ours.filter(|one| one.kind != Kind::HealthCheck));
    if is_held(s, s.deployment_of(MigrationSide::OtherProvider)) {
        to_native::release_nodes(&mut todo, s);
    }
    todo
}

/// Last: the provider shows the VMs of the group before core searches for their Nodes.
fn fill(s: &Snapshot) -> RemainingWork {
    let (machine_pool, pool) = match both(s) {
        Ok(both) => both,
        Err(missing) => return missing,
    };
    let mut todo = RemainingWork::default();
    if let Some(bounds) = bounds_before(pool) {
        todo.want(pool, &bounds);
    }
    if is_held(s, Some(machine_pool)) {
        todo.want(machine_pool, &json!({ "spec": { "replicas": s.recorded().count() } }));
    }
    let surviving = s.recorded().filter_map(|member| Some((member.vm(), member.node?.name())));
    let (vms, nodes): (BTreeSet<String>, BTreeSet<&str>) = surviving.unzip();
    let todo = todo.then(|| {
        let mut todo = resume_each(&[pool]);
        let ids = pool.value["spec"]["providerIDList"].as_array().into_iter().flatten();
        let shown: BTreeSet<String> = ids.filter_map(|id| id.as_str()).map(provider_id::identity).collect();
        todo.expect(shown.is_superset(&vms), format!("{} to list the VMs of its group", pool.id()));
        todo
    });
    let todo = todo.then(|| {
        let mut todo = resume_each(&[machine_pool]);
        let references = machine_pool.value["status"]["nodeRefs"].as_array().into_iter().flatten();
        let shown: BTreeSet<&str> = references.filter_map(|one| one["name"].as_str()).collect();
        todo.expect(shown.is_superset(&nodes), format!("{} to have its Nodes", machine_pool.id()));
        todo
    });
    todo.then(|| {
        let held = s.all(Kind::HealthCheck).filter(|check| check.is_of_migration(s.name()));
        resume_each(&held.collect::<Vec<&UnstructuredObject>>()).then(|| swap::release(s))
    })
}

fn is_held(s: &Snapshot, object: Option<&UnstructuredObject>) -> bool {
    object.is_some_and(|one| one.is_of_migration(s.name()))
}
