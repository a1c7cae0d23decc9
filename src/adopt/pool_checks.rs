//! Preconditions of the migration of a pool.

use std::collections::BTreeSet;

use super::{
    Kind, MachineObjects, MigrationDirection, Snapshot, UnstructuredObject, group,
    pools::REPLACE,
    swap,
    swap_checks::conversion,
    verdicts::{CheckVerdict, MigrationCheck, names_are_free, no_orphans, no_rollout, of_whole},
};
use mcm_conversion::types::names;

/// The kind of pools whose VMs can leave and return.
const MOVABLE: &str = "AWSMachinePool";

/// The checks of one of the two directions. `root` is the MachinePool, or the deployment.
pub fn checks(
    s: &Snapshot,
    way: MigrationDirection,
    root: &UnstructuredObject,
    members: &[MachineObjects<'_>],
) -> Vec<MigrationCheck> {
    let is_back = way == MigrationDirection::ToOther;
    let mut all = vec![
        of_whole("provider", provider(s)),
        of_whole("size", if is_back { fits(s, members) } else { is_complete(s, root, members) }),
        of_whole("members", members_of_group(s, way, members)),
        of_whole("orphans", no_orphans(s, members)),
    ];
    if is_back {
        all.push(of_whole("rollout", no_rollout(s, way.from(), root, members)));
    } else {
        all.push(of_whole("names", names_are_free(s, way, members)));
        all.push(of_whole("bootstrap", boots(s, root)));
        all.extend(conversion(s, way, root));
    }
    all
}

fn provider(s: &Snapshot) -> CheckVerdict {
    let Some(machine_pool) = s.machine_pool() else {
        return Err(format!("MachinePool {} does not exist, to which the VMs would return", s.name()));
    };
    let kind = machine_pool.text("/spec/template/spec/infrastructureRef/kind");
    match s.pool() {
        _ if kind != MOVABLE => Err(format!("its infrastructure is {kind} {}: {}", swap::template_name(s), REPLACE)),
        Some(pool) => Ok(pool.id().to_string()),
        None => Err(format!("{kind} {} does not exist", swap::template_name(s))),
    }
}

/// Each VM that the pool is to have is in it, and no other program scales it.
fn is_complete(s: &Snapshot, machine_pool: &UnstructuredObject, members: &[MachineObjects<'_>]) -> CheckVerdict {
    if let Some(manager) = machine_pool.annotation(names::REPLICAS_MANAGED_BY) {
        return Err(format!("{manager} scales it: stop it and remove the annotation {}", names::REPLICAS_MANAGED_BY));
    }
    let label = names::label_value(s.name());
    let is_of_pool = |machine: &&UnstructuredObject| machine.label(names::POOL_NAME) == Some(&label);
    if let Some(machine) = s.all(Kind::CapiMachine).find(is_of_pool) {
        return Err(format!("its VMs have Machines, such as {}: {}", machine.name(), REPLACE));
    }
    let Some(replicas) = machine_pool.number("/spec/replicas") else {
        return Err("spec.replicas is absent: write it".to_owned());
    };
    if members.is_empty() {
        return Err("it has no machines: create a MachineDeployment instead".to_owned());
    }
    if usize::try_from(replicas) != Ok(members.len()) {
        return Err(format!("{} VMs, {replicas} replicas: wait until it is scaled", members.len()));
    }
    Ok(format!("{replicas} VMs"))
}

/// The pool was left without machines, and its bounds admit those of the deployment.
fn fits(s: &Snapshot, members: &[MachineObjects<'_>]) -> CheckVerdict {
    let (Some(machine_pool), Some(pool)) = (s.machine_pool(), s.pool()) else {
        return Err("the pool does not exist".to_owned());
    };
    let count = i64::try_from(members.len()).unwrap_or(i64::MAX);
    if machine_pool.number("/spec/replicas") != Some(0)
        || machine_pool.number("/status/replicas").unwrap_or_default() != 0
    {
        return Err(format!("{} has machines: scale it to 0", machine_pool.id()));
    }
    match pool.number("/spec/maxSize") {
        Some(most) if most < count => Err(format!("{} takes {most} VMs: set spec.maxSize to {count}", pool.id())),
        most => Ok(format!("{count} of {}", most.unwrap_or(1))),
    }
}

/// The group and the pool agree.
fn members_of_group(s: &Snapshot, way: MigrationDirection, members: &[MachineObjects<'_>]) -> CheckVerdict {
    let group = format!("Auto Scaling group {}", swap::template_name(s));
    let shown = match group::members(s) {
        None => return Err("the cloud was not asked".to_owned()),
        Some(Err(error)) => return Err(format!("the members of {group} cannot be listed: {error}")),
        Some(Ok(shown)) => shown,
    };
    let wanted: BTreeSet<String> = match way {
        MigrationDirection::ToOther => BTreeSet::new(),
        _ => members.iter().map(MachineObjects::vm).collect(),
    };
    if let Some(id) = wanted.symmetric_difference(&shown).next() {
        let is = if shown.contains(id) { "is" } else { "is not" };
        return Err(format!("{id} {is} a member of {group}: wait until its size is settled"));
    }
    Ok(format!("{} members of {group}", shown.len()))
}

/// Later machines need the bootstrap data of the pool.
fn boots(s: &Snapshot, machine_pool: &UnstructuredObject) -> CheckVerdict {
    match machine_pool.text("/spec/template/spec/bootstrap/dataSecretName") {
        "" => {
            Err("the MachinePool names no Secret with bootstrap data yet: wait for its bootstrap provider".to_owned())
        }
        name if s.find(Kind::Secret, name).is_none() => Err(format!("Secret {name} does not exist")),
        name => Ok(format!("from Secret {name}, which MachinePool {} keeps up to date", machine_pool.name())),
    }
}
