//! Preconditions of a migration between infrastructure providers.

use super::{
    object::{Kind, UnstructuredObject},
    snapshot::{MachineObjects, Snapshot},
    swap,
    verdicts::{
        CheckVerdict, MigrationCheck, OF_MACHINE, cluster, machine_is_settled, no_orphans, no_rollout, nobody_paused,
        node_is_its_own, of_whole, result, settled, vm_is_claimed_once, vm_is_found,
    },
    way::MigrationDirection,
};
use mcm_api::{labels, machine::MachineClass};
pub use mcm_conversion::{
    ConversionResult, content_of, provider_id,
    types::{MigrationSide, names},
    zone_of,
};

/// All checks for one of the two directions.
pub fn checks(
    s: &Snapshot,
    way: MigrationDirection,
    deployment: &UnstructuredObject,
    members: &[MachineObjects<'_>],
) -> Vec<MigrationCheck> {
    if s.unit.is_lone() {
        let text = "between infrastructure providers only whole deployments are migrated";
        return vec![of_whole("provider", Err(text.to_owned()))];
    }
    let mut all = vec![
        of_whole("deployment", settled(deployment)),
        of_whole("cluster", cluster(s, way.to())),
        of_whole("pause", nobody_paused(s, way.from()).and_then(|text| no_migration_holds_a_class(s).map(|()| text))),
        of_whole("rollout", no_rollout(s, way.from(), deployment, members)),
        of_whole("provider", provider(s, way, deployment)),
        of_whole("names", names_are_free(s, way, members)),
        of_whole("orphans", no_orphans(s, members)),
    ];
    let made = match way {
        MigrationDirection::ToOther => swap::template_made(s),
        MigrationDirection::FromOther
        | MigrationDirection::ToNative
        | MigrationDirection::FromNative
        | MigrationDirection::FromStandIn => swap::class_made(s),
    };
    all.extend(conversion(s, way, deployment, &made));
    for member in members {
        let of_machine = |check, verdict| result(member.name, check, verdict);
        let is_settled = match way {
            MigrationDirection::ToOther => machine_is_settled(member, MigrationSide::ClusterApi),
            MigrationDirection::FromOther
            | MigrationDirection::ToNative
            | MigrationDirection::FromNative
            | MigrationDirection::FromStandIn => machine_of_other_is_settled(member),
        };
        all.push(of_machine(OF_MACHINE[0], is_settled));
        all.push(of_machine(OF_MACHINE[1], node_is_its_own(member)));
        all.push(of_machine(OF_MACHINE[2], vm_is_found(s, member)));
        all.push(of_machine(OF_MACHINE[3], vm_is_claimed_once(s, member)));
    }
    all
}

pub fn no_migration_holds_a_class(s: &Snapshot) -> Result<(), String> {
    let other = |class: &&UnstructuredObject| class.annotation(labels::MIGRATION).is_some_and(|name| name != s.name());
    match swap::classes(s).into_iter().find(other) {
        Some(class) => Err(format!("{} is held by another migration: complete that first", class.id())),
        None => Ok(()),
    }
}

/// The template is of the provider that the machines are migrated from.
fn provider(s: &Snapshot, way: MigrationDirection, deployment: &UnstructuredObject) -> CheckVerdict {
    let reference = "/spec/template/spec/infrastructureRef";
    let (kind, name) = (deployment.text(&format!("{reference}/kind")), swap::template_name(s));
    // Includes the time in which the references change.
    let is_under_way = deployment.is_of_migration(s.name());
    let is_own = kind == Kind::InfraTemplate.resource().name;
    match way {
        MigrationDirection::ToOther if !is_own && !is_under_way => {
            Err(format!("its template is {kind} {name}, which is not of the provider mcm"))
        }
        MigrationDirection::ToOther => match swap::own_template(s) {
            Some(template) => Ok(format!("from {}", template.id())),
            None => Err(format!("MCMMachineTemplate {name} does not exist")),
        },
        _ if is_own && !is_under_way => {
            Err(format!("its template is {kind} {name}, which is already of the provider mcm"))
        }
        _ => match swap::other_template(s) {
            Some(template) => Ok(format!("from {}", template.id())),
            None => {
                Err(format!("its template {kind} {name} does not exist or is of a provider that mcm does not know"))
            }
        },
    }
}

fn names_are_free(s: &Snapshot, way: MigrationDirection, members: &[MachineObjects<'_>]) -> CheckVerdict {
    let of_member = |member: &MachineObjects<'_>| match way {
        MigrationDirection::ToOther => [member.other.map(UnstructuredObject::id), None],
        _ => [member.infra.map(UnstructuredObject::id), member.native.map(UnstructuredObject::id)],
    };
    let ids = members.iter().flat_map(of_member).flatten();
    let is_foreign = |id: &super::object::ObjectId| s.objects.get(id).is_some_and(|one| !one.is_of_migration(s.name()));
    match ids.into_iter().find(is_foreign) {
        Some(id) => Err(format!("{id} exists: rename or delete it")),
        None => Ok("the names are free".to_owned()),
    }
}

/// Every refusal is a failed check, with its path.
pub fn conversion(
    s: &Snapshot,
    way: MigrationDirection,
    deployment: &UnstructuredObject,
    made: &ConversionResult,
) -> Vec<MigrationCheck> {
    if !made.refusals.is_empty() {
        let refused = |refusal: &_| of_whole("conversion", Err(format!("{refusal}; or write the class yourself")));
        return made.refusals.iter().map(refused).collect();
    }
    let text = match made.objects.first() {
        Some(object) => {
            format!("{} {} is created", object["kind"].as_str().unwrap_or_default(), swap::template_name(s))
        }
        None => "class and template exist".to_owned(),
    };
    let mut all = vec![of_whole("conversion", Ok(text))];
    if way != MigrationDirection::ToOther {
        all.push(of_whole("class", class_fits(s, deployment)));
    }
    all
}

/// The provider mcm adopts a machine only into a class of its zone.
fn class_fits(s: &Snapshot, deployment: &UnstructuredObject) -> CheckVerdict {
    let Some(class) = swap::class(s) else {
        return Err(format!("MachineClass {} does not exist and cannot be created", swap::template_name(s)));
    };
    let name = class["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let content = serde_json::from_value::<MachineClass>(class).map(|class| content_of(&class));
    let content = content.map_err(|_| format!("MachineClass {name} cannot be read"))?;
    let (wanted, zone) = (deployment.text("/spec/template/spec/failureDomain"), zone_of(Some(&content)));
    if !wanted.is_empty() && zone.as_deref() != Some(wanted) {
        return Err(format!("MachineClass {name} is not in failureDomain {wanted}: set its nodeTemplate.zone"));
    }
    Ok(name)
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
    let phase = machine.text("/status/phase");
    if phase != "Running" {
        return Err(format!("its phase is {phase}, not Running"));
    }
    let (id, of_machine) = (other.text("/spec/providerID"), machine.text("/spec/providerID"));
    if id.is_empty() || id != of_machine {
        return Err(format!("{} has VM {id}, {} has {of_machine}", other.id(), machine.id()));
    }
    match provider_id::vm_name(id).filter(|vm| *vm != member.name) {
        Some(vm) => Err(format!("its VM is named {vm}, and MCM requires the name of the machine")),
        None => Ok(phase.to_owned()),
    }
}
