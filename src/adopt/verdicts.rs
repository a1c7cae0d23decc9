//! Single checks. An unknown state fails them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Serialize;

use super::{Kind, MachineObjects, MigrationDirection, Snapshot, UnstructuredObject, hold, snapshot::set_kind, swap};
use mcm_api::{
    labels,
    machine::{MachineTemplate, same_template},
};
use mcm_conversion::{
    ProviderRole, provider_id,
    types::{MigrationSide, names},
};

/// A check and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MigrationCheck {
    /// The native Machine; empty if the check is about the whole unit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// The name of the check.
    pub check: &'static str,
    pub passed: bool,
    /// The observation, or the remedy.
    pub text: String,
}

impl fmt::Display for MigrationCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.machine.as_str() {
            "" => write!(f, "{}: {}", self.check, self.text),
            machine => write!(f, "machine {machine}: {}: {}", self.check, self.text),
        }
    }
}

/// The checks of a machine, in order.
pub const OF_MACHINE: [&str; 4] = ["settled", "node", "vm", "unclaimed"];

pub type CheckVerdict = Result<String, String>;

pub fn of_whole(check: &'static str, verdict: CheckVerdict) -> MigrationCheck {
    result("", check, verdict)
}

pub fn result(machine: &str, check: &'static str, verdict: CheckVerdict) -> MigrationCheck {
    let passed = verdict.is_ok();
    let text = verdict.unwrap_or_else(|problem| problem);
    MigrationCheck { machine: machine.to_owned(), check, passed, text }
}

pub fn settled(root: &UnstructuredObject) -> CheckVerdict {
    if root.is_deleting() {
        return Err("is being deleted".to_owned());
    }
    if root.label("topology.cluster.x-k8s.io/owned").is_some() {
        let text = "belongs to a ClusterClass, which would overwrite it: create a separate deployment";
        return Err(text.to_owned());
    }
    if root.label(names::CONTROL_PLANE).is_some() {
        return Err("is a control plane".to_owned());
    }
    if let Some(pool) = root.label(labels::POOL) {
        return Err(format!("belongs to MCMMachinePool {pool}, so Cluster API already manages it"));
    }
    let is_machine = matches!(root.kind, Kind::CapiMachine | Kind::Machine);
    if !is_machine && !root.is_observed() && !root.is_paused() {
        return Err("its controller has not seen its last change: wait, or start the controller".to_owned());
    }
    Ok("is settled".to_owned())
}

pub fn cluster(s: &Snapshot, to: MigrationSide) -> CheckVerdict {
    let Some(cluster) = s.find(Kind::Cluster, &s.cluster) else {
        return Err(format!("Cluster {} does not exist in this namespace", s.cluster));
    };
    if cluster.is_deleting() {
        return Err(format!("Cluster {} is being deleted", s.cluster));
    }
    if to != MigrationSide::MachineController
        && cluster.value["status"]["initialization"]["infrastructureProvisioned"] != true
    {
        return Err(format!(
            "Cluster {} has no infrastructure yet: Cluster API core would not accept machines",
            s.cluster
        ));
    }
    Ok(format!("Cluster {} exists", s.cluster))
}

