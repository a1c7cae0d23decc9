//! The first step of every migration: the controllers of all its objects pause, so that none of them acts while the machines
//! change their owner.

use std::collections::BTreeSet;

use super::{
    Kind, MigrationDirection, Snapshot, UnstructuredObject,
    snapshot::set_kind,
    step::{RemainingWork, each, pause, pause_each, resume, resume_each},
    swap,
};
use mcm_api::selector::Selector;
use mcm_conversion::types::MigrationSide;

/// Pauses all objects of a migration. Core, the provider mcm and the native controllers confirm each; another provider ignores
/// a paused object, which it need not confirm.
///
/// Between providers, the classes are held as well, which excludes their VMs from orphan collection. There is no confirmation: a
/// collector reads the class before it deletes a VM, and only long after it first saw the VM.
pub fn pause_all(s: &Snapshot, way: MigrationDirection) -> RemainingWork {
    let todo = pause_each(s, &objects(s, way).concat());
    if way.keeps_core() { todo.and(each(classes(s), |class| pause(s, class))) } else { todo }
}

/// Undoes [`pause_all`].
pub fn resume_all(s: &Snapshot, way: MigrationDirection) -> RemainingWork {
    let [above, below] = objects(s, way);
    let todo = match way {
        // First the infrastructure, so that core finds the VMs in it.
        MigrationDirection::FromOther if s.unit.is_pool() => resume_each(&below).then(|| resume_each(&above)),
        _ => resume_each(&[below, above].concat()),
    };
    if way.keeps_core() { todo.then(|| release_classes(s)) } else { todo }
}

/// The objects of a migration in two groups: the first is paused first, the second is resumed first.
fn objects(s: &Snapshot, way: MigrationDirection) -> [Vec<&UnstructuredObject>; 2] {
    match way {
        MigrationDirection::ToNative => [of_cluster_api(s), natives(s, way.from())],
        MigrationDirection::FromNative => [above(s, way.from()), natives(s, way.from())],
        MigrationDirection::FromOther if s.unit.is_pool() => {
            [Vec::from_iter(s.machine_pool()), Vec::from_iter(s.pool())]
        }
        MigrationDirection::FromOther => [of_core(s), others(s)],
        MigrationDirection::ToOther => {
            let pools = s.machine_pool().into_iter().chain(s.pool());
            [of_core(s).into_iter().chain(pools).collect(), of_mcm(s)]
        }
        MigrationDirection::FromStandIn => [Vec::new(), Vec::new()],
    }
}

/// The objects of Cluster API and of the provider mcm, from the leaves to the root.
pub fn of_cluster_api(s: &Snapshot) -> Vec<&UnstructuredObject> {
    let members = s.members_of(MigrationSide::ClusterApi).into_iter().chain(s.recorded());
    unique(members.filter_map(|member| member.infra).chain(of_core(s)))
}

/// The objects of core, from the leaves to the root.
fn of_core(s: &Snapshot) -> Vec<&UnstructuredObject> {
    let members = s.members_of(MigrationSide::ClusterApi).into_iter().chain(s.recorded());
    unique(members.filter_map(|member| member.machine).chain(above(s, MigrationSide::ClusterApi)))
}

/// The objects above the machines of a side, from the leaves to the root. Sets that were detached are among them.
pub fn above(s: &Snapshot, side: MigrationSide) -> Vec<&UnstructuredObject> {
    let checks = if side == MigrationSide::MachineController { Vec::new() } else { health_checks(s) };
    let sets = s.sets_of(side).into_iter().chain(s.held(set_kind(side)));
    unique(sets.chain(checks).chain(s.deployment_of(side)))
}

/// The native Machines of a side, with any owner.
fn natives(s: &Snapshot, side: MigrationSide) -> Vec<&UnstructuredObject> {
    let members = s.members_of(side).into_iter().filter_map(|member| member.native);
    unique(members.chain(s.held(Kind::Machine)))
}

/// The objects of the provider mcm.
fn of_mcm(s: &Snapshot) -> Vec<&UnstructuredObject> {
    let members = s.members_of(MigrationSide::ClusterApi).into_iter();
    members.flat_map(|member| [member.infra, member.native]).flatten().collect()
}

/// The infrastructure objects of the other provider.
fn others(s: &Snapshot) -> Vec<&UnstructuredObject> {
    s.members_of(MigrationSide::OtherProvider).into_iter().filter_map(|member| member.other).collect()
}

fn unique<'a>(objects: impl Iterator<Item = &'a UnstructuredObject>) -> Vec<&'a UnstructuredObject> {
    let mut seen = BTreeSet::new();
    objects.filter(|object| seen.insert(object.id())).collect()
}

/// The health checks that select machines of the deployment, or did so. They cannot replace machines without a set.
pub fn health_checks(s: &Snapshot) -> Vec<&UnstructuredObject> {
    if s.unit.is_lone() {
        return Vec::new();
    }
    let members = s.members_of(MigrationSide::ClusterApi);
    let selects = |check: &&UnstructuredObject| {
        check.is_of_migration(s.name())
            || members.iter().filter_map(|member| member.machine).any(|machine| is_selected(check, machine))
    };
    s.all(Kind::HealthCheck).filter(selects).collect()
}

/// A health check selects a Machine.
pub fn is_selected(check: &UnstructuredObject, machine: &UnstructuredObject) -> bool {
    let selector = serde_json::from_value(check.at("/spec/selector")).ok();
    let labels = serde_json::from_value(machine.at("/metadata/labels")).ok();
    let is_same_cluster = check.text("/spec/clusterName") == machine.text("/spec/clusterName");
    is_same_cluster && Selector::parse(selector.as_ref()).is_ok_and(|selector| selector.matches(labels.as_ref()))
}

/// The classes of the machines that are stored.
pub fn classes(s: &Snapshot) -> Vec<&UnstructuredObject> {
    let members = s.members_under_core();
    let names: BTreeSet<String> = members.iter().filter_map(|member| swap::class_name(s, member)).collect();
    names.iter().filter_map(|name| s.find(Kind::Class, name)).collect()
}

/// Lets orphan collectors find the VMs of all classes again. The classes stay, because other machines may use them by now.
pub fn release_classes(s: &Snapshot) -> RemainingWork {
    each(s.held(Kind::Class), resume)
}
