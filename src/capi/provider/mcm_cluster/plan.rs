use super::{Action, Snapshot};
use crate::{
    capi::{
        provider::{
            conditions::{self, Desired},
            hold, reasons,
            view::View,
        },
        types::{MCMClusterStatus, ReportedFailureDomain, names},
    },
    controllers::object::finalizer,
    plan::{Plan, Step, WaitKind},
};

/// Plans the next steps of an MCMCluster. A plan has at most one write.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    let meta = &snapshot.object.metadata;
    if let Some(on) = hold::not_ours(meta, snapshot.watch_filter.as_deref()) {
        plan.wait(WaitKind::Hold, on, None);
        return plan;
    }
    let is_deleting = meta.deletion_timestamp.is_some();
    if hold::is_managed_elsewhere(meta) {
        // The finalizer was set before the object was managed elsewhere.
        if is_deleting && finalizer::has(meta, names::CLUSTER_FINALIZER) {
            release(&mut plan, snapshot);
        } else {
            plan.wait(WaitKind::Hold, format!("the manager that {} names", names::MANAGED_BY), None);
        }
        return plan;
    }
    let Some(cluster) = &snapshot.cluster else {
        if is_deleting {
            release(&mut plan, snapshot);
        } else {
            plan.wait(WaitKind::Owner, "Cluster API core to set its Cluster as an owner", None);
        }
        return plan;
    };
    if let Some(on) = hold::paused(meta, cluster) {
        let mut next = stored(snapshot);
        conditions::set_paused(&mut next.conditions, Some(&on), meta.generation, snapshot.now);
        report(&mut plan, snapshot, next, "it is paused");
        plan.wait(WaitKind::Hold, on, None);
        return plan;
    }
    if is_deleting {
        release(&mut plan, snapshot);
        return plan;
    }
    if cluster.known().is_none() {
        plan.wait(WaitKind::Owner, "its Cluster to exist", None);
        return plan;
    }
    if let Some(patch) = finalizer::add(meta, names::CLUSTER_FINALIZER) {
        plan.then(Action::PatchSelf(patch), "it takes part in the deletion of its Cluster");
        return plan;
    }
    let ready = ready(snapshot);
    if !ready.is_true {
        plan.wait(WaitKind::Infrastructure, format!("what it needs: {}", ready.message), None);
    }
    report(&mut plan, snapshot, current(snapshot, ready), "its conditions or failure domains changed");
    plan
}

fn stored(snapshot: &Snapshot) -> MCMClusterStatus {
    snapshot.object.status.clone().unwrap_or_default()
}

/// There is nothing to delete. Core has already deleted the Machines.
fn release(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let meta = &snapshot.object.metadata;
    match finalizer::remove(meta, names::CLUSTER_FINALIZER) {
        Some(patch) => {
            drop(plan.then(Action::PatchSelf(patch), "a cluster has no infrastructure other than its machines"))
        }
        None if meta.finalizers.as_ref().is_some_and(|others| !others.is_empty()) => {
            plan.wait(WaitKind::Finalizers, "other controllers to remove their finalizers", None);
        }
        None => {}
    }
}

/// Whether everything that the object names exists, and the API server has an address.
fn ready(snapshot: &Snapshot) -> Desired {
    let spec = &snapshot.object.spec;
    let cluster = snapshot.cluster.as_ref().and_then(View::known);
    let of_cluster = cluster.is_some_and(|cluster| cluster.spec.control_plane_endpoint.is_complete());
    if !spec.control_plane_endpoint.is_complete() && !of_cluster {
        let text = "spec.controlPlaneEndpoint of the MCMCluster and of the Cluster is empty: set one of them";
        return Desired::no(reasons::WAITING_FOR_ENDPOINT, text);
    }
    let secret = spec.credentials_secret_ref.as_ref().map(|reference| reference.name.as_str()).unwrap_or_default();
    match &snapshot.credentials {
        Some(View::Missing) => {
            return Desired::no(reasons::SECRET_MISSING, format!("Secret {secret} does not exist: create it"));
        }
        Some(View::Unknown) => return Desired::no(reasons::UNREADABLE, format!("Secret {secret} cannot be read")),
        Some(View::Present(_)) | None => {}
    }
    for (class, seen) in &snapshot.classes {
        match seen {
            View::Missing => {
                let text = format!("MachineClass {class} in spec.failureDomains does not exist: create it");
                return Desired::no(reasons::CLASS_MISSING, text);
            }
            View::Unknown => {
                return Desired::no(reasons::UNREADABLE, format!("MachineClass {class} cannot be read"));
            }
            View::Present(_) => {}
        }
    }
    Desired::yes(reasons::PROVISIONED)
}

fn current(snapshot: &Snapshot, ready: Desired) -> MCMClusterStatus {
    let mut next = stored(snapshot);
    if ready.is_true {
        next.initialization.provisioned = Some(true);
    }
    let domains = snapshot.object.spec.failure_domains.iter();
    next.failure_domains = domains
        .map(|domain| ReportedFailureDomain {
            name: domain.name.clone(),
            control_plane: domain.control_plane,
            attributes: domain.attributes.clone(),
        })
        .collect();
    let generation = snapshot.object.metadata.generation;
    conditions::set(&mut next.conditions, reasons::READY, ready, generation, snapshot.now);
    conditions::set_paused(&mut next.conditions, None, generation, snapshot.now);
    next
}

/// Adds a write of the status, if it changes.
fn report(plan: &mut Plan<Action>, snapshot: &Snapshot, next: MCMClusterStatus, reason: &str) {
    let stored = stored(snapshot);
    if next != stored {
        let event = conditions::event(&stored.conditions, &next.conditions);
        plan.steps.push(Step { action: Action::WriteStatus(Box::new(next)), reason: reason.to_owned(), event });
    }
}