/// Objects that a user paused are refused, because the user expects to resume them.
pub fn nobody_paused(s: &Snapshot, way: MigrationDirection, members: &[MachineObjects<'_>]) -> CheckVerdict {
    cluster_is_unpaused(s)?;
    let from = way.from();
    let machines =
        members.iter().flat_map(|member| [member.machine, member.infra, member.other, member.native]).flatten();
    let pools = s.machine_pool().into_iter().chain(s.pool());
    let is_of_other =
        |object: &UnstructuredObject| object.annotation(labels::MIGRATION).is_some_and(|name| name != s.name());
    let is_held = |object: &&UnstructuredObject| {
        is_of_other(object) || (object.annotation(names::PAUSED).is_some() && !object.is_of_migration(s.name()))
    };
    let mut all = s.deployment_of(from).into_iter().chain(s.sets_of(from)).chain(machines).chain(pools);
    if let Some(object) = all.find(is_held) {
        return Err(format!("{} is paused by another client", object.id()));
    }
    let mut classes = hold::classes(s).into_iter().filter(|_| way.keeps_core());
    match classes.find(|class| is_of_other(class)) {
        Some(class) => Err(format!("{} is held by another migration: complete that first", class.id())),
        None => Ok("nothing is paused by another client".to_owned()),
    }
}

pub fn cluster_is_unpaused(s: &Snapshot) -> Result<(), String> {
    match s.find(Kind::Cluster, &s.cluster) {
        Some(cluster) if cluster.value["spec"]["paused"] == true => {
            Err(format!("Cluster {} is paused: unpause it", s.cluster))
        }
        _ => Ok(()),
    }
}

pub fn no_rollout(
    s: &Snapshot,
    from: MigrationSide,
    deployment: &UnstructuredObject,
    members: &[MachineObjects<'_>],
) -> CheckVerdict {
    let Some(replicas) = deployment.number("/spec/replicas") else {
        return Err("spec.replicas is absent: write it".to_owned());
    };
    if members.is_empty() {
        return Err("it has no machines: convert its objects with mcm convert instead".to_owned());
    }
    if usize::try_from(replicas) != Ok(members.len()) {
        return Err(format!("{} machines, {replicas} replicas: wait until it is scaled", members.len()));
    }
    let Some(set) = s.set_of(from) else {
        return Err("several sets have machines: wait until the rollout is complete".to_owned());
    };
    if set.label(labels::TEMPLATE_HASH).is_none() {
        return Err(format!("{} has no label {}", set.id(), labels::TEMPLATE_HASH));
    }
    if !is_same_template(from, deployment, set) {
        return Err(format!("{} has another template: wait until the rollout is complete", set.id()));
    }
    Ok(format!("{replicas} machines of one template"))
}

/// Compares templates as the controllers of the side do.
fn is_same_template(side: MigrationSide, deployment: &UnstructuredObject, set: &UnstructuredObject) -> bool {
    let template = |object: &UnstructuredObject| object.at("/spec/template");
    match side {
        MigrationSide::ClusterApi | MigrationSide::OtherProvider => {
            ["version", "bootstrap", "infrastructureRef", "failureDomain"]
                .iter()
                .all(|field| template(deployment)["spec"][field] == template(set)["spec"][field])
        }
        MigrationSide::MachineController => {
            let typed = |object: &UnstructuredObject| serde_json::from_value::<MachineTemplate>(template(object));
            match (typed(deployment), typed(set)) {
                (Ok(one), Ok(other)) => same_template(&one, &other),
                _ => false,
            }
        }
    }
}

/// No other client has an object of a name that the migration needs.
pub fn names_are_free(s: &Snapshot, way: MigrationDirection, members: &[MachineObjects<'_>]) -> CheckVerdict {
    let kinds: &[Kind] = match way {
        MigrationDirection::FromNative => &[Kind::InfraMachine, Kind::CapiMachine],
        MigrationDirection::FromOther if s.unit.is_pool() => &[Kind::CapiMachine, Kind::InfraMachine, Kind::Machine],
        MigrationDirection::FromOther => &[Kind::InfraMachine, Kind::Machine],
        MigrationDirection::ToNative | MigrationDirection::ToOther | MigrationDirection::FromStandIn => &[],
    };
    let of_members = members.iter().flat_map(|member| {
        let other = member.other.filter(|_| way == MigrationDirection::ToOther);
        kinds.iter().filter_map(move |kind| s.find(*kind, member.name)).chain(other)
    });
    let keeps_objects = way.keeps_core() && !s.unit.is_pool();
    let (deployment, set) = (s.deployment_of(way.to()), s.set_of(way.from()));
    let set = set.and_then(|set| s.find(set_kind(way.to()), set.name()));
    let above = deployment.into_iter().chain(set).filter(|_| !keeps_objects);
    let mut all = above.chain(of_members);
    match all.find(|object| !object.is_of_migration(s.name())) {
        Some(object) => Err(format!("{} exists: rename or delete it", object.id())),
        None if way.keeps_core() => Ok("the names are free".to_owned()),
        None => Ok("the names are free on the other side".to_owned()),
    }
}

/// VMs that a native orphan collector would delete.
pub fn no_orphans(s: &Snapshot, members: &[MachineObjects<'_>]) -> CheckVerdict {
    let Some(cloud) = &s.cloud else { return Err("the cloud was not asked".to_owned()) };
    let natives = s.all(Kind::Machine).map(|machine| (machine.name(), machine.text("/spec/providerID").to_owned()));
    let known: BTreeMap<&str, String> =
        members.iter().map(|member| (member.name, member.driver_id())).chain(natives).collect();
    let classes: BTreeSet<String> = members.iter().filter_map(|member| swap::class_name(s, member)).collect();
    for class in classes {
        match cloud.listed.get(&class) {
            None => return Err(format!("the VMs of MachineClass {class} were not listed")),
            Some(Err(error)) => return Err(format!("the VMs of MachineClass {class} cannot be listed: {error}")),
            Some(Ok(vms)) => {
                let is_orphan = |id: &str, name: &str| known.get(name).is_none_or(|known| *known != id);
                if let Some((id, name)) = vms.iter().find(|(id, name)| is_orphan(id, name)) {
                    return Err(format!("VM {id} ({name}) has no machine: the MCM orphan collector would delete it"));
                }
            }
        }
    }
    Ok("each VM of the class has its machine".to_owned())
}

/// A machine of the side from which a migration starts is not changing.
pub fn machine_is_settled(s: &Snapshot, member: &MachineObjects<'_>, from: MigrationSide) -> CheckVerdict {
    match from {
        MigrationSide::OtherProvider if s.unit.is_pool() => Ok("is in the pool".to_owned()),
        MigrationSide::OtherProvider => machine_of_other_is_settled(member),
        MigrationSide::ClusterApi | MigrationSide::MachineController => machine_of_mcm_is_settled(member, from),
    }
}

fn machine_of_mcm_is_settled(member: &MachineObjects<'_>, from: MigrationSide) -> CheckVerdict {
    let Some(native) = member.native else {
        return Err(match member.other {
            Some(other) => format!("it has {}: migrate it to the provider mcm first, with --from other", other.id()),
            None => "it has no MCM Machine".to_owned(),
        });
    };
    let all = [member.machine, member.infra, Some(native), member.node];
    if let Some(object) = all.into_iter().flatten().find(|object| object.is_deleting()) {
        return Err(format!("{} is being deleted", object.id()));
    }
    let phase = native.text("/status/currentStatus/phase");
    if from == MigrationSide::MachineController {
        return is_running(phase);
    }
    if !["Available", "Running"].contains(&phase) {
        return Err(format!("the phase of the MCM Machine is {phase}"));
    }
    match (member.machine, member.infra) {
        (Some(machine), Some(infra)) if native.controller() == Some(infra.uid()) || infra.is_paused() => {
            is_running(machine.text("/status/phase"))
        }
        (Some(_), Some(infra)) => Err(format!("{} does not control the MCM Machine", infra.id())),
        _ => Err("its MCMMachine does not exist: it belongs to another provider".to_owned()),
    }
}

fn is_running(phase: &str) -> CheckVerdict {
    if phase == "Running" { Ok(phase.to_owned()) } else { Err(format!("its phase is {phase}, not Running")) }
}

fn machine_of_other_is_settled(member: &MachineObjects<'_>) -> CheckVerdict {
    let (Some(machine), Some(other)) = (member.machine, member.other) else {
        return Err("its infrastructure object does not exist or is of a provider that mcm does not know".to_owned());
    };
    if let Some(object) = [Some(machine), Some(other), member.node].into_iter().flatten().find(|one| one.is_deleting())
    {
        return Err(format!("{} is being deleted", object.id()));
    }
    if machine.label(names::CONTROL_PLANE).is_some() {
        return Err(format!("{} is of a control plane", machine.id()));
    }
    let phase = is_running(machine.text("/status/phase"))?;
    let (id, of_machine) = (other.text("/spec/providerID"), machine.text("/spec/providerID"));
    if id.is_empty() || id != of_machine {
        return Err(format!("{} has VM {id}, {} has {of_machine}", other.id(), machine.id()));
    }
    match provider_id::vm_name(id).filter(|vm| *vm != member.name) {
        Some(vm) => Err(format!("its VM is named {vm}, and MCM requires the name of the machine")),
        None => Ok(phase),
    }
}

pub fn node_is_its_own(member: &MachineObjects<'_>) -> CheckVerdict {
    let Some(node) = member.node else { return Err("it has no Node".to_owned()) };
    let (seen, of_machine) = (node.text("/spec/providerID"), member.vm());
    if of_machine.is_empty() || provider_id::identity(seen) != of_machine {
        return Err(format!("{} has VM {seen}, the machine {of_machine}", node.id()));
    }
    if node.condition("Ready") != "True" {
        return Err(format!("{} is not Ready", node.id()));
    }
    Ok(node.name().to_owned())
}

pub fn vm_is_found(s: &Snapshot, member: &MachineObjects<'_>) -> CheckVerdict {
    let known = member.vm();
    match s.cloud.as_ref().and_then(|cloud| cloud.found.get(member.name)) {
        None => Err("the cloud was not asked".to_owned()),
        Some(Err(error)) => Err(format!("the cloud did not return it: {error}")),
        Some(Ok(None)) => Err(format!("the cloud does not have VM {known}")),
        Some(Ok(Some(id))) if provider_id::identity(id) != known => {
            Err(format!("the cloud has {id} under this name, the machine {known}"))
        }
        Some(Ok(Some(id))) => Ok(id.clone()),
    }
}

pub fn vm_is_claimed_once(s: &Snapshot, member: &MachineObjects<'_>) -> CheckVerdict {
    let id = member.vm();
    let kinds = [Kind::Machine, Kind::InfraMachine].into_iter().chain(Kind::of_others(ProviderRole::Machine));
    let mut others = kinds.flat_map(|kind| s.all(kind)).filter(|other| other.name() != member.name);
    match others.find(|other| provider_id::identity(other.text("/spec/providerID")) == id) {
        Some(other) if !id.is_empty() => Err(format!("{} also has VM {id}", other.id())),
        _ => Ok("no other object has its VM".to_owned()),
    }
}
