//! From a deployment of core with the provider mcm to the pool of another infrastructure provider from which it came.
//!
//! ```text
//! before   MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ MCMMachine ─▶ native Machine ─▶ VM
//! after    MachinePool ─▶ AWSMachinePool ─▶ Auto Scaling group ──────────────────────────▶ VM
//! ```

use std::collections::BTreeSet;

use serde_json::json;

use super::{
    Kind, Snapshot, UnstructuredObject,
    from_pool::{both, bounds_before},
    hold,
    step::{RemainingWork, detach, each, expect, resume_each, want},
    to_native::release_nodes,
};
use mcm_conversion::provider_id;

/// Removes the deployment and the objects of mcm, while core does not look at the Nodes of the pool. Template and class stay.
pub fn remove(s: &Snapshot) -> RemainingWork {
    let ours = s.recorded().filter_map(|member| member.native).chain(hold::of_cluster_api(s));
    let todo = detach(ours.filter(|one| one.kind != Kind::HealthCheck));
    if s.machine_pool().is_some_and(|pool| pool.is_of_migration(s.name())) { todo.and(release_nodes(s)) } else { todo }
}

/// Resumes the pool: the provider shows the VMs of the group before core searches for their Nodes.
pub fn fill(s: &Snapshot) -> RemainingWork {
    let (machine_pool, pool) = match both(s) {
        Ok(both) => both,
        Err(missing) => return missing,
    };
    let mut todo = each(bounds_before(pool), |bounds| want(pool, &bounds));
    if machine_pool.is_of_migration(s.name()) {
        todo = todo.and(want(machine_pool, &json!({ "spec": { "replicas": s.recorded().count() } })));
    }
    let surviving = s.recorded().filter_map(|member| Some((member.vm(), member.node?.name())));
    let (vms, nodes): (BTreeSet<String>, BTreeSet<&str>) = surviving.unzip();
    let todo = todo.then(|| {
        let ids = pool.value["spec"]["providerIDList"].as_array().into_iter().flatten();
        let shown: BTreeSet<String> = ids.filter_map(|id| id.as_str()).map(provider_id::identity).collect();
        let text = format!("{} to list the VMs of its group", pool.id());
        resume_each(&[pool]).and(expect(shown.is_superset(&vms), text))
    });
    let todo = todo.then(|| {
        let references = machine_pool.value["status"]["nodeRefs"].as_array().into_iter().flatten();
        let shown: BTreeSet<&str> = references.filter_map(|one| one["name"].as_str()).collect();
        let text = format!("{} to have its Nodes", machine_pool.id());
        resume_each(&[machine_pool]).and(expect(shown.is_superset(&nodes), text))
    });
    let checks: Vec<&UnstructuredObject> = s.held(Kind::HealthCheck).collect();
    todo.then(|| resume_each(&checks)).then(|| hold::release_classes(s))
}
