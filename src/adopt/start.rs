//! The last steps of a migration: the controllers of its objects resume, each after those of its dependents. So a set finds all
//! its machines at work before it decides anything.

use super::{
    Kind, Snapshot, UnstructuredObject,
    snapshot::{deployment_kind, set_kind},
    step::{RemainingWork, each, expect, expect_resumed, resume},
};
use mcm_conversion::{ProviderRole, types::MigrationSide};

/// The native Machines, and the objects above them. A Machine whose Node is lost will not run again.
pub fn start_natively(s: &Snapshot) -> RemainingWork {
    let machines = s.recorded().filter_map(|member| Some((member.native?, member.node)));
    let todo = each(machines, |(native, node)| {
        let runs = native.text("/status/currentStatus/phase") == "Running" || node.is_none();
        resume(native).and(expect(!native.is_paused() && runs, format!("{} to be Running", native.id())))
    });
    todo.then(|| start_owners(s, MigrationSide::MachineController))
}

/// The objects of the provider mcm, then those of core. An MCMMachine whose Node is lost may not be ready again, or deleted
/// meanwhile.
pub fn start_under_core(s: &Snapshot) -> RemainingWork {
    let is_ready = |infra: &UnstructuredObject| !infra.is_paused() && infra.condition("Ready") == "True";
    let todo = each(s.recorded(), |member| {
        let resumed = match member.node {
            Some(_) => expect(member.infra.is_some_and(is_ready), format!("MCMMachine {} to be ready", member.name)),
            None => expect_resumed(member.infra),
        };
        each([member.native, member.infra].into_iter().flatten(), resume).and(resumed)
    });
    todo.then(|| start_core(s))
}

/// The Machines of Cluster API, and the objects above them. A Machine whose Node is lost will not have another.
pub fn start_core(s: &Snapshot) -> RemainingWork {
    let todo = each(s.recorded(), |member| {
        let resumed = match member.node.map(UnstructuredObject::name) {
            Some(node) => {
                let runs = |one: &UnstructuredObject| !one.is_paused() && node == one.text("/status/nodeRef/name");
                expect(member.machine.is_some_and(runs), format!("Machine {} to have its Node", member.name))
            }
            None => expect_resumed(member.machine),
        };
        each(member.machine, resume).and(resumed)
    });
    todo.then(|| start_owners(s, MigrationSide::ClusterApi))
}

/// Sets, then the deployment and the other objects that this migration created. A machine without a set has only these.
fn start_owners(s: &Snapshot, side: MigrationSide) -> RemainingWork {
    let resume_made = || each(made(s, side), resume);
    if s.unit.is_lone() {
        return resume_made();
    }
    let surviving = s.surviving();
    let (updated, works) = match side {
        MigrationSide::MachineController => ("updatedReplicas", "availableReplicas"),
        _ if has_control_plane(s) => ("upToDateReplicas", "availableReplicas"),
        _ => ("upToDateReplicas", "replicas"),
    };
    let counts = |one: &UnstructuredObject, field: &str| one.number(&format!("/status/{field}")) >= surviving;
    let sets = s.sets_of(side);
    let is_at_work = sets.iter().any(|set| !set.is_paused() && counts(set, works));
    let todo = each(&sets, |set| resume(set))
        .and(expect(is_at_work, format!("all machines of the {} to be available", set_kind(side))));
    todo.then(|| {
        let numbers = ["replicas", updated, works];
        let is_whole = |one: &UnstructuredObject| {
            !one.is_paused() && one.is_observed() && numbers.iter().all(|field| counts(one, field))
        };
        let text = format!("all machines of the {} to be available", deployment_kind(side));
        resume_made().and(expect(s.deployment_of(side).is_some_and(is_whole), text))
    })
}

/// Core observes the health of Nodes once the control plane is initialized. In a Cluster without a control plane it
/// never counts a machine as available; then the Node reference of each machine has to suffice.
fn has_control_plane(s: &Snapshot) -> bool {
    s.find(Kind::Cluster, &s.cluster).is_some_and(|cluster| cluster.condition("ControlPlaneInitialized") == "True")
}

/// The objects of a side that this migration created or paused, without native Machines.
pub fn made(s: &Snapshot, side: MigrationSide) -> impl DoubleEndedIterator<Item = &UnstructuredObject> {
    let is_of_side = move |kind: Kind| match side {
        MigrationSide::MachineController => matches!(kind, Kind::Deployment | Kind::Set | Kind::Class | Kind::Secret),
        MigrationSide::ClusterApi | MigrationSide::OtherProvider => matches!(
            kind,
            Kind::CapiDeployment
                | Kind::CapiSet
                | Kind::CapiMachine
                | Kind::HealthCheck
                | Kind::InfraMachine
                | Kind::InfraTemplate
                | Kind::Other(_, ProviderRole::Cluster | ProviderRole::Machine | ProviderRole::Template)
                | Kind::Secret
        ),
    };
    s.objects.values().filter(move |one| is_of_side(one.kind) && one.is_of_migration(s.name()))
}
